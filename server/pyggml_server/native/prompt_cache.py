"""llama.cpp's prompt cache, which decides which prompts are kept and which is found: its handle. Engine thread only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml_server.native.border import call, ffi, lib, take_bytes
from pyggml_server.native.checkpoints import Checkpoints
from pyggml_server.native.kept_prompt import KeptPrompt
from pyggml_server.native.runtime import Runtime


@dataclass(frozen=True, slots=True)
class CacheSize:
    """What the prompt cache holds."""

    n_prompts: int
    n_tokens: int
    n_bytes: int


class NativePromptCache:
    """Whole prompts with their states in host memory, up to --cache-ram."""

    def __init__(self, runtime: Runtime, *, hands_out: bool = False) -> None:
        """`hands_out`: what it has no room for waits for `take_evicted`."""
        self._runtime = runtime
        out = ffi.new("pyggml_prompt_cache **")
        call(lib.pyggml_prompt_cache_new, runtime.handle, out)
        self._handle: Any = ffi.gc(out[0], lib.pyggml_prompt_cache_free)
        if hands_out:
            lib.pyggml_prompt_cache_hand_out(self._handle)

    def save(self, seq_id: int, tokens: Sequence[int], checkpoints: Checkpoints) -> bool:
        """Copy a sequence with its tokens and checkpoints. False where it is there already or too large."""
        array, saved = _tokens(tokens), ffi.new("int32_t *")
        arguments = (self._handle, self._runtime.handle, seq_id, ffi.from_buffer("int32_t[]", array), len(array))
        call(lib.pyggml_prompt_cache_save, *arguments, checkpoints.handle, saved)
        return bool(saved[0])

    def load(
        self, seq_id: int, tokens: Sequence[int], wanted: Sequence[int], checkpoints: Checkpoints
    ) -> list[int] | None:
        """Move the prompt that has more in common with `wanted` than `tokens`, what the sequence holds, into it.

        Returns the sequence's tokens afterwards, or None where a state could not be restored: it may hold anything.
        """
        have, want = _tokens(tokens), _tokens(wanted)
        out, intact = ffi.new("pyggml_bytes *"), ffi.new("int32_t *")
        arguments = (self._handle, self._runtime.handle, seq_id, ffi.from_buffer("int32_t[]", have), len(have))
        wanted_arguments = (ffi.from_buffer("int32_t[]", want), len(want))
        call(lib.pyggml_prompt_cache_load, *arguments, *wanted_arguments, checkpoints.handle, out, intact)
        if not intact[0]:
            return None
        found = np.frombuffer(take_bytes(out), dtype=np.int32)
        return found.tolist() if len(found) else list(tokens)

    def begin(self, tokens: Sequence[int], checkpoints: Checkpoints, n_bytes: int) -> KeptPrompt | None:
        """A prompt to be added once its state of so many bytes was copied; None where `save` would be False.

        Makes room for it, as `save` does.
        """
        array, out = _tokens(tokens), ffi.new("pyggml_kept_prompt **")
        arguments = (self._handle, ffi.from_buffer("int32_t[]", array), len(array), checkpoints.handle, n_bytes, out)
        call(lib.pyggml_kept_prompt_begin, *arguments)
        return self._kept(out[0])

    def add(self, kept: KeptPrompt) -> None:
        """Take a whole prompt in, as the newest; it is empty afterwards. Those who look find it from now on."""
        call(lib.pyggml_prompt_cache_add, self._handle, kept.handle)

    def find(self, tokens: Sequence[int], wanted: Sequence[int]) -> tuple[int, int]:
        """How many tokens the prompt has that `load` would move into a sequence which holds `tokens`, and how many of
        them `wanted` begins with; 0: there is none. It stays where it is.
        """
        have, want, n_found, n_common = _tokens(tokens), _tokens(wanted), ffi.new("int32_t *"), ffi.new("int32_t *")
        arguments = (self._handle, ffi.from_buffer("int32_t[]", have), len(have))
        wanted_arguments = (ffi.from_buffer("int32_t[]", want), len(want))
        call(lib.pyggml_prompt_cache_find, *arguments, *wanted_arguments, n_found, n_common)
        return int(n_found[0]), int(n_common[0])

    def take_evicted(self) -> KeptPrompt | None:
        """The oldest of those for which there was no room; None where there is none."""
        out = ffi.new("pyggml_kept_prompt **")
        call(lib.pyggml_prompt_cache_take_evicted, self._handle, out)
        return self._kept(out[0])

    def take_oldest(self) -> KeptPrompt | None:
        """The oldest that it has; None where it has none."""
        out = ffi.new("pyggml_kept_prompt **")
        call(lib.pyggml_prompt_cache_take_oldest, self._handle, out)
        return self._kept(out[0])

    def take(self, tokens: Sequence[int], wanted: Sequence[int]) -> KeptPrompt | None:
        """Take the prompt out that `load` would move into a sequence which holds `tokens`; None where it finds none."""
        have, want, out = _tokens(tokens), _tokens(wanted), ffi.new("pyggml_kept_prompt **")
        arguments = (self._handle, ffi.from_buffer("int32_t[]", have), len(have))
        call(lib.pyggml_prompt_cache_take, *arguments, ffi.from_buffer("int32_t[]", want), len(want), out)
        return self._kept(out[0])

    def _kept(self, handle: Any) -> KeptPrompt | None:
        return None if handle == ffi.NULL else KeptPrompt(handle, len(self._runtime.contexts()))

    def trim(self) -> None:
        """Drop the oldest prompts until the limits hold."""
        call(lib.pyggml_prompt_cache_trim, self._handle)

    def size(self) -> CacheSize:
        """What it holds now."""
        out = ffi.new("pyggml_prompt_cache_size *")
        lib.pyggml_prompt_cache_get_size(self._handle, out)
        return CacheSize(out.n_prompts, out.n_tokens, out.n_bytes)


def _tokens(tokens: Sequence[int]) -> npt.NDArray[np.int32]:
    return np.array(tokens, dtype=np.int32)
