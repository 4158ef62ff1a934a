"""A model with fewer layers or of less width: the same vocabulary, a fraction of the work, no sense in its text."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np

N_FF = 96  # of a narrow model
_LAYER = re.compile(r"blk\.(\d+)\.")
Data = np.ndarray[Any, np.dtype[Any]]


def shorten(source: Path, target: Path, n_layers: int, n_tensors_per_file: int = 0) -> None:
    """Write `source` with its first `n_layers` layers to `target`, or to several files named after it."""

    def within(tensor: gguf.ReaderTensor) -> Data | None:
        layer = _LAYER.match(tensor.name)
        return tensor.data if layer is None or int(layer[1]) < n_layers else None

    _rewrite(source, target, {"block_count": n_layers}, within, n_tensors_per_file)


def narrow(source: Path, target: Path) -> None:
    """Write `source`, a dense model of Llama's architecture, with as many layers and KV heads, but no more heads than
    KV heads and embeddings as wide as these: states as large as the model's own, and a tenth of its work."""
    fields = _read(source)[1]
    n_embd, n_heads, n_kv_heads = (
        int(fields[f"llama.{key}"]) for key in ("embedding_length", "attention.head_count", "attention.head_count_kv")
    )
    width = n_embd // n_heads * n_kv_heads
    kept = {n_embd: width, int(fields["llama.feed_forward_length"]): N_FF}

    def corner(tensor: gguf.ReaderTensor) -> Data:
        """Its first rows, and of each the first blocks."""
        n_values, n_bytes = gguf.GGML_QUANT_SIZES[tensor.tensor_type]
        row = int(tensor.shape[0])
        data = tensor.data[..., : kept.get(row, row) // n_values * n_bytes // tensor.data.itemsize]
        return data[: kept.get(len(data), len(data))]

    _rewrite(
        source,
        target,
        {"embedding_length": width, "feed_forward_length": N_FF, "attention.head_count": n_kv_heads},
        corner,
    )


@lru_cache(maxsize=1)
def _read(source: Path) -> tuple[gguf.GGUFReader, dict[str, Any]]:
    """A model, and the values of its fields. Its words take seconds, and most tests make several of the same model."""
    reader = gguf.GGUFReader(source)
    return reader, {name: field.contents() for name, field in reader.fields.items()}


def _rewrite(
    source: Path,
    target: Path,
    changed: dict[str, int],
    data_of: Callable[[gguf.ReaderTensor], Data | None],
    n_tensors_per_file: int = 0,
) -> None:
    """Copies a model with other numbers and tensors; those without data are left out."""
    reader, values = _read(source)
    arch = str(values["general.architecture"])
    writer = gguf.GGUFWriter(target, arch, split_max_tensors=n_tensors_per_file)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = changed.get(name.removeprefix(f"{arch}."), values[name])
        item = field.types[1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, field.types[0], item)
    for tensor in reader.tensors:
        data = data_of(tensor)
        if data is not None:
            writer.add_tensor(tensor.name, np.ascontiguousarray(data), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
