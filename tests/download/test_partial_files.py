"""An unfinished download is continued with the version that it was begun with, and with no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyggml_server.download.partial_files import PartialFiles


@pytest.fixture
def partial(tmp_path: Path) -> Path:
    return tmp_path / "x.gguf.downloadInProgress"


def expecting(partial: Path) -> PartialFiles:
    files = PartialFiles()
    files.expect([str(partial.with_name("x.gguf"))])
    return files


def test_the_same_version_is_continued(partial: Path) -> None:
    expecting(partial).begin("x.gguf", '"1"')
    partial.write_bytes(b"half")
    expecting(partial).begin("x.gguf", '"1"')
    assert partial.read_bytes() == b"half"


@pytest.mark.parametrize("version", ['"2"', ""])
def test_another_version_begins_anew(partial: Path, version: str) -> None:
    expecting(partial).begin("x.gguf", '"1"')
    partial.write_bytes(b"half")
    expecting(partial).begin("x.gguf", version)
    assert not partial.exists()


def test_what_nobody_knows_the_version_of_begins_anew(partial: Path) -> None:
    partial.write_bytes(b"half")
    expecting(partial).begin("x.gguf", '"1"')
    assert not partial.exists()


def test_a_file_kept_under_another_name_is_found(partial: Path) -> None:
    partial.write_bytes(b"half")
    expecting(partial).begin("sha256:1", '"1"')
    assert not partial.exists()


def test_of_a_model_in_parts_each_has_its_own(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("x-1.gguf", "x-2.gguf")]
    files = PartialFiles()
    files.expect(map(str, paths))
    files.begin("x-1.gguf", '"1"')
    files.begin("unknown.gguf", '"1"')
    assert [path.name for path in tmp_path.iterdir()] == ["x-1.gguf.downloadInProgress.version"]
    files.finish()
    assert list(tmp_path.iterdir()) == []
