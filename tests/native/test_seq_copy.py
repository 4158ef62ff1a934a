"""Asynchronous copies of sequences on simdev: every case of the C++ programs is a test, in a process of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.native.conftest import NativeTests

# test_seq_copy_random.py runs the random one
SOURCES = sorted(
    set(Path(__file__).parent.glob("test-seq-copy-*.cpp")) - {Path(__file__).parent / "test-seq-copy-random.cpp"}
)
CASES = [
    (source.stem, case)
    for source in SOURCES
    for case in re.findall(r"^CASE\((\w+)\)", source.read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize(("program", "case"), CASES, ids=[f"{program[14:]}-{case}" for program, case in CASES])
def test_case(native_tests: NativeTests, smollm2_path: Path, program: str, case: str) -> None:
    done = native_tests.run_case(program, case, {"SEQ_COPY_MODEL": str(smollm2_path)})
    assert done.returncode == 0, done.stderr[-2000:]
