"""The SHA-256 of downloaded files, compared with what the hub or the registry says of them."""

from __future__ import annotations

import hashlib
import logging
import re
from pathlib import Path

from pyggml_server.download.ports import DownloadError, PlannedFile

log = logging.getLogger(__name__)

SHA256 = re.compile(r"[0-9a-f]{64}")


def check(file: PlannedFile) -> None:
    """Read the file and compare; a damaged one is removed. Blocks while it reads. Raises DownloadError."""
    if not SHA256.fullmatch(file.oid):
        return
    path = Path(file.path)
    log.info("checking the SHA-256 of %s", Path(file.final_path or file.path).name)
    with path.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found == file.oid:
        return
    for damaged in (Path(file.final_path or file.path), path):
        damaged.unlink(missing_ok=True)
    raise DownloadError(
        f"{path}: its SHA-256 is {found}, expected {file.oid}: the download was damaged and is removed; start again"
    )
