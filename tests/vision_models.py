"""Small models that see, with random weights and a vocabulary of letters: each a text model and the encoder for it.

One is like Gemma 3: every image takes 16 tokens and as many positions, which attend to each other, and half of the
layers have a window. The other is like Qwen2-VL: an image takes as many tokens as its size asks for, and with M-RoPE
fewer positions. What they say depends on what they see, and means nothing.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

LETTERS = "".join(map(chr, range(32, 127)))
N_EMBD = 64
N_FF = 128
N_HEAD = 2
N_CTX = 4096
WINDOW = 128
N_EYES = 32  # the encoder's width
N_EYES_FF = 64
N_GEMMA_IMAGE_TOKENS = 16
_QWEN_PATCH, _QWEN_MERGE = 4, 2


@dataclass(frozen=True)
class VisionModel:
    """Two files, and the arguments that load both."""

    model: Path
    mmproj: Path

    @property
    def argv(self) -> list[str]:
        return ["-m", str(self.model), "--mmproj", str(self.mmproj)]


def write_gemma_like(folder: Path) -> VisionModel:
    """Two layers of Gemma 3 and its encoder."""
    text = ModelFile(folder / "gemma.gguf", "gemma3", seed=1)
    add_text_model(text)
    text.writer.add_key_length(N_EMBD // N_HEAD)
    text.writer.add_value_length(N_EMBD // N_HEAD)
    text.writer.add_sliding_window(WINDOW)
    text.writer.add_sliding_window_pattern([True, False])
    for i in range(2):
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            text.ones(f"blk.{i}.{name}.weight", N_EMBD)
        for name in ("attn_q_norm", "attn_k_norm"):
            text.ones(f"blk.{i}.{name}.weight", N_EMBD // N_HEAD)
    return VisionModel(text.finish(), write_gemma_eyes(folder / "gemma-mmproj.gguf", Eyes()))


@dataclass(frozen=True)
class Eyes:
    """The sizes of an encoder like Gemma 3's: images of `image_size` pixels a side, in patches, `merge` a side of which
    make a token."""

    width: int = N_EYES
    n_ff: int = N_EYES_FF
    n_layers: int = 1
    n_heads: int = 2
    image_size: int = 64
    patch: int = 8
    merge: int = 2
    n_embd: int = N_EMBD  # of the model that it is for


def write_gemma_eyes(path: Path, sizes: Eyes) -> Path:
    """The encoder alone, for any model of its width."""
    return gemma_eyes(path, sizes).finish()


def gemma_eyes(path: Path, sizes: Eyes, projector_key: str = "clip.projector_type") -> ModelFile:
    """The same, to which more can be added."""
    eyes = _eyes(path, "gemma3", sizes, projector_key)
    eyes.writer.add_uint32("clip.vision.projector.scale_factor", sizes.merge)
    eyes.random("v.patch_embd.weight", sizes.width, 3, sizes.patch, sizes.patch)
    eyes.random("v.patch_embd.bias", sizes.width)
    eyes.random("v.position_embd.weight", (sizes.image_size // sizes.patch) ** 2, sizes.width)
    eyes.ones("mm.soft_emb_norm.weight", sizes.width)
    eyes.random("mm.input_projection.weight", sizes.width, sizes.n_embd)
    return eyes


def write_qwen_like(folder: Path) -> VisionModel:
    """Two layers of Qwen2-VL and its encoder."""
    text = ModelFile(folder / "qwen.gguf", "qwen2vl", seed=2)
    add_text_model(text)
    text.writer.add_rope_dimension_sections([4, 6, 6, 0])
    for i in range(2):
        for name in ("attn_norm", "ffn_norm"):
            text.ones(f"blk.{i}.{name}.weight", N_EMBD)
        for name in ("attn_q", "attn_k", "attn_v"):
            text.random(f"blk.{i}.{name}.bias", N_EMBD)
    eyes = _eyes(folder / "qwen-mmproj.gguf", "qwen2vl_merger", Eyes(image_size=32, patch=_QWEN_PATCH))
    eyes.random("v.patch_embd.weight", N_EYES, 3, _QWEN_PATCH, _QWEN_PATCH)
    eyes.random("v.patch_embd.weight.1", N_EYES, 3, _QWEN_PATCH, _QWEN_PATCH)
    n_merged = N_EYES * _QWEN_MERGE**2
    eyes.random("mm.0.weight", n_merged, n_merged)
    eyes.random("mm.0.bias", n_merged)
    eyes.random("mm.2.weight", N_EMBD, n_merged)
    eyes.random("mm.2.bias", N_EMBD)
    return VisionModel(text.finish(), eyes.finish())


WRITERS: dict[str, Callable[[Path], VisionModel]] = {"gemma": write_gemma_like, "qwen": write_qwen_like}


def n_qwen_tokens(width: int, height: int) -> int:
    """Of an image whose sides are multiples of 8 pixels."""
    side = _QWEN_PATCH * _QWEN_MERGE
    return (width // side) * (height // side)


def n_qwen_positions(width: int, height: int) -> int:
    """Of the same image: its longer side."""
    return max(width, height) // (_QWEN_PATCH * _QWEN_MERGE)


def png(width: int, height: int, seed: int = 0) -> bytes:
    """An image file: coloured squares that depend on the seed."""
    squares = np.random.default_rng(seed).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
    pixels = squares.repeat(8, axis=0).repeat(8, axis=1)[:height, :width]
    return png_of(width, height, b"".join(b"\0" + row.tobytes() for row in pixels))


def png_of(width: int, height: int, rows: bytes) -> bytes:
    """A PNG file that says it has this size, and has these bytes in it."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(rows, 9))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


