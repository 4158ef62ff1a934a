"""One task's native side, as the engine sees it: prompt, limits, counters, payloads. Engine thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml_server.native.adapters import Adapters
from pyggml_server.native.border import call, ffi, lib, take_bytes
from pyggml_server.native.media import Media


@dataclass(frozen=True, slots=True)
class TaskStats:
    """Counters of a task; times exclude what it spent parked."""

    n_prompt_cached: int
    n_prompt_processed: int
    n_gen: int
    n_gen_steps: int
    t_prompt_us: int
    t_gen_us: int
    has_next_token: bool
    has_new_line: bool
    n_draft_tokens: int = 0
    n_draft_accepted: int = 0
    n_draft_verif_steps: int = 0


class Task:
    """A completion, or an embedding or score of a prompt, to compute. Made by the translation, owned by the engine
    once submitted.

    parent    the task of the same request (n > 1) whose prompt it shares, or None; a parent has `n_children` of them.
    embeds    it wants no text: an output of every prompt token, and nothing is sampled.
    is_whole  its prompt must be decoded in one batch.
    media     the images of its prompt, whose tokens are -1; None without images.
    """

    def __init__(self, handle: Any, owner: Any) -> None:
        self._handle = handle
        self._owner = owner  # keeps the loaded server alive
        info = ffi.new("pyggml_task_info *")
        lib.pyggml_task_get_info(handle, info)
        n_bytes = info.n_tokens * np.dtype(np.int32).itemsize
        self.tokens: npt.NDArray[np.int32] = np.frombuffer(ffi.buffer(info.tokens, n_bytes), dtype=np.int32).copy()
        self.media = Media.of(handle, owner)
        self.params_json: bytes = ffi.string(info.params_json)
        self.id_slot: int = info.id_slot
        self.i_parent: int = info.i_parent
        self.n_children: int = info.n_children
        self.parent: Task | None = None
        self.n_predict: int = info.n_predict
        self.n_keep: int = info.n_keep
        self.n_discard: int = info.n_discard
        self.completion_id: str = ffi.string(info.completion_id).decode()
        self.n_cache_reuse: int = info.n_cache_reuse
        self.user_starts: tuple[int, ...] = tuple(info.user_starts[0 : info.n_user_starts])
        self.is_streamed: bool = bool(info.stream)
        self.returns_progress: bool = bool(info.return_progress)
        self.caches_prompt: bool = bool(info.cache_prompt)
        self.embeds: bool = bool(info.embeds)
        self.is_whole: bool = bool(info.is_whole)
        self.adapters = Adapters(
            scales=tuple(info.scales[i] for i in range(info.n_scales)),
            base=tuple(info.base_scales[i] for i in range(info.n_scales)),
            start=info.scales_from,
        )

    @property
    def handle(self) -> Any:
        """The native object, for `Runtime.step`. Raises RuntimeError after close()."""
        if self._handle is None:
            raise RuntimeError("this task is closed")
        return self._handle

    def close(self) -> None:
        """Free the native side. Idempotent."""
        handle, self._handle = self._handle, None
        if handle is not None:
            lib.pyggml_task_free(handle)

    def __del__(self) -> None:
        self.close()

    def start(self, slot_id: int, n_ctx: int, n_cached: int) -> None:
        """The slot starts on the prompt: `n_cached` tokens of it are reused, it may use `n_ctx` positions."""
        lib.pyggml_task_start(self.handle, slot_id, n_ctx, n_cached)

    def add_pause(self, pause_us: int) -> None:
        """Leave time spent parked out of the timings and of the time limit."""
        lib.pyggml_task_add_pause(self.handle, pause_us)

    def note_shift(self, n_keep: int, n_discard: int) -> None:
        """Of the slot's first `n_keep + n_discard` tokens only `n_keep` are left: say so in the result."""
        lib.pyggml_task_note_shift(self.handle, n_keep, n_discard)

    def drop_draft(self) -> None:
        """There is no room for the draft: the next step decodes the last token alone."""
        lib.pyggml_task_drop_draft(self.handle)

    def end_reasoning(self) -> bool:
        """Make the sampler close the reasoning now. False where the request did not ask for that control."""
        is_armed = ffi.new("int32_t *")
        call(lib.pyggml_task_end_reasoning, self.handle, is_armed)
        return bool(is_armed[0])

    def stats(self) -> TaskStats:
        """The counters as they stand."""
        out = ffi.new("pyggml_task_stats *")
        lib.pyggml_task_get_stats(self.handle, out)
        return TaskStats(
            n_prompt_cached=out.n_prompt_cached,
            n_prompt_processed=out.n_prompt_processed,
            n_gen=out.n_gen,
            n_gen_steps=out.n_gen_steps,
            t_prompt_us=out.t_prompt_us,
            t_gen_us=out.t_gen_us,
            has_next_token=bool(out.has_next_token),
            has_new_line=bool(out.has_new_line),
            n_draft_tokens=out.n_draft_tokens,
            n_draft_accepted=out.n_draft_accepted,
            n_draft_verif_steps=out.n_draft_verif_steps,
        )

    def n_accepted_per_pos(self) -> list[int]:
        """How often the draft's first, second, ... token was accepted; empty where nothing was verified."""
        out = ffi.new("pyggml_task_stats *")
        lib.pyggml_task_get_stats(self.handle, out)
        return list(ffi.unpack(out.n_accepted_per_pos, out.n_draft_positions)) if out.n_draft_positions else []

    def progress_event(self, n_past: int) -> bytes:
        """Server-sent events of a prompt-progress report: `n_past` tokens of the prompt are in the cache."""
        return self._payload(lib.pyggml_task_progress, n_past)

    def final_payload(self, n_past: int) -> bytes:
        """The end of the task, with `n_past` tokens in its slot. Raises PyggmlError where an event of it could not be
        formatted."""
        return self._payload(lib.pyggml_task_final, n_past)

    def _payload(self, function: Any, n_past: int) -> bytes:
        out = ffi.new("pyggml_bytes *")
        call(function, self.handle, n_past, out)
        return take_bytes(out)
