"""The licences of what a wheel carries apart from our own code, from the tree, as one text next to the libraries.

A library of the tree that is not named here is an error: the next pin may bring one.
"""

from __future__ import annotations

from pathlib import Path

from build_support.build_error import BuildError

NOTICES = "NOTICES.txt"
#: Where each library of the tree's `vendor/` states its licence: in a file, or in one from these words on.
STATEMENTS = {
    "cpp-httplib": [("LICENSE", "")],
    "hash": [
        ("rotate-bits/LICENSE.md", ""),
        ("sha1/sha1.h", "SHA-1 in C"),
        ("sha256/LICENSE", ""),
        ("xxhash/LICENSE", ""),
    ],
    "miniaudio": [("miniaudio.h", "This software is available as a choice of the following licenses")],
    "nlohmann": [("../../licenses/LICENSE-jsonhpp", "")],
    "sheredom": [("subprocess.h", "This is free and unencumbered software released into the public domain.")],
    "stb": [("stb_image.h", "This software is available under 2 licenses")],
}
END_OF_COMMENT = "*/"
#: What a wheel for other machines carries besides, from the compiler that built it (scripts/wheels, auditwheel).
RUNTIME = """GCC's OpenMP runtime (libgomp), in the folder pyggml.libs of wheels that have one.
Copyright (C) Free Software Foundation, Inc.
Licence: GPL-3.0-or-later WITH GCC-exception-3.1, https://www.gnu.org/licenses/gcc-exception-3.1.html
Source: https://gcc.gnu.org/git/gcc.git, folder libgomp, of the version that `_pyggml.libs` was compiled with
(`pyggml-server --version` says it)."""


def write_notices(tree: Path, folder: Path) -> Path:
    """Writes the text into `folder`. Raises BuildError where a statement is not where this file says."""
    parts = [_part("llama.cpp and ggml", _statement(tree / "LICENSE", ""))]
    for library in sorted(path.name for path in (tree / "vendor").iterdir() if path.is_dir()):
        if library not in STATEMENTS:
            raise BuildError(
                f"vendor/{library} of the tree is new", f"say where its licence is in {Path(__file__).name}"
            )
        for name, words in STATEMENTS[library]:
            parts.append(_part(library, _statement(tree / "vendor" / library / name, words)))
    parts.append(_part("libgomp", RUNTIME))
    notices = folder / NOTICES
    notices.write_text("\n".join(parts), encoding="utf-8")
    return notices


def _part(title: str, statement: str) -> str:
    return f"{'=' * 80}\n{title}\n{'=' * 80}\n\n{statement.strip()}\n"


def _statement(path: Path, words: str) -> str:
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    begin = text.find(words)
    if not text or begin < 0:
        raise BuildError(f"{path} states no licence", f"say where it is in {Path(__file__).name}")
    return text[begin:].partition(END_OF_COMMENT)[0] if words else text
