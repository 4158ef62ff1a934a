"""A small model that hears, with random weights, like Ultravox: two layers of Llama, and a Whisper encoder for it.

Half a minute of sound, begun or whole, takes 30 tokens. What it says depends on what it hears, and means nothing.
"""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.vision_models import (
    N_EMBD,
    WRITERS,
    Eyes,
    ModelFile,
    VisionModel,
    add_text_model,
    gemma_eyes,
    png,
    write_gemma_like,
)

N_EARS = 32  # the encoder's width
N_EARS_FF = 64
N_MEL = 80
N_FRAMES = 1500  # of half a minute
N_STACKED = 50  # frames in one token
N_TOKENS = N_FRAMES // N_STACKED
SECONDS_A_RUN = 30
SAMPLE_RATE = 16000


def write_ultravox_like(folder: Path) -> VisionModel:
    """Two layers of Llama and an encoder of sounds."""
    text = ModelFile(folder / "ultravox.gguf", "llama", seed=4)
    add_text_model(text)
    text.writer.add_rope_dimension_count(N_EMBD // 2)
    for i in range(2):
        for name in ("attn_norm", "ffn_norm"):
            text.ones(f"blk.{i}.{name}.weight", N_EMBD)
    return VisionModel(text.finish(), write_ears(folder / "ultravox-mmproj.gguf"))


def write_seeing_and_hearing(folder: Path) -> VisionModel:
    """Gemma's text model, and a file with both encoders."""
    file = gemma_eyes(folder / "both-mmproj.gguf", Eyes(), "clip.vision.projector_type")
    add_ears(file, "clip.audio.projector_type")
    return VisionModel(write_gemma_like(folder).model, file.finish())


MEDIA_WRITERS: dict[str, Callable[[Path], VisionModel]] = {**WRITERS, "ultravox": write_ultravox_like}


def file_for(props: bytes, seed: int) -> bytes:
    """An image, or a sound for a model that only hears, as /props tells."""
    return png(64, 48, seed) if json.loads(props)["modalities"]["vision"] else wav(0.2, seed)


def write_ears(path: Path) -> Path:
    """The encoder alone, for any model of this width."""
    ears = ModelFile(path, "clip", seed=5)
    add_ears(ears)
    return ears.finish()


def add_ears(file: ModelFile, projector_key: str = "clip.projector_type") -> None:
    """An encoder with one layer, in a file of its own or, with a key of its own, in one that has another encoder."""
    writer = file.writer
    writer.add_bool("clip.has_audio_encoder", True)
    writer.add_string(projector_key, "ultravox")
    if projector_key == "clip.projector_type":
        writer.add_bool("clip.use_gelu", True)
    for name, value in (
        ("embedding_length", N_EARS),
        ("feed_forward_length", N_EARS_FF),
        ("block_count", 1),
        ("attention.head_count", 2),
        ("projection_dim", N_EMBD),
        ("num_mel_bins", N_MEL),
        ("projector.stack_factor", N_STACKED),
    ):
        writer.add_uint32(f"clip.audio.{name}", value)
    writer.add_float32("clip.audio.attention.layer_norm_epsilon", 1e-5)
    file.random("a.conv1d.1.weight", N_EARS, N_MEL, 3, dtype=np.float16)
    file.random("a.conv1d.1.bias", N_EARS, 1)
    file.random("a.conv1d.2.weight", N_EARS, N_EARS, 3, dtype=np.float16)
    file.random("a.conv1d.2.bias", N_EARS, 1)
    file.random("a.position_embd.weight", N_FRAMES, N_EARS)
    for name in ("ln1", "ln2"):
        file.ones(f"a.blk.0.{name}.weight", N_EARS)
        file.random(f"a.blk.0.{name}.bias", N_EARS)
    for name, n_out, n_in in (
        ("attn_q", N_EARS, N_EARS),
        ("attn_k", N_EARS, N_EARS),
        ("attn_v", N_EARS, N_EARS),
        ("attn_out", N_EARS, N_EARS),
        ("ffn_up", N_EARS_FF, N_EARS),
        ("ffn_down", N_EARS, N_EARS_FF),
    ):
        file.random(f"a.blk.0.{name}.weight", n_out, n_in)
        if name != "attn_k":
            file.random(f"a.blk.0.{name}.bias", n_out)
    file.ones("a.post_ln.weight", N_EARS)
    file.random("a.post_ln.bias", N_EARS)
    n_stacked = N_EARS * N_STACKED
    file.ones("mm.a.norm_pre.weight", n_stacked)
    file.random("mm.a.mlp.1.weight", 2 * N_EARS, n_stacked)
    file.ones("mm.a.norm_mid.weight", N_EARS)
    file.random("mm.a.mlp.2.weight", N_EMBD, N_EARS)


def wav(seconds: float, seed: int = 0, rate: int = SAMPLE_RATE, n_channels: int = 1) -> bytes:
    """A sound file: a chord that depends on the seed, in 16 bits."""
    at = np.arange(int(seconds * rate)) / rate
    tones = np.random.default_rng(seed).uniform(100, 3000, 3)
    samples = (sum(np.sin(2 * np.pi * tone * at) for tone in tones) * 8000).astype("<i2")
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(n_channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.repeat(n_channels).tobytes())
    return out.getvalue()
