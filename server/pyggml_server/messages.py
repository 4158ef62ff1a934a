"""What crosses between the web side and the engine thread: small frozen messages and one published snapshot.

A leaf: imports nothing of the server but `history`. Payloads are bytes in the layout of the native shim; only `native`
reads them.
Inbound messages are made on any web thread, outbound ones on the engine thread, and none is changed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from pyggml_server.history import History


class TaskHandle(Protocol):
    """One completion to compute, made by the translation; owned by the engine once it is submitted."""

    def close(self) -> None:
        """Free the native side. Idempotent."""


# -- web -> engine ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submit:
    """Compute this task; every outbound message about it carries `task_id`."""

    task_id: int
    task: TaskHandle


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody waits for this task any more. Unknown and already ended ids are ignored."""

    task_id: int


class SlotVerb(StrEnum):
    """What can be done with the tokens that a slot holds: `?action=` of POST /slots/{id_slot}."""

    SAVE = "save"
    RESTORE = "restore"
    ERASE = "erase"


@dataclass(frozen=True, slots=True)
class SlotAction:
    """Save, restore or erase a slot, once it is idle. Ends with Answered, Failed or Cancelled.

    filename  as the client named it, for the answer; `path` is where it is. Both empty for ERASE.
    """

    task_id: int
    verb: SlotVerb
    slot_id: int
    filename: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class EndReasoning:
    """End the reasoning of a running completion, at once. Always ends with Answered."""

    task_id: int
    completion_id: str


@dataclass(frozen=True, slots=True)
class Wake:
    """Somebody waits for the model that was freed while nothing was to be done: load it again."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End every task as cancelled, drain transfers, free the model, end the thread."""


Call = SlotAction | EndReasoning
FromWeb = Submit | Cancel | Call | Wake
Inbound = FromWeb | Stop


# -- engine -> web ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Began:
    """Prompt processing has started: a stream may send its headers. At most once per task, before any Token."""

    task_id: int


@dataclass(frozen=True, slots=True)
class Token:
    """One sampled token, or a prompt-progress report, of a streamed task (payload: formatter input)."""

    task_id: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a stream tells as an SSE comment (`preempted`, `resumed`); other requests ignore it."""

    task_id: int
    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The task ended well (payload: formatter input). The last message of its task."""

    task_id: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Answered:
    """A call that is no completion is done; `answer` is the body of the response, as JSON. Its last message."""

    task_id: int
    answer: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """The task ended with an error. `error` is llama-server's JSON error object (code, message, type); last message."""

    task_id: int
    status: int
    error: bytes


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The task ended because it was cancelled or the server stops. The last message of its task."""

    task_id: int


Outbound = Began | Token | Notice | Finished | Answered | Failed | Cancelled
Deliver = Callable[[Sequence[Outbound]], None]


# -- the published snapshot ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SlotSnapshot:
    """One slot as `/slots` shows it."""

    id: int
    n_ctx: int
    is_processing: bool
    speculates: bool = False
    id_task: int | None = None
    params_json: bytes = b"{}"
    n_prompt_tokens: int = 0
    n_prompt_tokens_processed: int = 0
    n_prompt_tokens_cache: int = 0
    has_next_token: bool = False
    has_new_line: bool = False
    n_remain: int = -1
    n_decoded: int = 0
    state: str = "idle"
    n_cells: int = 0
    is_preempted: bool = False
    is_transferring: bool = False
    parked_bytes: int = 0
    parked_ms: float = 0.0
    n_preempted: int = 0
    parked_at_s: float | None = None  # when its present park began; monotonic clock


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since the start (names as `/metrics` shows them) and the gauges of this moment."""

    prompt_tokens_total: int = 0
    prompt_tokens_cached_total: int = 0
    prompt_seconds_total: float = 0.0
    tokens_predicted_total: int = 0
    tokens_predicted_seconds_total: float = 0.0
    n_decode_total: int = 0
    n_busy_slots_total: int = 0
    n_tokens_max: int = 0
    draft_tokens_total: int = 0
    draft_tokens_accepted_total: int = 0
    drafts_verified_total: int = 0
    drafts_accepted_per_pos: tuple[int, ...] = ()
    # since the last scrape of /metrics, for the two rate gauges
    prompt_steps_window: int = 0
    prompt_seconds_window: float = 0.0
    predicted_steps_window: int = 0
    predicted_seconds_window: float = 0.0
    requests_processing: int = 0
    requests_deferred: int = 0
    requests_finished_total: int = 0
    requests_failed_total: int = 0
    requests_cancelled_total: int = 0
    preemptions_total: int = 0
    restores_total: int = 0
    rotations_total: int = 0
    recomputes_total: int = 0
    preempt_refusals_total: int = 0
    parked_bytes_total: int = 0
    restored_bytes_total: int = 0
    park_seconds_total: float = 0.0
    restore_seconds_total: float = 0.0
    park_issue_seconds_total: float = 0.0
    restore_issue_seconds_total: float = 0.0
    restore_prefetch_seconds_total: float = 0.0
    restore_scatter_seconds_total: float = 0.0
    preempt_ram_bytes: int = 0
    pinned_pool_bytes: int = 0
    side_copies_bytes: int = 0
    preempt_ram_limit_bytes: int = 0
    kv_cells: int = 0
    kv_cells_used: int = 0
    # inter-token gaps of running slots: upper bounds in seconds and counts per bucket (last bucket: +Inf)
    gap_bounds_s: tuple[float, ...] = ()
    gap_counts: tuple[int, ...] = ()
    gap_sum_s: float = 0.0
    # those of them that overlapped another slot's park or restore, in the same buckets
    survivor_gap_counts: tuple[int, ...] = ()
    survivor_gap_sum_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Asleep:
    """What can be said of a model that is not loaded: the bodies of GET /props and GET /v1/models."""

    props: bytes
    models: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the engine published after its latest pass; read without stopping it."""

    slots: tuple[SlotSnapshot, ...] = ()
    counters: Counters = field(default_factory=Counters)
    time_started_s: float = 0.0
    history: History = field(default_factory=History)
    asleep: Asleep | None = None  # set while no model is loaded


class EnginePort(Protocol):
    """What the web side may ask of the engine. Callable from any thread; nothing blocks."""

    def submit(self, message: FromWeb) -> None:
        """Queue a message for the engine's next pass."""

    def snapshot(self) -> Snapshot:
        """The latest published snapshot."""

    def reset_rate_window(self) -> None:
        """Start new averaging windows for the rate gauges, as a scrape of /metrics does."""

    def open_door(self) -> None:
        """The web side has what it needs of a model that was loaded: requests may use it."""

    def try_enter(self) -> bool:
        """Begin to use the model, so that it stays loaded; False while there is none. Who got in must `leave`."""

    def leave(self) -> None:
        """End what `try_enter` began."""
