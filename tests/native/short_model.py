"""A model's first layers as a model of their own: the same vocabulary, a fraction of the work, no sense in its text."""

from __future__ import annotations

import re
from pathlib import Path

import gguf

_LAYER = re.compile(r"blk\.(\d+)\.")


def shorten(source: Path, target: Path, n_layers: int, n_tensors_per_file: int = 0) -> None:
    """Write `source` with its first `n_layers` layers to `target`, or to several files named after it."""
    reader = gguf.GGUFReader(source)
    arch_field = reader.get_field("general.architecture")
    assert arch_field is not None, f"{source} names no architecture"
    arch = arch_field.contents()
    writer = gguf.GGUFWriter(target, arch, split_max_tensors=n_tensors_per_file)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = n_layers if name == f"{arch}.block_count" else field.contents()
        item = field.types[1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, field.types[0], item)
    for tensor in reader.tensors:
        layer = _LAYER.match(tensor.name)
        if layer is None or int(layer[1]) < n_layers:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
