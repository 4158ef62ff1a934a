"""The archive: fetched once, checked before use, and refused with one clear message when it is not the pinned one."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from build_support.build_error import BuildError
from build_support.pin import Pin, read_pin
from build_support.source import archive_of, fetch_with_pip, sha256_of, unpack_tree
from tests.build.conftest import FILES, Clone, write_archive

OTHER = "0" * 64


def test_a_wrong_hash_names_both_hashes_and_keeps_nothing(clone: Clone) -> None:
    wrong = replace(clone.pin, sha256=OTHER)
    clone.layout.pin_file.write_text(wrong.to_json())
    for _ in range(2):
        with pytest.raises(BuildError, match=rf"{sha256_of(clone.served)}, .*pin\.json says {OTHER}(.|\n)*remedy"):
            clone.ensure()
    assert clone.n_fetches == 2
    assert [path.name for path in clone.layout.vendor.iterdir()] == ["pin.json"]


def test_an_archive_that_was_damaged_since_is_fetched_again(clone: Clone) -> None:
    kept = archive_of(clone.pin, clone.layout.vendor, clone.fetch)
    kept.write_bytes(b"cut short")
    assert sha256_of(archive_of(clone.pin, clone.layout.vendor, clone.fetch)) == clone.pin.sha256
    assert clone.n_fetches == 2


def test_a_cut_archive_leaves_no_folder(tmp_path: Path) -> None:
    whole = write_archive(tmp_path / "whole.tar.gz", {**FILES, "big": "".join(map(str, range(9999)))})
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(whole.read_bytes()[:4000])
    with pytest.raises(BuildError, match=r"cut\.tar\.gz cannot be unpacked"):
        unpack_tree(cut, tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


def test_an_archive_without_a_tree_says_so(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "empty.tar.gz", FILES, inside="docs")
    with pytest.raises(BuildError, match=r"has no vendor/llama\.cpp/CMakeLists\.txt"):
        unpack_tree(archive, tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


def pip_that(monkeypatch: pytest.MonkeyPatch, code: int, says: str, leaves: bytes | None = None) -> list[list[str]]:
    """Puts a fake pip in place; returns the commands that it was given, with the requirement file's text at the end."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        folder = Path(command[command.index("--dest") + 1])
        commands.append([*command, Path(command[-1]).read_text()])
        if leaves is not None:
            (folder / "some.tar.gz").write_bytes(leaves)
        return subprocess.CompletedProcess(command, code, stdout=says)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_pip_is_given_the_hash_so_that_it_checks_before_it_runs_anything(
    clone: Clone, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands = pip_that(monkeypatch, 0, "", leaves=b"x")
    (tmp_path / "empty").mkdir()
    assert fetch_with_pip(clone.pin, tmp_path / "empty").name == "some.tar.gz"
    assert commands[0][-1] == f"llama-cpp-python==1.2.3 --hash=sha256:{clone.pin.sha256}\n"
    assert "--no-deps" in commands[0]


def test_a_hash_that_pip_refuses_gives_the_same_message(
    clone: Clone, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pip_that(
        monkeypatch, 1, f"ERROR: THESE PACKAGES DO NOT MATCH THE HASHES\n  Expected sha256 a\n  Got        {OTHER}\n"
    )
    with pytest.raises(BuildError, match=rf"has sha256 {OTHER}, vendor/ggml/pin\.json says {clone.pin.sha256}"):
        fetch_with_pip(clone.pin, tmp_path)


def test_without_a_network_the_last_words_of_pip_and_a_remedy_are_shown(
    clone: Clone, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pip_that(monkeypatch, 1, "ERROR: No matching distribution found for llama-cpp-python")
    with pytest.raises(BuildError, match=r"No matching distribution(.|\n)*remedy: check the network"):
        fetch_with_pip(clone.pin, tmp_path)


@pytest.mark.parametrize("text", ["", "{}", '{"package": "x", "more": 1}', "not json"])
def test_a_pin_that_is_no_pin_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    (tmp_path / "pin.json").write_text(text)
    with pytest.raises(BuildError, match=r"pin\.json is not a usable pin"):
        read_pin(tmp_path / "pin.json")


def test_a_pin_survives_being_written_and_read(tmp_path: Path) -> None:
    pin = Pin("p", "1", "a" * 64, "c", 3, "0.1.2")
    (tmp_path / "pin.json").write_text(pin.to_json())
    assert read_pin(tmp_path / "pin.json") == pin
