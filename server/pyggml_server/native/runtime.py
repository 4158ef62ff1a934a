"""A loaded model and its context; a step: a batch decoded, its rows sampled. Engine thread, but for `translator`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import pyggml
from pyggml import Context, PinnedPool, PinnedRange
from pyggml_server.errors import LoadError
from pyggml_server.native.border import PyggmlError, UnsupportedError, call, ffi, lib, take_bytes
from pyggml_server.native.command_line import CommandLine
from pyggml_server.native.model_file import why_it_does_not_load
from pyggml_server.native.task import Task
from pyggml_server.native.translator import Translator

__all__ = [
    "BatchArrays",
    "Context",
    "PinnedPool",
    "PinnedRange",
    "PyggmlError",
    "Row",
    "Runtime",
    "Sample",
    "StopType",
    "UnsupportedError",
]


#: Of shim/server_load.cpp and server_draft_load.cpp: the file, and what llama.cpp said of it.
_MODEL_FAILED = re.compile(r"(failed to load (?:draft )?model, '(.*)')\n(.*)")


class StopType(IntEnum):
    """Why a task ended; the numbers of `enum pyggml_stop`."""

    NONE = 0
    EOS = 1
    WORD = 2
    LIMIT = 3
    EMBEDDED = 4  # no text was asked for: the embedding or score is there


@dataclass(frozen=True, slots=True)
class Row:
    """What one task has in a batch: the row to sample from (-1: none), its prompt tokens, its tokens and positions
    afterwards.

    n_draft  guesses in the rows behind `i_batch`; `n_past` does not count them.
    parent   whose prompt ends in this batch and is this task's own too: it takes over the counters.
    """

    task: Task
    i_batch: int
    n_prompt_tokens: int
    n_past: int
    n_pos: int
    n_draft: int = 0
    parent: Task | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """What a step gave for one row.

    tokens    sampled, in order: all but the last are in the slot already. Empty where no row was sampled, and where a
              draft has to be verified once more: the slot holds what it held before the step.
    events    server-sent events of a streamed task, possibly none.
    goes_on   the last token is in the next batch already, which a device computes.
    error     why sampling failed, and of which of llama-server's types that is.
    """

    tokens: list[int]
    stop: StopType
    events: bytes
    error: str | None = None
    error_type: str = "server_error"
    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class BatchArrays:
    """Tokens to decode: equally long arrays (int32 token, position, sequence id; int8 whether logits are wanted)."""

    token: npt.NDArray[np.int32]
    pos: npt.NDArray[np.int32]
    seq_id: npt.NDArray[np.int32]
    output: npt.NDArray[np.int8]


class Runtime:
    """The loaded model. `context` and `model` are pyggml's, borrowed: they die with the runtime."""

    def __init__(self, handle: Any, is_staged: bool) -> None:
        self._handle = handle
        self._is_staged = is_staged
        info = ffi.new("pyggml_server_info *")
        call(lib.pyggml_server_get_info, handle, info)
        self.n_slots: int = info.n_slots
        self.n_ctx: int = info.n_ctx
        self.n_ctx_slot: int = info.n_ctx_slot
        self.n_batch: int = info.n_batch
        self.n_ubatch: int = info.n_ubatch
        self.n_swa: int = info.n_swa
        self.has_memory: bool = bool(info.has_memory)
        self.is_unified: bool = bool(info.kv_unified)
        self.is_recurrent: bool = bool(info.is_recurrent)
        self.is_hybrid: bool = bool(info.is_hybrid)
        self.can_remove_tail: bool = bool(info.partial_rm)
        self.speculates: bool = bool(info.speculates)
        self.n_draft_max: int = info.n_draft_max
        self.shifts_context: bool = bool(info.ctx_shift)
        self.batches_continuously: bool = bool(info.cont_batching)
        self.can_shift: bool = bool(info.can_shift)
        self.adds_bos: bool = bool(info.add_bos)
        self.slot_prompt_similarity: float = info.slot_prompt_similarity
        self.n_checkpoints_max: int = info.n_ctx_checkpoints
        self.checkpoint_min_step: int = info.checkpoint_min_step
        self.has_prompt_cache: bool = info.cache_ram_mib != 0
        self.cache_ram_bytes: int | None = None if info.cache_ram_mib < 0 else info.cache_ram_mib << 20
        self.caches_idle_slots: bool = bool(info.cache_idle_slots)
        self.is_async: bool = bool(info.is_async)
        self.has_media: bool = bool(info.has_media)
        self.model = pyggml.Model.from_pointer(lib.pyggml_server_model(handle), owner=handle)
        self.context = Context.from_pointer(
            lib.pyggml_server_context(handle), self.model, owner=handle, kv_unified=self.is_unified
        )
        self.draft_context = self._draft_context()
        """The draft model's context, or None where there is none that has cells of its own."""
        self.translator = Translator(handle, self)

    @property
    def handle(self) -> Any:
        """The native object, for the prompt cache. None after close()."""
        return self._handle

    @classmethod
    def load(cls, command_line: CommandLine, n_bytes_staging: int = 0, n_sampling_threads: int = 0) -> Runtime:
        """Load model and context; blocks for as long as that takes. Raises LoadError.

        n_bytes_staging     on each device, for asynchronous copies of sequences.
        n_sampling_threads  for the rows of a step, the engine thread among them; 0: as slots and processor allow.
        """
        out = ffi.new("pyggml_server **")
        try:
            call(lib.pyggml_server_load, command_line.handle, n_bytes_staging, n_sampling_threads, out)
        except PyggmlError as error:
            raise LoadError(_with_remedy(str(error))) from None
        return cls(ffi.gc(out[0], lib.pyggml_server_free), n_bytes_staging > 0)

    def _draft_context(self) -> Context | None:
        pointer = lib.pyggml_server_draft_context(self._handle)
        if pointer == ffi.NULL:
            return None
        model = pyggml.Model.from_pointer(lib.pyggml_server_draft_model(self._handle), owner=self._handle)
        return Context.from_pointer(pointer, model, owner=self._handle, kv_unified=self.is_unified)

    def contexts(self) -> list[Context]:
        """Every context that keeps cells of the slots' sequences: the target's, then the draft's."""
        return [self.context] if self.draft_context is None else [self.context, self.draft_context]

    @property
    def can_cut_prompts(self) -> bool:
        """Whether a sequence can keep what follows its prompt without the prompt, in every context."""
        models = [context.model for context in self.contexts()]
        is_plain = not any(model.is_recurrent or model.is_hybrid or model.n_swa for model in models)
        return self.is_unified and self.has_memory and is_plain

    def draft(self, tasks: Sequence[Task], n_max: Sequence[int]) -> list[list[int]]:
        """Guess up to `n_max[i]` (at least 0) of the tokens that follow task i's last one; the GIL is free meanwhile.

        A draft may be empty. The next step must decode each whole, behind the last token, unless the task drops it.
        """
        out = ffi.new("pyggml_tokens[]", len(tasks))
        handles = ffi.new("pyggml_task *[]", [task.handle for task in tasks])
        call(lib.pyggml_draft, self._handle, len(tasks), handles, ffi.new("int32_t[]", list(n_max)), out)
        return [_tokens(out[i]) for i in range(len(tasks))]

    def step(
        self, batch: BatchArrays, rows: Sequence[Row], overlapped: Callable[[], None] | None = None
    ) -> tuple[int, list[Sample]]:
        """Decode, call `overlapped` while the device computes, wait, sample every ready row; the GIL is free meanwhile.

        `overlapped` is not called if the status is not 0. What it raises is raised here, and no row is sampled.

        A row whose task embeds gets its embedding instead. All rows agree on that, and on the
        scales of their tokens' adapters.
        Returns llama_decode's status (0: done, 1: no room, 2: aborted, -1: refused, < -1: failed) and one Sample per
        row, in order; none unless the status is 0.
        """
        status = self.decode(batch, rows)
        if status != 0:
            return status, []
        if overlapped is not None:
            overlapped()
        return 0, self.sample(len(rows))[1]

    def decode(self, batch: BatchArrays, rows: Sequence[Row]) -> int:
        """The first half of a step: returns llama_decode's status once the batch is issued."""
        view = ffi.new("pyggml_batch_view *")
        view.n_tokens = len(batch.token)
        view.token = ffi.from_buffer("int32_t[]", batch.token)
        view.pos = ffi.from_buffer("int32_t[]", batch.pos)
        view.seq_id = ffi.from_buffer("int32_t[]", batch.seq_id)
        view.output = ffi.from_buffer("int8_t[]", batch.output)
        c_rows = _rows(rows)
        status = ffi.new("int32_t *")
        call(lib.pyggml_step_decode, self._handle, view, len(rows), c_rows, status)
        return int(status[0])

    def decode_image(self, row: Row, i: int, pos: int) -> int:
        """Decode image i of the row's task, which is encoded, as the next step of its sequence, from position `pos` on.

        Returns llama_decode's status; unless it is 0 the sequence holds what it held before. A device may still compute
        it. Raises PyggmlError.
        """
        status = ffi.new("int32_t *")
        call(lib.pyggml_media_decode, self._handle, _rows([row]), i, pos, status)
        return int(status[0])

    def sample(self, n_rows: int, *, go_on: bool = False) -> tuple[int, list[Sample]]:
        """The second half, for the batch that was decoded last, which has `n_rows` rows: wait and sample them.

        With `go_on` the next token of each row that has not ended is decoded too, and its Sample says so: the next call
        is for that batch. Returns llama_decode's status of it; where that is not 0 nobody goes on.
        """
        out = ffi.new("pyggml_sampled[]", n_rows)
        status = ffi.new("int32_t *")
        call(lib.pyggml_step_sample, self._handle, go_on, out, status)
        return int(status[0]), [_sample(out[i]) for i in range(n_rows)]

    def state_origin(self) -> tuple[list[str], str]:
        """What states of this runtime depend on: files by their content, and settings, in words. Any thread."""
        out = ffi.new("pyggml_bytes *")
        call(lib.pyggml_server_state_origin, self._handle, out)
        origin = json.loads(take_bytes(out))
        return origin["files"], json.dumps(origin["settings"], sort_keys=True)

    def new_transfer(self, context: Context) -> pyggml.Transfer:
        """A transfer of a context's sequences, to be closed before the runtime. Raises UnsupportedError."""
        return pyggml.Transfer(context, is_staged=self._is_staged)

    def new_pinned_pool(self, limit_bytes: int, piece_bytes: int) -> PinnedPool:
        """Pinned memory for transfers of every context, empty at first; to be closed before the runtime.

        Raises OutOfMemoryError without that much address space.
        """
        return PinnedPool(self.context, limit_bytes, piece_bytes)

    def close(self) -> None:
        """Free context and model, unless a request in the web side still formats with them. Idempotent."""
        for context in self.contexts():
            context.close()
        self._handle = None


