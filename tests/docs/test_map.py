"""The map in ARCHITECTURE.md names every file of the source, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, section, text_of

# Their folder's own line stands for these.
WITHOUT_LINE = {"__init__.py", "py.typed"}
SOURCES = {".py", ".c", ".cpp", ".cu", ".h", ".hpp", ".html", ".css", ".js", ".txt", ""}
NO_SOURCE = {"__pycache__"}
MAPPED = ("pyggml", "server", "native", "build_support", "scripts", "examples", "plugins")


def entries(text: str) -> dict[str, str]:
    """What the map says of each path, as `folder/name`; a folder among the entries ends with a slash."""
    found: dict[str, str] = {}
    folder = ""
    for line in section(text, "The map").splitlines():
        if heading := re.match(r"### `(.+/)`$", line):
            folder = heading[1]
        elif entry := re.match(r"- `(.+?)`: (.+)$", line):
            assert folder + entry[1] not in found, f"{folder}{entry[1]} has two lines"
            found[folder + entry[1]] = entry[2]
    return found


def files_under(root: Path, folder: str) -> set[str]:
    inside = (path for path in (root / folder).rglob("*") if path.is_file() and path.suffix in SOURCES)
    relative = (path.relative_to(root) for path in inside if path.name not in WITHOUT_LINE)
    return {path.as_posix() for path in relative if not is_outside(path)}


def is_outside(path: Path) -> bool:
    """Folders that tools leave behind."""
    return any(part in NO_SOURCE or part.startswith(".") or part.endswith(".egg-info") for part in path.parts)


def missing_and_stale(text: str, files: set[str]) -> tuple[set[str], set[str]]:
    """Files that the map leaves out, and entries that are no file."""
    mapped = set(entries(text))
    return files - mapped, mapped - files


@pytest.mark.parametrize("folder", MAPPED)
def test_every_file_has_a_line_and_every_line_a_file(folder: str) -> None:
    mapped = {path: line for path, line in entries(text_of("ARCHITECTURE.md")).items() if path.startswith(f"{folder}/")}
    files = files_under(ROOT, folder)
    assert files - set(mapped) == set(), "ARCHITECTURE.md has no line for these"
    assert set(mapped) - files == set(), "ARCHITECTURE.md names these, which are not there"


def test_every_folder_of_tests_has_a_line_and_every_line_a_folder() -> None:
    mapped = {path for path in entries(text_of("ARCHITECTURE.md")) if path.startswith("tests/")}
    relative = (path.relative_to(ROOT) for path in (ROOT / "tests").glob("*/**/*") if path.is_file())
    folders = {f"tests/{path.parts[1]}/" for path in relative if not is_outside(path)}
    assert folders - mapped == set(), "ARCHITECTURE.md has no line for these"
    assert mapped - folders == set(), "ARCHITECTURE.md names these, which are not there"


def test_the_map_has_lines_for_nothing_else() -> None:
    outside = {path for path in entries(text_of("ARCHITECTURE.md")) if path.split("/")[0] not in {*MAPPED, "tests"}}
    assert outside == set()


def test_a_new_file_and_a_removed_file_are_both_noticed(tmp_path: Path) -> None:
    for name in ("kept.py", "new.py", "__init__.py", "module.so"):
        (tmp_path / "pyggml" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "pyggml" / name).touch()
    text = "## The map\n\n### `pyggml/`\n\n- `kept.py`: stays\n- `gone.py`: was here\n"
    assert missing_and_stale(text, files_under(tmp_path, "pyggml")) == ({"pyggml/new.py"}, {"pyggml/gone.py"})


ENGINE = ROOT / "server/pyggml_server/engine"
ROOMS = sorted(path.parent.name for path in ENGINE.glob("*/__init__.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_rooms_line_is_its_docstring_and_the_table_of_rooms_has_a_row_for_it(room: str) -> None:
    text = text_of("ARCHITECTURE.md")
    docstring = ast.get_docstring(ast.parse((ENGINE / room / "__init__.py").read_text()))
    assert f"### `server/pyggml_server/engine/{room}/`\n{docstring}\n" in text
    assert re.search(rf"^\| `{room}/` \| .+ \| .+ \|$", section(text, "The rooms of the engine"), re.M)


def test_the_table_of_rooms_has_rows_for_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)/` \|", section(text_of("ARCHITECTURE.md"), "The rooms of the engine"), re.M)
    assert sorted(rows) == ROOMS


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_path_into_the_server_is_a_file(name: str) -> None:
    paths = re.findall(r"`((?:engine|planner|web|native)/[\w/]+\.(?:py|cpp))`", text_of(name))
    assert paths
    for path in paths:
        assert (ROOT / "server/pyggml_server" / path).is_file() or (ROOT / path).is_file(), path
