"""What the states of a model load depend on, as a digest: those of another model or of other settings are not its own.

Any thread; blocks to read a few MiB of each file.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

N_SAMPLES, SAMPLE_BYTES = 64, 64 * 1024
_FIRST_OF_SEVERAL = re.compile(r"-00001-of-(\d{5})\.gguf$")


def origin_of(files: list[str], settings: str) -> bytes:
    """Of models, adapters and the like, by size, time and samples of their content. Raises OSError."""
    digest = hashlib.sha256(settings.encode())
    for name in files:
        for path in _parts(name):
            _add(digest, path)
    return digest.digest()


def _parts(name: str) -> Iterator[str]:
    """A model may be in several files, of which the first is named."""
    several = _FIRST_OF_SEVERAL.search(name)
    if several is None:
        yield name
        return
    for i in range(int(several[1])):
        yield f"{name[: several.start()]}-{i + 1:05}-of-{several[1]}.gguf"


def _add(digest: hashlib._Hash, path: str) -> None:
    with Path(path).open("rb") as file:
        about = os.fstat(file.fileno())
        digest.update(f"{about.st_size} {about.st_mtime_ns}".encode())
        for i in range(N_SAMPLES):
            file.seek(about.st_size * i // N_SAMPLES)
            digest.update(file.read(SAMPLE_BYTES))
