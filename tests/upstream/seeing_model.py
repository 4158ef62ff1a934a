"""A model that says what it sees: one word for images that are more red than blue, another, in two tokens, for others.

The encoder keeps the difference of the two colours of each patch and nothing else. The text model's attention looks at
everything alike, and writes what the image said of itself to where the output matrix reads the words.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from tests.upstream.vocabulary import Vocabulary

N_EMBD = 32
N_FF = 32
N_HEAD = 2
CONTEXT_LENGTH = 2048
IMAGE_SIZE, PATCH, MERGE = 64, 8, 2
RED, BLUE = 0, 2  # channels
IN_TEXT, IN_IMAGE, SEEN, HALF_SAID = 0, 1, 2, 3  # what the numbers of an embedding mean; the others are 0
GAIN = 100.0
GAIN_HALF_SAID = 1000.0  # what was begun is said to its end

Weights = npt.NDArray[np.float32]


def write_seeing_model(path: Path, vocabulary: Vocabulary, red_word: str, blue_word: tuple[str, str]) -> Path:
    """One layer of llama."""
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
    n_vocab = len(vocabulary.tokens)
    red, begin, end = (vocabulary.id_of(word) for word in (red_word, *blue_word))
    embeddings = {(..., IN_TEXT): 1.0, (begin, HALF_SAID): 1.0}
    words = {(red, SEEN): GAIN, (begin, SEEN): -GAIN, (end, HALF_SAID): GAIN_HALF_SAID}
    writer.add_tensor("token_embd.weight", _with((n_vocab, N_EMBD), embeddings))
    writer.add_tensor("output.weight", _with((n_vocab, N_EMBD), words))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(N_EMBD, np.float32))
    for name in ("attn_q", "attn_k"):
        writer.add_tensor(f"blk.0.{name}.weight", _with((N_EMBD, N_EMBD)))
    writer.add_tensor("blk.0.attn_v.weight", _with((N_EMBD, N_EMBD), {(0, IN_IMAGE): 1.0}))
    writer.add_tensor("blk.0.attn_output.weight", _with((N_EMBD, N_EMBD), {(SEEN, 0): 1.0}))
    for name in ("ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", _with((N_FF, N_EMBD)))
    return _finish(writer, path)


def write_colour_eyes(path: Path) -> Path:
    """Its encoder: like Gemma 3's, without a layer that does anything."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "gemma3")
    writer.add_bool("clip.use_gelu", True)
    for name, value in (
        ("embedding_length", N_EMBD),
        ("feed_forward_length", N_FF),
        ("block_count", 1),
        ("attention.head_count", N_HEAD),
        ("projection_dim", N_EMBD),
        ("image_size", IMAGE_SIZE),
        ("patch_size", PATCH),
        ("projector.scale_factor", MERGE),
    ):
        writer.add_uint32(f"clip.vision.{name}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    for name in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{name}", [0.5, 0.5, 0.5])
    colours = {(0, RED): 1.0, (0, BLUE): -1.0, (1, RED): -1.0, (1, BLUE): 1.0}  # a mean of 0, which the norm keeps
    writer.add_tensor("v.patch_embd.weight", _with((N_EMBD, 3, PATCH, PATCH), colours))
    writer.add_tensor("v.patch_embd.bias", _with((N_EMBD,)))
    writer.add_tensor("v.position_embd.weight", _with(((IMAGE_SIZE // PATCH) ** 2, N_EMBD)))
    for norm in ("v.blk.0.ln1", "v.blk.0.ln2", "v.post_ln"):
        writer.add_tensor(f"{norm}.weight", np.ones(N_EMBD, np.float32))
        writer.add_tensor(f"{norm}.bias", _with((N_EMBD,)))
    for name in ("attn_q", "attn_k", "attn_v", "attn_out", "ffn_up", "ffn_down"):
        writer.add_tensor(f"v.blk.0.{name}.weight", _with((N_EMBD, N_EMBD)))
        writer.add_tensor(f"v.blk.0.{name}.bias", _with((N_EMBD,)))
    writer.add_tensor("mm.soft_emb_norm.weight", np.ones(N_EMBD, np.float32))
    writer.add_tensor("mm.input_projection.weight", _with((N_EMBD, N_EMBD), {(0, IN_IMAGE): 1.0}))
    return _finish(writer, path)


def _with(shape: tuple[int, ...], values: Mapping[Any, float] | None = None) -> Weights:
    """Zeros but for these."""
    weights = np.zeros(shape, np.float32)
    for place, value in (values or {}).items():
        weights[place] = value
    return weights


def _finish(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
