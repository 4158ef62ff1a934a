"""A damaged file is removed, and so is what leads to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyggml_server.download import checksum
from pyggml_server.download.ports import DownloadError, PlannedFile

from tests.download.look_alike import sha256


def linked_file(folder: Path, oid: str) -> PlannedFile:
    blob, link = folder / "blob", folder / "link.gguf"
    blob.write_bytes(b"content")
    link.symlink_to(blob)
    return PlannedFile("https://x", str(blob), str(link), oid)


@pytest.mark.parametrize("oid", [sha256(b"content"), "", "0" * 40])
def test_a_sound_file_and_one_without_a_known_hash_stay(tmp_path: Path, oid: str) -> None:
    file = linked_file(tmp_path, oid)
    checksum.check(file)
    assert Path(file.final_path).read_bytes() == b"content"


def test_a_damaged_file_goes_with_its_link(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="the download was damaged and is removed; start again"):
        checksum.check(linked_file(tmp_path, "1" * 64))
    assert list(tmp_path.iterdir()) == []
