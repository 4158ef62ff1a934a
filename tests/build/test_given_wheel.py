"""A wheel takes the place of a build only if it was made from the same Python files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from build_support.build_error import BuildError
from build_support.given_wheel import refuse_other_sources


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("pyggml/model.py", "server/pyggml_server/app.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(f"# {name}\n")
    return tmp_path


def wheel_of(root: Path, **changed: str) -> Path:
    """A wheel with the Python files below `root`; `changed` are contents for `pyggml/NAME.py`, empty for left out."""
    path = root / "pyggml-0-any.whl"
    files = {f"pyggml/{file.name}": file.read_text() for file in (root / "pyggml").glob("*.py")}
    files |= {"pyggml_server/app.py": (root / "server/pyggml_server/app.py").read_text()}
    files |= {f"pyggml/{name}.py": text for name, text in changed.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            if text:
                archive.writestr(name, text)
        archive.writestr("pyggml-0.dist-info/METADATA", "not compared")
    return path


def test_a_wheel_of_the_same_files_is_taken(root: Path) -> None:
    refuse_other_sources(wheel_of(root), root)


@pytest.mark.parametrize("changed", [{"model": "# older\n"}, {"model": ""}, {"gone": "# a file that is not here\n"}])
def test_a_wheel_of_other_files_is_refused_by_name(root: Path, changed: dict[str, str]) -> None:
    with pytest.raises(BuildError, match=rf"pyggml/{next(iter(changed))}\.py differs"):
        refuse_other_sources(wheel_of(root, **changed), root)


def test_what_is_no_wheel_is_refused(root: Path) -> None:
    (root / "x.whl").write_text("no")
    with pytest.raises(BuildError, match=r"PYGGML_WHEEL=.*x\.whl is not a wheel"):
        refuse_other_sources(root / "x.whl", root)
