"""Which file stands for which model of llama-server's own tests: those name models of a hub, which is not asked here.

The files are made once, under build/, from the tree's vocabularies; SmolLM2 is the one that ./scripts/test fetches.
A model that is not in the table has no local file, and the tests that need it are skipped.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
from filelock import FileLock

from build_support.layout import of_this_clone
from tests.upstream.chain_model import Chain, write_adapter, write_chain_model
from tests.upstream.encoder_model import write_encoder
from tests.upstream.seeing_model import write_colour_eyes, write_seeing_model
from tests.upstream.vocabulary import read_vocabulary

# the words that upstream's tests look for: without the adapter, and at the scales that they ask for
STORY = Chain(words=("▁little", "▁wise", "▁day"), adapted=((0.3, "▁special"), (0.7, "▁far"), (1.0, "▁love")))
CODE = Chain(words=("Ġsmall", "Ġspark"))
RANKING_SEED = 18  # one with which the ranker puts upstream's four documents in the order that its tests expect


@dataclass(frozen=True)
class LocalModel:
    """A file and how it is made; `write` gets the path."""

    file_name: str
    write: Callable[[Path], Path]


def _encoder(pooling: gguf.PoolingType, seed: int) -> Callable[[Path], Path]:
    return lambda path: write_encoder(path, read_vocabulary("bert-bge"), pooling, seed)


def _story(path: Path) -> Path:
    return write_chain_model(path, read_vocabulary("llama-spm"), STORY, has_experts=True)


def _story_adapter(path: Path) -> Path:
    return write_adapter(path, read_vocabulary("llama-spm"), STORY)


def _story_draft(path: Path) -> Path:
    return write_chain_model(path, read_vocabulary("llama-spm"), Chain(STORY.words))


def _code(path: Path) -> Path:
    return write_chain_model(path, read_vocabulary("refact"), CODE)


def _seeing(path: Path) -> Path:
    return write_seeing_model(path, read_vocabulary("llama-spm"), red_word="cat", blue_word=("▁fro", "g"))


SEEING = "ggml-org/tinygemma3-GGUF:Q8_0"
EYES = f"{SEEING}/mmproj"

# "repository/file of the hub", or the last part of an address, -> the file for it
WRITTEN: Mapping[str, LocalModel] = {
    "ggml-org/models/bert-bge-small/ggml-model-f16.gguf": LocalModel(
        "encoder.gguf", _encoder(gguf.PoolingType.CLS, seed=3)
    ),
    "ggml-org/models/jina-reranker-v1-tiny-en/ggml-model-f16.gguf": LocalModel(
        "ranker.gguf", _encoder(gguf.PoolingType.RANK, RANKING_SEED)
    ),
    "ggml-org/stories15M_MOE/stories15M_MOE-F16.gguf": LocalModel("story.gguf", _story),
    "moe_shakespeare15M.gguf": LocalModel("story-adapter.gguf", _story_adapter),
    "stories15M-q4_0.gguf": LocalModel("story-draft.gguf", _story_draft),
    SEEING: LocalModel("seeing.gguf", _seeing),
    EYES: LocalModel("seeing-mmproj.gguf", write_colour_eyes),
    "ggml-org/test-model-stories260K-infill": LocalModel("code.gguf", _code),
}
WRITERS = ("chain_model", "encoder_model", "local_models", "seeing_model", "vocabulary")
CHAT_MODELS = frozenset({"ggml-org/test-model-stories260K", "ggml-org/models/tinyllamas/stories260K.gguf"})


def folder() -> Path:
    """Where the written models are kept: a new place whenever the code that writes them has changed."""
    code = b"".join(Path(__file__).with_name(f"{name}.py").read_bytes() for name in WRITERS)
    return of_this_clone().build / f"upstream-models-{hashlib.sha256(code).hexdigest()[:8]}"


def write_all() -> None:
    """Make every file that is missing. Some seconds the first time; a file is never seen half-written."""
    folder().mkdir(parents=True, exist_ok=True)
    with FileLock(folder() / "lock"):
        for model in WRITTEN.values():
            path = folder() / model.file_name
            if not path.is_file():
                model.write(path.with_suffix(".part")).replace(path)


def local_file(name: str) -> Path | None:
    """The file that stands for a model of the hub, or None. `write_all` has made it."""
    if name in CHAT_MODELS:
        return Path(os.environ["PYGGML_TEST_MODEL"])
    model = WRITTEN.get(name)
    return folder() / model.file_name if model else None
