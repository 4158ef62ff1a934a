"""Small BERT models with random weights: one that embeds, and one that ranks a document for a query."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from tests.upstream.vocabulary import Vocabulary

N_EMBD = 32
N_FF = 64
N_HEAD = 2
N_LAYER = 2
CONTEXT_LENGTH = 512


def write_encoder(path: Path, vocabulary: Vocabulary, pooling: gguf.PoolingType, seed: int) -> Path:
    """BERT with this pooling; RANK adds the classifier with one output."""
    model = _Encoder(path, seed)
    vocabulary.add_to(model.writer)
    model.add_sizes(pooling)
    model.add_random("token_embd.weight", len(vocabulary.tokens), N_EMBD)
    model.add_random("token_types.weight", 2, N_EMBD)
    model.add_random("position_embd.weight", CONTEXT_LENGTH, N_EMBD)
    model.add_norm("token_embd_norm")
    for i in range(N_LAYER):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            model.add_linear(f"blk.{i}.{name}", N_EMBD, N_EMBD)
        model.add_linear(f"blk.{i}.ffn_up", N_FF, N_EMBD)
        model.add_linear(f"blk.{i}.ffn_down", N_EMBD, N_FF)
        model.add_norm(f"blk.{i}.attn_output_norm")
        model.add_norm(f"blk.{i}.layer_output_norm")
    if pooling is gguf.PoolingType.RANK:
        model.add_linear("cls", N_EMBD, N_EMBD)
        model.add_linear("cls.output", 1, N_EMBD)
    return model.finish()


class _Encoder:
    """A file in the making."""

    def __init__(self, path: Path, seed: int) -> None:
        self.writer = gguf.GGUFWriter(path, "bert")
        self._path = path
        self._random = np.random.default_rng(seed)

    def add_sizes(self, pooling: gguf.PoolingType) -> None:
        self.writer.add_context_length(CONTEXT_LENGTH)
        self.writer.add_embedding_length(N_EMBD)
        self.writer.add_feed_forward_length(N_FF)
        self.writer.add_block_count(N_LAYER)
        self.writer.add_head_count(N_HEAD)
        self.writer.add_layer_norm_eps(1e-6)
        self.writer.add_causal_attention(False)
        self.writer.add_pooling_type(pooling)

    def add_random(self, name: str, *shape: int) -> None:
        self.writer.add_tensor(name, self._random.normal(0, 0.5, shape).astype(np.float32))

    def add_linear(self, name: str, n_out: int, n_in: int) -> None:
        self.add_random(f"{name}.weight", n_out, n_in)
        self.add_random(f"{name}.bias", n_out)

    def add_norm(self, name: str) -> None:
        self.writer.add_tensor(f"{name}.weight", np.ones(N_EMBD, np.float32))
        self.add_random(f"{name}.bias", N_EMBD)

    def finish(self) -> Path:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        return self._path
