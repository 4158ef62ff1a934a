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
CHUNK = 8192  # llama.cpp's, for chunked windows

_random = np.random.default_rng(11)


def write_window_model(path: Path, has_full_layers: bool = True) -> Path:
    """Gemma 2: every second layer, or each, sees the last WINDOW tokens only."""
    writer = _writer(path, "gemma2")
    _add_attention_sizes(writer)
    writer.add_sliding_window(WINDOW)
    writer.add_sliding_window_pattern([True, not has_full_layers])
    writer.add_layer_norm_rms_eps(1e-6)
    _add(writer, "output_norm.weight", N_EMBD)
    for i in range(N_LAYER):
        for name in ("attn_norm", "post_attention_norm", "post_ffw_norm"):
            _add(writer, f"blk.{i}.{name}.weight", N_EMBD)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            _add(writer, f"blk.{i}.{name}.weight", N_EMBD, N_EMBD)
        _add_feed_forward(writer, i)
    return _finish(writer, path)


def write_chunked_model(path: Path) -> Path:
    """Llama 4: three of four layers see the tokens from the last multiple of CHUNK on only."""
    n_layer = 4
    writer = _writer(path, "llama4", n_layer)
    _add_attention_sizes(writer)
    writer.add_sliding_window_pattern([True, True, True, False])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(2)
    writer.add_expert_used_count(1)
    writer.add_expert_feed_forward_length(N_EMBD)
    writer.add_interleave_moe_layer_step(n_layer + 1)  # no layer has experts
    _add(writer, "output_norm.weight", N_EMBD)
    for i in range(n_layer):
        _add(writer, f"blk.{i}.attn_norm.weight", N_EMBD)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            _add(writer, f"blk.{i}.{name}.weight", N_EMBD, N_EMBD)
        _add_feed_forward(writer, i)
    return _finish(writer, path)


def write_windowed_hybrid_model(path: Path) -> Path:
    """LFM 2: a convolution, whose state moves from step to step, and a layer that sees the last WINDOW tokens only."""
    kernel = 3
    writer = _writer(path, "lfm2")
    writer.add_feed_forward_length(2 * N_EMBD)
    writer.add_head_count(2)
    writer.add_head_count_kv([0, 2])
    writer.add_sliding_window(WINDOW)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_shortconv_l_cache(kernel)
    _add(writer, "token_embd_norm.weight", N_EMBD)
    _add(writer, "blk.0.shortconv.conv.weight", N_EMBD, kernel)
    _add(writer, "blk.0.shortconv.in_proj.weight", 3 * N_EMBD, N_EMBD)
    _add(writer, "blk.0.shortconv.out_proj.weight", N_EMBD, N_EMBD)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        _add(writer, f"blk.1.{name}.weight", N_EMBD, N_EMBD)
    for name in ("attn_q_norm", "attn_k_norm"):
        _add(writer, f"blk.1.{name}.weight", N_EMBD // 2)
    for i in range(N_LAYER):
        _add(writer, f"blk.{i}.attn_norm.weight", N_EMBD)
        _add_feed_forward(writer, i)
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


def _writer(path: Path, architecture: str, n_layer: int = N_LAYER) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(512 if architecture != "bert" else 64)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(n_layer)
    writer.add_vocab_size(N_VOCAB)
    writer.add_tokenizer_model("no_vocab")
    _add(writer, "token_embd.weight", N_VOCAB, N_EMBD)
    return writer


def _add_attention_sizes(writer: gguf.GGUFWriter) -> None:
    writer.add_feed_forward_length(2 * N_EMBD)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)


def _add_feed_forward(writer: gguf.GGUFWriter, layer: int) -> None:
    _add(writer, f"blk.{layer}.ffn_norm.weight", N_EMBD)
    for name in ("ffn_gate", "ffn_up"):
        _add(writer, f"blk.{layer}.{name}.weight", 2 * N_EMBD, N_EMBD)
    _add(writer, f"blk.{layer}.ffn_down.weight", N_EMBD, 2 * N_EMBD)


def _add(writer: gguf.GGUFWriter, name: str, *shape: int) -> None:
    writer.add_tensor(name, _random.normal(0, 0.5, shape).astype(np.float32))


def _finish(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