class ModelFile:
    """A GGUF file in the making."""

    def __init__(self, path: Path, architecture: str, seed: int) -> None:
        self.writer = gguf.GGUFWriter(path, architecture)
        self._path = path
        self._random = np.random.default_rng(seed)

    def random(self, name: str, *shape: int, n_silent: int = 0, dtype: type = np.float32) -> None:
        """`n_silent`: so many rows of it are zero."""
        values: np.ndarray[Any, Any] = self._random.normal(0, 0.3, shape).astype(dtype)
        values[:n_silent] = 0.0
        self.writer.add_tensor(name, values)

    def ones(self, name: str, *shape: int) -> None:
        self.writer.add_tensor(name, np.ones(shape, np.float32))

    def finish(self) -> Path:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        return self._path


def _add_vocabulary(writer: gguf.GGUFWriter) -> int:
    """SentencePiece with a token for every printable letter, and one for every byte, which the models never say.
    Returns how many there are."""
    special = [("<unk>", gguf.TokenType.UNKNOWN), ("<s>", gguf.TokenType.CONTROL), ("</s>", gguf.TokenType.CONTROL)]
    bytewise = [(f"<0x{i:02X}>", gguf.TokenType.BYTE) for i in range(256)]
    letters = [(letter.replace(" ", "▁"), gguf.TokenType.NORMAL) for letter in LETTERS]
    tokens = [*special, *bytewise, *letters]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([kind for _, kind in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    return len(tokens)


def add_text_model(file: ModelFile) -> None:
    """The vocabulary, sizes, and what all layers have."""
    n_vocab = _add_vocabulary(file.writer)
    file.writer.add_context_length(N_CTX)
    file.writer.add_embedding_length(N_EMBD)
    file.writer.add_feed_forward_length(N_FF)
    file.writer.add_block_count(2)
    file.writer.add_head_count(N_HEAD)
    file.writer.add_head_count_kv(N_HEAD)
    file.writer.add_layer_norm_rms_eps(1e-6)
    file.random("token_embd.weight", n_vocab, N_EMBD)
    file.random("output.weight", n_vocab, N_EMBD, n_silent=n_vocab - len(LETTERS))
    file.ones("output_norm.weight", N_EMBD)
    for i in range(2):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            file.random(f"blk.{i}.{name}.weight", N_EMBD, N_EMBD)
        for name in ("ffn_gate", "ffn_up"):
            file.random(f"blk.{i}.{name}.weight", N_FF, N_EMBD)
        file.random(f"blk.{i}.ffn_down.weight", N_EMBD, N_FF)


def _eyes(path: Path, projector: str, sizes: Eyes, projector_key: str = "clip.projector_type") -> ModelFile:
    """An encoder without what its kind has of its own."""
    file = ModelFile(path, "clip", seed=3)
    file.writer.add_bool("clip.has_vision_encoder", True)
    file.writer.add_string(projector_key, projector)
    file.writer.add_bool("clip.use_gelu", True)
    for name, value in (
        ("embedding_length", sizes.width),
        ("feed_forward_length", sizes.n_ff),
        ("block_count", sizes.n_layers),
        ("attention.head_count", sizes.n_heads),
        ("projection_dim", sizes.n_embd),
        ("image_size", sizes.image_size),
        ("patch_size", sizes.patch),
    ):
        file.writer.add_uint32(f"clip.vision.{name}", value)
    file.writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    for name in ("image_mean", "image_std"):
        file.writer.add_array(f"clip.vision.{name}", [0.5, 0.5, 0.5])
    for i in range(sizes.n_layers):
        _add_layer(file, f"v.blk.{i}", sizes)
    file.ones("v.post_ln.weight", sizes.width)
    file.random("v.post_ln.bias", sizes.width)
    return file


def _add_layer(file: ModelFile, name: str, sizes: Eyes) -> None:
    for norm in ("ln1", "ln2"):
        file.ones(f"{name}.{norm}.weight", sizes.width)
        file.random(f"{name}.{norm}.bias", sizes.width)
    for part, n_out, n_in in (
        ("attn_q", sizes.width, sizes.width),
        ("attn_k", sizes.width, sizes.width),
        ("attn_v", sizes.width, sizes.width),
        ("attn_out", sizes.width, sizes.width),
        ("ffn_up", sizes.n_ff, sizes.width),
        ("ffn_down", sizes.width, sizes.n_ff),
    ):
        file.random(f"{name}.{part}.weight", n_out, n_in)
        file.random(f"{name}.{part}.bias", n_out)
