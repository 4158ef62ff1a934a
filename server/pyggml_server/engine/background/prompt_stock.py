"""What a server finds in the folder of `--cache-disk` when it starts. Blocks to read the head of each file."""

from __future__ import annotations

import logging

import numpy as np

from pyggml_server.engine.background.piecewise_file import StateFileError
from pyggml_server.engine.background.prompt_file import PromptFile
from pyggml_server.engine.background.prompt_folder import PARTIAL, PromptFolder
from pyggml_server.engine.background.prompt_index import Entry, PromptIndex

log = logging.getLogger(__name__)

NO_TOKENS = np.empty(0, np.int32)


def take_stock(folder: PromptFolder, origin: bytes, index: PromptIndex) -> None:
    """Put what is there into the index, and remove what is damaged, half written, or too much. Raises StateFileError
    where that cannot be seen."""
    found: list[tuple[float, Entry]] = []
    n_damaged = 0
    for name in _names(folder):
        try:
            if name.endswith(PARTIAL):
                raise StateFileError("it was not finished")
            found.append(_seen(folder, name, origin))
        except StateFileError as error:
            log.debug("%s: %s", name, error)
            n_damaged += not name.endswith(PARTIAL)
            folder.remove(name)
    for _, entry in sorted(found, key=lambda pair: pair[0]):
        index.add(entry)
    for entry in index.trim():
        folder.remove(entry.name)
    if n_damaged:
        log.warning("%d files in %s were damaged and are removed", n_damaged, folder.path)


def _names(folder: PromptFolder) -> list[str]:
    try:
        return list(folder.names())
    except OSError as error:
        raise StateFileError(f"{folder.path} cannot be read: {error.strerror}") from error


def _seen(folder: PromptFolder, name: str, origin: bytes) -> tuple[float, Entry]:
    """When it was used last, and what it is."""
    head, tokens, used_s = PromptFile(folder, name, 0).read_head()
    if not name.startswith(folder.prefix + "-"):
        return used_s, Entry(name, head.n_bytes, None, NO_TOKENS)
    if head.origin != origin:
        raise StateFileError("it is of another model")
    return used_s, Entry(name, head.n_bytes, head, tokens)