def _with_remedy(message: str) -> str:
    """What the shim says of a model that did not load, and what to do."""
    failed = _MODEL_FAILED.fullmatch(message)
    return f"{failed[1]}: {why_it_does_not_load(Path(failed[2]), failed[3])}" if failed else message


def _rows(rows: Sequence[Row]) -> Any:
    c_rows = ffi.new("pyggml_row[]", len(rows))
    for c_row, row in zip(c_rows, rows, strict=True):
        c_row.task = row.task.handle
        c_row.i_batch = row.i_batch
        c_row.n_draft = row.n_draft
        c_row.parent = ffi.NULL if row.parent is None else row.parent.handle
        c_row.n_prompt_tokens = row.n_prompt_tokens
        c_row.n_past = row.n_past
        c_row.n_pos = row.n_pos
    return c_rows


def _sample(sampled: Any) -> Sample:
    text = bytes(ffi.buffer(sampled.text.data, sampled.text.size)) if sampled.text.size else b""
    if sampled.failed:
        error_type = "invalid_request_error" if sampled.failed == lib.PYGGML_FAILED_LIMIT else "server_error"
        return Sample([], StopType.NONE, b"", text.decode("utf-8", "replace"), error_type)
    return Sample(_tokens(sampled.tokens), StopType(sampled.stop), text, goes_on=bool(sampled.goes_on))


def _tokens(view: Any) -> list[int]:
    return list(ffi.unpack(view.data, view.n)) if view.n else []
