"""A small Gemma 2 with random weights and another model's vocabulary: every second layer has a window."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

WINDOW = 32
N_EMBD = 32
N_LAYER = 2
_NORMS = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
_SQUARES = ("attn_q", "attn_k", "attn_v", "attn_output")


def write_window_model(path: Path, vocabulary_from: Path) -> Path:
    """Write the model; the tokenizer is that of another file."""
    source = gguf.GGUFReader(vocabulary_from)
    random = np.random.default_rng(11)
    writer = gguf.GGUFWriter(path, "gemma2")
    writer.add_context_length(1024)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(N_LAYER)
    writer.add_feed_forward_length(2 * N_EMBD)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_sliding_window(WINDOW)
    writer.add_layer_norm_rms_eps(1e-6)
    for name, field in source.fields.items():
        if name.startswith("tokenizer.ggml."):
            kind = field.types[0]
            inner = field.types[-1] if kind is gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kind, inner)
    n_vocab = len(source.fields["tokenizer.ggml.tokens"].data)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name + ".weight", random.normal(0, 0.5, shape).astype(np.float32))

    add("token_embd", n_vocab, N_EMBD)
    add("output_norm", N_EMBD)
    for i in range(N_LAYER):
        for norm in _NORMS:
            add(f"blk.{i}.{norm}", N_EMBD)
        for square in _SQUARES:
            add(f"blk.{i}.{square}", N_EMBD, N_EMBD)
        for wide in ("ffn_gate", "ffn_up"):
            add(f"blk.{i}.{wide}", 2 * N_EMBD, N_EMBD)
        add(f"blk.{i}.ffn_down", N_EMBD, 2 * N_EMBD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
