"""Writes a model of Qwen3-4B's shape with random weights: `python qwen3_4b_shape.py OUT.gguf [VOCABULARY.gguf]`.

8 GB, half a minute. 36 layers, 8 KV heads of 128: 144 KiB of f16 state per cell. Its text means nothing. It has a
tokenizer only if a file with one of 151,936 tokens is named (llama.cpp's models/ggml-vocab-qwen2.gguf).
`python qwen3_4b_shape.py --thin OUT.gguf` writes one with as many layers and next to nothing in each: 2 MB.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Shape:
    """Sizes of a model of this architecture."""

    n_layer: int = 36
    n_embd: int = 2560
    n_ff: int = 9728
    n_head: int = 32
    n_head_kv: int = 8
    n_head_dim: int = 128
    n_vocab: int = 151_936


FULL = Shape()
THIN = Shape(n_embd=64, n_ff=64, n_head=2, n_head_kv=1, n_head_dim=32, n_vocab=128)


def weights(*shape: int) -> npt.NDArray[np.float16]:
    """Small random numbers, one block repeated: drawing eight gigabytes takes longer than writing them."""
    block = (np.random.default_rng(sum(shape)).standard_normal(1 << 20) * 0.02).astype(np.float16)
    return np.resize(block, shape)


def add_vocabulary(writer: gguf.GGUFWriter, vocabulary: Path | None, n_vocab: int) -> None:
    """Copies the tokenizer of another file, or says that there is none."""
    if vocabulary is None:
        writer.add_vocab_size(n_vocab)
        writer.add_tokenizer_model("none")
        return
    for field in gguf.GGUFReader(vocabulary).fields.values():
        if field.name.startswith("tokenizer."):
            element = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], element)


def write(path: Path, vocabulary: Path | None = None, shape: Shape = FULL) -> None:
    """Write the file."""
    writer = gguf.GGUFWriter(str(path), "qwen3")
    writer.add_context_length(32_768)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_key_length(shape.n_head_dim)
    writer.add_value_length(shape.n_head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1_000_000.0)
    add_vocabulary(writer, vocabulary, shape.n_vocab)
    writer.add_tensor("token_embd.weight", weights(shape.n_vocab, shape.n_embd))
    writer.add_tensor("output_norm.weight", np.ones(shape.n_embd, np.float32))
    for i in range(shape.n_layer):
        for name, size in (("attn_norm", shape.n_embd), ("ffn_norm", shape.n_embd)):
            writer.add_tensor(f"blk.{i}.{name}.weight", np.ones(size, np.float32))
        for name in ("attn_q_norm", "attn_k_norm"):
            writer.add_tensor(f"blk.{i}.{name}.weight", np.ones(shape.n_head_dim, np.float32))
        for name, n_out, n_in in (
            ("attn_q", shape.n_head * shape.n_head_dim, shape.n_embd),
            ("attn_k", shape.n_head_kv * shape.n_head_dim, shape.n_embd),
            ("attn_v", shape.n_head_kv * shape.n_head_dim, shape.n_embd),
            ("attn_output", shape.n_embd, shape.n_head * shape.n_head_dim),
            ("ffn_gate", shape.n_ff, shape.n_embd),
            ("ffn_up", shape.n_ff, shape.n_embd),
            ("ffn_down", shape.n_embd, shape.n_ff),
        ):
            writer.add_tensor(f"blk.{i}.{name}.weight", weights(n_out, n_in))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if sys.argv[1] == "--thin":
        write(Path(sys.argv[2]), shape=THIN)
    else:
        write(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
