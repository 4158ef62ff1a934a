"""Writes a model of Qwen3-4B's shape with random weights: `python qwen3_4b_shape.py OUT.gguf [VOCABULARY.gguf]`.

8 GB, half a minute. 36 layers, 8 KV heads of 128: 144 KiB of f16 state per cell. Its text means nothing. It has a
tokenizer only if a file with one of 151,936 tokens is named (llama.cpp's models/ggml-vocab-qwen2.gguf).
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

N_LAYER = 36
N_EMBD = 2560
N_FF = 9728
N_HEAD = 32
N_HEAD_KV = 8
N_HEAD_DIM = 128
N_VOCAB = 151_936


def weights(*shape: int) -> npt.NDArray[np.float16]:
    """Small random numbers, one block repeated: drawing eight gigabytes takes longer than writing them."""
    block = (np.random.default_rng(sum(shape)).standard_normal(1 << 20) * 0.02).astype(np.float16)
    return np.resize(block, shape)


def add_vocabulary(writer: gguf.GGUFWriter, vocabulary: Path | None) -> None:
    """Copies the tokenizer of another file, or says that there is none."""
    if vocabulary is None:
        writer.add_vocab_size(N_VOCAB)
        writer.add_tokenizer_model("none")
        return
    for field in gguf.GGUFReader(vocabulary).fields.values():
        if field.name.startswith("tokenizer."):
            element = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], element)


def write(path: Path, vocabulary: Path | None = None) -> None:
    """Write the file."""
    writer = gguf.GGUFWriter(str(path), "qwen3")
    writer.add_context_length(32_768)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(N_LAYER)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD_KV)
    writer.add_key_length(N_HEAD_DIM)
    writer.add_value_length(N_HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1_000_000.0)
    add_vocabulary(writer, vocabulary)
    writer.add_tensor("token_embd.weight", weights(N_VOCAB, N_EMBD))
    writer.add_tensor("output_norm.weight", np.ones(N_EMBD, np.float32))
    for i in range(N_LAYER):
        for name, size in (("attn_norm", N_EMBD), ("ffn_norm", N_EMBD)):
            writer.add_tensor(f"blk.{i}.{name}.weight", np.ones(size, np.float32))
        for name in ("attn_q_norm", "attn_k_norm"):
            writer.add_tensor(f"blk.{i}.{name}.weight", np.ones(N_HEAD_DIM, np.float32))
        for name, n_out, n_in in (
            ("attn_q", N_HEAD * N_HEAD_DIM, N_EMBD),
            ("attn_k", N_HEAD_KV * N_HEAD_DIM, N_EMBD),
            ("attn_v", N_HEAD_KV * N_HEAD_DIM, N_EMBD),
            ("attn_output", N_EMBD, N_HEAD * N_HEAD_DIM),
            ("ffn_gate", N_FF, N_EMBD),
            ("ffn_up", N_FF, N_EMBD),
            ("ffn_down", N_EMBD, N_FF),
        ):
            writer.add_tensor(f"blk.{i}.{name}.weight", weights(n_out, n_in))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
