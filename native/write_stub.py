"""Writes `_pyggml.pyi`, the types of the compiled module, from native/cdef/*.h.

`python -m native.write_stub [--check]`.
Development time only. A test runs it with --check, so that the stub cannot fall behind the declarations.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from cffi import model

from native.build_ffi import make_ffi

STUB = Path(__file__).resolve().parents[1] / "_pyggml.pyi"

HEAD = '''"""Types of the compiled module. Written by native/write_stub.py from native/cdef/*.h: do not edit."""

# One line per function, however long: the file is read by type checkers.
# ruff: noqa: E501
# fmt: off

from collections.abc import Callable
from typing import Any

# At run time `ffi.CData`; not a name of the module.
class CData:
    def __getitem__(self, index: Any) -> Any: ...
    def __setitem__(self, index: Any, value: Any) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __len__(self) -> int: ...

class _Ffi:
    NULL: CData
    def new(self, kind: str, init: Any = ...) -> CData: ...
    def callback(self, kind: str, function: Callable[..., Any]) -> CData: ...
    def cast(self, kind: str, value: Any) -> CData: ...
    def string(self, text: CData, size: int = ...) -> bytes: ...
    def unpack(self, array: CData, length: int) -> Any: ...
    def buffer(self, memory: CData, size: int = ...) -> memoryview: ...
    def from_buffer(self, kind: str, buffer: Any, require_writable: bool = ...) -> CData: ...
    def release(self, memory: CData) -> None: ...
    def sizeof(self, what: str | CData) -> int: ...
    def gc(self, memory: CData, free: Callable[[CData], Any] | None, size: int = ...) -> CData: ...
    def memmove(self, target: Any, source: Any, size: int) -> None: ...

class _Lib:
'''
TAIL = """
ffi: _Ffi
lib: _Lib
"""


def stub_text() -> str:
    """The whole stub."""
    return HEAD + "\n".join(f"    {line}" for line in sorted(set(_members()))) + "\n" + TAIL


def _members() -> Iterator[str]:
    declarations: dict[str, tuple[object, int]] = make_ffi()._parser._declarations  # type: ignore[attr-defined]
    for key, (kind, _) in declarations.items():
        what, _, name = key.partition(" ")
        if what == "function" and isinstance(kind, model.BaseFunctionType):
            yield f"def {name}(self{_arguments(kind)}) -> {_result(kind.result)}: ..."
        elif what in ("macro", "constant"):
            yield f"{name}: int"
        elif isinstance(kind, model.EnumType):
            yield from (f"{enumerator}: int" for enumerator in kind.enumerators)


def _arguments(kind: model.BaseFunctionType) -> str:
    arguments = "".join(f", a{i}: {_argument(argument)}" for i, argument in enumerate(kind.args))
    return f"{arguments}, /" if arguments else ""


def _argument(kind: object) -> str:
    if isinstance(kind, model.PointerType) and _is_char(kind.totype):
        return "CData | bytes"
    return _scalar(kind) or "CData"


def _result(kind: object) -> str:
    return "None" if isinstance(kind, model.VoidType) else _scalar(kind) or "CData"


def _scalar(kind: object) -> str | None:
    if isinstance(kind, model.EnumType):
        return "int"
    if isinstance(kind, model.PrimitiveType):
        if kind.name == "_Bool":
            return "bool"
        if kind.name == "char":
            return "bytes"
        return "float" if kind.is_float_type() else "int"
    return None


def _is_char(kind: object) -> bool:
    return isinstance(kind, model.PrimitiveType) and kind.name == "char"


def main() -> int:
    text = stub_text()
    if "--check" in sys.argv[1:]:
        if STUB.read_text(encoding="utf-8") != text:
            print("_pyggml.pyi does not match native/cdef: run python -m native.write_stub", file=sys.stderr)
            return 1
        return 0
    STUB.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
