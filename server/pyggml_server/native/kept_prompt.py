"""A prompt between a slot and the prompt cache: its tokens, checkpoints and state, in pageable memory and in no cache.

Engine thread, but for the copies of its state (`put`, `copy_to`) and its end (`close`): on any, one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml_server.native.border import call, ffi, lib, take_bytes
from pyggml_server.native.checkpoints import Checkpoints

State = npt.NDArray[np.uint8]


class KeptPrompt:
    """Its states are those of each context, the target's first."""

    def __init__(self, handle: Any, n_contexts: int) -> None:
        self.handle: Any = ffi.gc(handle, lib.pyggml_kept_prompt_free)
        self._n_contexts = n_contexts

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
