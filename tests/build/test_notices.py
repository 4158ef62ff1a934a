"""Everything that ships has its licence in the notices, or the build says what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_support.build_error import BuildError
from build_support.layout import of_this_clone
from build_support.notices import STATEMENTS, write_notices


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree whose libraries state their licences where the real ones do."""
    made = tmp_path / "tree"
    for library, statements in STATEMENTS.items():
        for name, words in statements:
            path = made / "vendor" / library / name
            (made / "vendor" / library).mkdir(parents=True, exist_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"/* code */\n/*\n{words}\nterms of {library}\n*/\nint more_code;\n")
    (made / "LICENSE").write_text("MIT License\n")
    return made


def test_every_library_is_named_with_its_terms_and_without_its_code(tree: Path, tmp_path: Path) -> None:
    text = write_notices(tree, tmp_path).read_text()
    assert "MIT License" in text
    assert all(f"terms of {library}" in text for library in STATEMENTS)
    assert "GCC-exception-3.1" in text
    assert "terms of stb\n\n" in text + "\n\n"


def test_a_library_that_nobody_has_looked_at_fails_the_build(tree: Path, tmp_path: Path) -> None:
    (tree / "vendor" / "leftpad").mkdir()
    with pytest.raises(BuildError, match="vendor/leftpad of the tree is new"):
        write_notices(tree, tmp_path)


def test_a_statement_that_has_moved_fails_the_build(tree: Path, tmp_path: Path) -> None:
    (tree / "vendor/stb/stb_image.h").write_text("int code;\n")
    with pytest.raises(BuildError, match=r"stb_image\.h states no licence"):
        write_notices(tree, tmp_path)


@pytest.mark.built
def test_the_tree_states_them_all(tmp_path: Path) -> None:
    text = write_notices(of_this_clone().tree, tmp_path).read_text()
    for words in ("The ggml authors", "Niels Lohmann", "Yann Collet", "Sean Barrett", "David Reid", "yhirose"):
        assert words in text, words
