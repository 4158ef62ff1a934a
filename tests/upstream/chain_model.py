"""Small llama models that say fixed words in turn, and an adapter that makes them say others.

The words are spelled out in the weights: every token's embedding says which place of the chain it has, and the output
matrix answers each place with the next word. Attention and experts are there and add a little noise, so that all of
a model is computed and nothing of it decides. Text that such a model writes tells which adapter scale was in force.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from tests.upstream.vocabulary import Vocabulary

N_EMBD = 32
N_FF = 32
N_HEAD = 2
N_EXPERT = 4
CONTEXT_LENGTH = 2048
NOISE = 0.002
HIDDEN = 4.0  # each of the two ones of an embedding, after the norm: sqrt(N_EMBD / 2)
LOGIT = 24.0  # of the next word; the other tokens are around 0
ADAPTER_GAIN = 40.0
INVOCATION_KEY = "adapter.alora.invocation_tokens"

Weights = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Chain:
    """What a model says: `words` over and over; with an adapter at scale x, the word of the nearest scale in `adapted`.

    Words are tokens as the vocabulary spells them.
    """

    words: Sequence[str]
    adapted: Sequence[tuple[float, str]] = ()


def write_chain_model(path: Path, vocabulary: Vocabulary, chain: Chain, has_experts: bool = False) -> Path:
    """One layer of llama, or of its mixture of experts."""
    random = np.random.default_rng(5)
    writer = gguf.GGUFWriter(path, "llama")
    vocabulary.add_to(writer)
    writer.add_context_length(CONTEXT_LENGTH)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(N_FF)
    writer.add_block_count(1)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(N_EMBD // N_HEAD)
    if has_experts:
        writer.add_expert_count(N_EXPERT)
        writer.add_expert_used_count(2)
    writer.add_tensor("token_embd.weight", _embeddings(vocabulary, chain))
    writer.add_tensor("output.weight", _output(vocabulary, chain, random))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(N_EMBD, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        writer.add_tensor(f"blk.0.{name}.weight", _noise(random, N_EMBD, N_EMBD))
    _add_feed_forward(writer, random, has_experts)
    return _finish(writer, path)


def write_adapter(path: Path, vocabulary: Vocabulary, chain: Chain, invocation: Sequence[int] = ()) -> Path:
    """A LoRA adapter of rank 1 on the output: it raises each adapted word by a slope of its own.

    The logits over the scale are tangents of one parabola, so that each word wins around its own scale. With invocation
    tokens it is an activated one (aLoRA).
    """
    raise_by = np.zeros((len(vocabulary.tokens), 1), np.float32)
    for scale, word in chain.adapted:
        raise_by[vocabulary.id_of(word), 0] = 2 * scale * ADAPTER_GAIN / HIDDEN
    constant = np.zeros((1, N_EMBD), np.float32)
    constant[0, 0] = 1.0
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, 1.0)
    if invocation:
        writer.add_key_value(INVOCATION_KEY, list(invocation), gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT32)
    writer.add_tensor("output.weight.lora_a", constant)
    writer.add_tensor("output.weight.lora_b", raise_by)
    return _finish(writer, path)


def _embeddings(vocabulary: Vocabulary, chain: Chain) -> Weights:
    """A one in the first row for every token, and one for its place in the chain; strangers stand before its start."""
    embeddings = np.zeros((len(vocabulary.tokens), N_EMBD), np.float32)
    embeddings[:, 0] = 1.0
    places = {vocabulary.id_of(word): place for place, word in enumerate(chain.words)}
    for token in range(len(vocabulary.tokens)):
        embeddings[token, 1 + places.get(token, len(chain.words) - 1)] = 1.0
    return embeddings


def _output(vocabulary: Vocabulary, chain: Chain, random: np.random.Generator) -> Weights:
    output = _noise(random, len(vocabulary.tokens), N_EMBD)
    for place, word in enumerate(chain.words):
        output[vocabulary.id_of(word), 1 + (place - 1) % len(chain.words)] = LOGIT / HIDDEN
    for scale, word in chain.adapted:
        output[vocabulary.id_of(word), 0] = (LOGIT - ADAPTER_GAIN * scale**2) / HIDDEN
    return output


def _add_feed_forward(writer: gguf.GGUFWriter, random: np.random.Generator, has_experts: bool) -> None:
    experts = (N_EXPERT,) if has_experts else ()
    suffix = "_exps" if has_experts else ""
    if has_experts:
        writer.add_tensor("blk.0.ffn_gate_inp.weight", _noise(random, N_EXPERT, N_EMBD))
    for name in ("ffn_gate", "ffn_up"):
        writer.add_tensor(f"blk.0.{name}{suffix}.weight", _noise(random, *experts, N_FF, N_EMBD))
    writer.add_tensor(f"blk.0.ffn_down{suffix}.weight", _noise(random, *experts, N_EMBD, N_FF))


def _noise(random: np.random.Generator, *shape: int) -> Weights:
    return random.normal(0, NOISE, shape).astype(np.float32)


def _finish(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
