"""Models of a few kilobytes with random weights and no vocabulary, for what depends on the kind of memory.

Written with the gguf package, from the tensors that each architecture's loader asks for.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

N_VOCAB = 64
N_EMBD = 32
N_LAYER = 2
WINDOW = 8  # tokens that a windowed layer sees

_random = np.random.default_rng(11)


def write_window_model(path: Path) -> Path:
    """Gemma 2: every second layer sees the last WINDOW tokens only."""
    writer = _writer(path, "gemma2")
    _add_attention_sizes(writer)
    writer.add_sliding_window(WINDOW)
    writer.add_layer_norm_rms_eps(1e-6)
    _add(writer, "output_norm.weight", N_EMBD)
    for i in range(N_LAYER):
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            _add(writer, f"blk.{i}.{name}.weight", N_EMBD)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            _add(writer, f"blk.{i}.{name}.weight", N_EMBD, N_EMBD)
        for name in ("ffn_gate", "ffn_up"):
            _add(writer, f"blk.{i}.{name}.weight", 2 * N_EMBD, N_EMBD)
        _add(writer, f"blk.{i}.ffn_down.weight", N_EMBD, 2 * N_EMBD)
    return _finish(writer, path)


def write_recurrent_model(path: Path) -> Path:
    """Mamba: a state per sequence instead of a cell per token."""
    inner, state, rank, kernel = 2 * N_EMBD, 4, 2, 4
    writer = _writer(path, "mamba")
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(kernel)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(rank)
    writer.add_layer_norm_rms_eps(1e-6)
    _add(writer, "output_norm.weight", N_EMBD)
    for i in range(N_LAYER):
        _add(writer, f"blk.{i}.attn_norm.weight", N_EMBD)
        _add(writer, f"blk.{i}.ssm_in.weight", 2 * inner, N_EMBD)
        _add(writer, f"blk.{i}.ssm_conv1d.weight", inner, kernel)
        _add(writer, f"blk.{i}.ssm_conv1d.bias", inner)
        _add(writer, f"blk.{i}.ssm_x.weight", rank + 2 * state, inner)
        _add(writer, f"blk.{i}.ssm_dt.weight", inner, rank)
        _add(writer, f"blk.{i}.ssm_dt.bias", inner)
        writer.add_tensor(f"blk.{i}.ssm_a", -np.ones((inner, state), np.float32))
        _add(writer, f"blk.{i}.ssm_d", inner)
        _add(writer, f"blk.{i}.ssm_out.weight", N_EMBD, inner)
    return _finish(writer, path)


def write_encoder_model(path: Path) -> Path:
    """BERT: no memory at all."""
    writer = _writer(path, "bert")
    _add_attention_sizes(writer)
    writer.add_layer_norm_eps(1e-6)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_token_type_count(2)
    _add(writer, "token_types.weight", 2, N_EMBD)
    _add(writer, "position_embd.weight", 64, N_EMBD)
    for part in ("weight", "bias"):
        _add(writer, f"token_embd_norm.{part}", N_EMBD)
        for i in range(N_LAYER):
            for name in ("attn_output_norm", "layer_output_norm"):
                _add(writer, f"blk.{i}.{name}.{part}", N_EMBD)
            for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
                _add(writer, f"blk.{i}.{name}.{part}", *((N_EMBD, N_EMBD) if part == "weight" else (N_EMBD,)))
            _add(writer, f"blk.{i}.ffn_up.{part}", *((2 * N_EMBD, N_EMBD) if part == "weight" else (2 * N_EMBD,)))
            _add(writer, f"blk.{i}.ffn_down.{part}", *((N_EMBD, 2 * N_EMBD) if part == "weight" else (N_EMBD,)))
    return _finish(writer, path)


def _writer(path: Path, architecture: str) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(512 if architecture != "bert" else 64)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(N_LAYER)
    writer.add_vocab_size(N_VOCAB)
    writer.add_tokenizer_model("no_vocab")
    _add(writer, "token_embd.weight", N_VOCAB, N_EMBD)
    return writer


def _add_attention_sizes(writer: gguf.GGUFWriter) -> None:
    writer.add_feed_forward_length(2 * N_EMBD)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)


def _add(writer: gguf.GGUFWriter, name: str, *shape: int) -> None:
    writer.add_tensor(name, _random.normal(0, 0.5, shape).astype(np.float32))


def _finish(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
