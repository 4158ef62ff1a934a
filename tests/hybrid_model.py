"""A small LFM2 with random weights and another model's vocabulary: one layer attends, the other is recurrent."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

N_EMBD = 64
N_HEADS = 2
N_CONV = 3
_WIDE = ("ffn_gate", "ffn_up")


def write_hybrid_model(path: Path, vocabulary_from: Path) -> Path:
    """Write the model; the tokenizer is that of another file."""
    source = gguf.GGUFReader(vocabulary_from)
    writer = gguf.GGUFWriter(path, "lfm2")
    _add_shape(writer)
    for name, field in source.fields.items():
        if name.startswith("tokenizer.ggml."):
            inner = field.types[-1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    n_vocab = len(source.fields["tokenizer.ggml.tokens"].data)
    writer.add_vocab_size(n_vocab)
    _add_weights(writer, n_vocab)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_shape(writer: gguf.GGUFWriter) -> None:
    writer.add_context_length(1024)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(2)
    writer.add_feed_forward_length(2 * N_EMBD)
    writer.add_head_count(N_HEADS)
    writer.add_head_count_kv([N_HEADS, 0])  # none: a recurrent layer
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_shortconv_l_cache(N_CONV)


def _add_weights(writer: gguf.GGUFWriter, n_vocab: int) -> None:
    random = np.random.default_rng(5)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name + ".weight", random.normal(0, 0.3, shape).astype(np.float32))

    add("token_embd", n_vocab, N_EMBD)
    add("token_embd_norm", N_EMBD)
    for i in range(2):
        for norm in ("attn_norm", "ffn_norm"):
            add(f"blk.{i}.{norm}", N_EMBD)
        for wide in _WIDE:
            add(f"blk.{i}.{wide}", 2 * N_EMBD, N_EMBD)
        add(f"blk.{i}.ffn_down", N_EMBD, 2 * N_EMBD)
    for norm in ("attn_q_norm", "attn_k_norm"):
        add(f"blk.0.{norm}", N_EMBD // N_HEADS)
    for square in ("attn_q", "attn_k", "attn_v", "attn_output"):
        add(f"blk.0.{square}", N_EMBD, N_EMBD)
    add("blk.1.shortconv.in_proj", 3 * N_EMBD, N_EMBD)
    add("blk.1.shortconv.conv", N_EMBD, N_CONV)
    add("blk.1.shortconv.out_proj", N_EMBD, N_EMBD)
