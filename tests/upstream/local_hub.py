"""The repositories that upstream's router tests name: in a cache as the hub's clients keep it, and behind plain HTTP,
which is all that the tree's llama-server speaks here. The files are those of `local_models`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.download.look_alike import COMMIT, Hub
from tests.upstream.local_models import folder, local_file

CHAT = "the chat model"
CODE = "ggml-org/test-model-stories260K-infill"
# repository -> file of it -> the model that stands for it
Repositories = Mapping[str, Mapping[str, str]]
CACHED: Repositories = {
    "ggml-org/tinygemma3-GGUF": {"tinygemma3-Q8_0.gguf": CHAT},
    "ggml-org/test-model-stories260K": {"stories260K-F32.gguf": CHAT},
    CODE: {"stories260K-infill-F32.gguf": CODE},
}
DOWNLOADED: Repositories = {"ggml-org/test-model-router-download": {"stories-F16.gguf": CODE}}
PRESETS = "ggml-org/test-preset-ci"
PRESET_INI = b"""[tinygemma3-preset]
hf-repo = ggml-org/tinygemma3-GGUF

[stories260K-test]
hf-repo = ggml-org/test-model-stories260K
"""


@contextmanager
def serving(chat_model: Path) -> Iterator[Mapping[str, str]]:
    """The environment in which servers find the hub and a cache that is as new; after `local_models.write_all`."""
    cache = folder() / "hub-cache"
    shutil.rmtree(cache, ignore_errors=True)
    hub = Hub(None)
    for repository, files in CACHED.items():
        _put_into_cache(cache / f"models--{repository.replace('/', '--')}", files, chat_model)
    for repository, files in {**CACHED, **DOWNLOADED}.items():
        hub.repositories[repository] = {name: _file(model, chat_model).read_bytes() for name, model in files.items()}
    hub.repositories[PRESETS] = {"preset.ini": PRESET_INI}
    try:
        yield {"HF_ENDPOINT": hub.site.url, "LLAMA_CACHE": str(cache), "NO_PROXY": "localhost,127.0.0.1"}
    finally:
        hub.stop()


def _put_into_cache(place: Path, files: Mapping[str, str], chat_model: Path) -> None:
    snapshot, refs = place / "snapshots" / COMMIT, place / "refs"
    for made in (snapshot, refs):
        made.mkdir(parents=True)
    (refs / "main").write_text(COMMIT, encoding="ascii")
    for name, model in files.items():
        (snapshot / name).symlink_to(_file(model, chat_model))


def _file(model: str, chat_model: Path) -> Path:
    path = chat_model if model == CHAT else local_file(model)
    assert path is not None, f"{model} has no local file"
    return path
