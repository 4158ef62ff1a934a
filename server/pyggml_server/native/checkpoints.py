"""The context checkpoints of a slot, in llama.cpp's form: its handles. Engine thread only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyggml_server.native.border import call, ffi, lib, take_bytes
from pyggml_server.native.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The part of a sequence's state that cannot be rolled back, as it was after its first `n_tokens` tokens."""

    n_tokens: int
    pos_min: int
    pos_max: int
    task_id: int
    n_bytes: int


def new_list() -> Any:
    """The native list, empty. Any thread."""
    out = ffi.new("pyggml_checkpoints **")
    call(lib.pyggml_checkpoints_new, out)
    return ffi.gc(out[0], lib.pyggml_checkpoints_free)


class Checkpoints:
    """The checkpoints of one slot, oldest first."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.handle = new_list()

    def __len__(self) -> int:
        return int(lib.pyggml_checkpoints_count(self.handle))

    def all(self) -> list[Checkpoint]:
        """What they are, in order."""
        info = ffi.new("pyggml_checkpoint_info *")
        found = []
        for i in range(len(self)):
            lib.pyggml_checkpoints_get_info(self.handle, i, info)
            found.append(Checkpoint(info.n_tokens, info.pos_min, info.pos_max, info.id_task, info.size))
        return found

    def erase(self, i: int) -> None:
        """Forget the i-th."""
        if i not in range(len(self)):
            raise IndexError(f"there is no checkpoint {i}: there are {len(self)}")
        lib.pyggml_checkpoints_erase(self.handle, i)

    def clear(self) -> None:
        """Forget all."""
        while len(self):
            self.erase(0)

    def to_bytes(self) -> bytes:
        """All of them, for a slot's file; empty where there are none."""
        if not len(self):
            return b""
        out = ffi.new("pyggml_bytes *")
        call(lib.pyggml_checkpoints_write, self.handle, out)
        return take_bytes(out)

    def take_bytes_of(self, data: bytes, n_tokens: int) -> None:
        """Replace all of them by those of a file of a slot with `n_tokens`. Raises InvalidArgumentError for damage."""
        call(lib.pyggml_checkpoints_read, self.handle, data, len(data), n_tokens)

    def restore(self, i: int, seq_id: int) -> bool:
        """Put the i-th back into the sequence. False where there is no room; the sequence may hold anything then."""
        if i not in range(len(self)):
            raise IndexError(f"there is no checkpoint {i}: there are {len(self)}")
        restored = ffi.new("int32_t *")
        call(lib.pyggml_checkpoints_restore, self.handle, i, self._runtime.handle, seq_id, restored)
        return bool(restored[0])

    def add(self, seq_id: int, n_tokens: int, pos_min: int, pos_max: int, task_id: int) -> Checkpoint:
        """Make one of the sequence as it is now. Blocks for the copy."""
        about = ffi.new("pyggml_checkpoint_info *", [n_tokens, pos_min, pos_max, task_id, 0])
        call(lib.pyggml_checkpoints_add, self.handle, self._runtime.handle, seq_id, about)
        return Checkpoint(n_tokens, pos_min, pos_max, task_id, about.size)
