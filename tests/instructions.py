"""Counts the Python instructions of a call: a measure of its cost that no busy machine changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def n_instructions(call: Callable[[], object]) -> int:
    """Bytecode instructions that the call executes in Python functions; those of C functions are not seen."""
    n = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal n
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            n += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return n
