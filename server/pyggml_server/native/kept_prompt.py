"""A prompt between a slot and the prompt cache: its tokens, checkpoints and state, in pageable memory and in no cache.

Engine thread, but for the copies of its state (`put`, `copy_to`), its way to a file and back (`saved_checkpoints`,
`views`, `from_file`) and its end (`close`): on any, one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml_server.native.border import call, ffi, lib, take_bytes
from pyggml_server.native.checkpoints import Checkpoints, new_list

State = npt.NDArray[np.uint8]


class KeptPrompt:
    """Its states are those of each context, the target's first."""

    def __init__(self, handle: Any, n_contexts: int) -> None:
        self.handle: Any = ffi.gc(handle, lib.pyggml_kept_prompt_free)
        self._n_contexts = n_contexts

    @classmethod
    def from_file(
        cls, tokens: npt.NDArray[np.int32], checkpoints: bytes, sizes_bytes: Sequence[int]
    ) -> tuple[KeptPrompt, list[State]]:
        """One that a file has, and where its states' bytes go: let go of these before anything is done with it.

        Blocks for the memory. Raises InvalidArgumentError for checkpoints that are damaged.
        """
        held = new_list()
        if checkpoints:
            call(lib.pyggml_checkpoints_read, held, checkpoints, len(checkpoints), len(tokens))
        out, memory = ffi.new("pyggml_kept_prompt **"), ffi.new("void **")
        call(lib.pyggml_kept_prompt_new, ffi.from_buffer("int32_t[]", tokens), len(tokens), held, out)
        kept, views = cls(out[0], len(sizes_bytes)), []
        for i, n_bytes in enumerate(sizes_bytes):
            call(lib.pyggml_kept_prompt_make, kept.handle, i, n_bytes, memory)
            views.append(np.frombuffer(ffi.buffer(memory[0], n_bytes), np.uint8))
        return kept, views

    def views(self) -> list[State]:
        """Its states as they are in its memory: let go of them before it ends."""
        pointers = [lib.pyggml_kept_prompt_data(self.handle, i) for i in range(self._n_contexts)]
        return [
            np.frombuffer(ffi.buffer(pointer, n_bytes), np.uint8)
            for pointer, n_bytes in zip(pointers, self.sizes_bytes, strict=True)
        ]

    @property
    def n_saved_checkpoint_bytes(self) -> int:
        """How long `saved_checkpoints` is."""
        return int(lib.pyggml_kept_prompt_checkpoints_size(self.handle))

    def saved_checkpoints(self) -> bytes:
        """Its checkpoints, as a slot's file has them; empty where there are none. Blocks for the copies."""
        held, out = new_list(), ffi.new("pyggml_bytes *")
        call(lib.pyggml_kept_prompt_get_checkpoints, self.handle, held)
        if not lib.pyggml_checkpoints_count(held):
            return b""
        call(lib.pyggml_checkpoints_write, held, out)
        return take_bytes(out)

    def put(self, states: list[State]) -> None:
        """Copy the states in; takes them out of the list. Blocks for the copies; the GIL is released."""
        for i in reversed(range(self._n_contexts)):
            state = states.pop()
            call(lib.pyggml_kept_prompt_put, self.handle, i, ffi.from_buffer("char[]", state), state.nbytes)

    def copy_to(self, targets: list[State]) -> None:
        """Copy its states out, into arrays of their sizes; takes those out of the list. As `put`."""
        for i in reversed(range(self._n_contexts)):
            target = targets.pop()
            pointer = lib.pyggml_kept_prompt_data(self.handle, i)
            target[:] = np.frombuffer(ffi.buffer(pointer, target.nbytes), np.uint8)

    @property
    def sizes_bytes(self) -> Sequence[int]:
        """Of its states."""
        return [int(lib.pyggml_kept_prompt_size(self.handle, i)) for i in range(self._n_contexts)]

    @property
    def tokens(self) -> list[int]:
        """What the states hold, one for each position."""
        out = ffi.new("pyggml_bytes *")
        call(lib.pyggml_kept_prompt_get_tokens, self.handle, out)
        tokens: list[int] = np.frombuffer(take_bytes(out), dtype=np.int32).tolist()
        return tokens

    def give_checkpoints(self, checkpoints: Checkpoints) -> None:
        """Make its checkpoints those of a slot."""
        call(lib.pyggml_kept_prompt_get_checkpoints, self.handle, checkpoints.handle)

    def close(self) -> None:
        """Give its memory back. Idempotent."""
        ffi.release(self.handle)
