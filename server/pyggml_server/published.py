"""What the engine publishes after each pass for others to read: one frozen picture.

A leaf: imports nothing of the server but `history`. Made on the engine thread and never changed afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyggml_server.history import History


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
    priority: int = 0
    n_decoded: int = 0
    state: str = "idle"
    n_cells: int = 0
    is_preempted: bool = False
    is_transferring: bool = False
    parked_bytes: int = 0
    parked_ms: float = 0.0
    n_preempted: int = 0
    is_held: bool = False
    is_on_disk: bool = False
    parked_at_s: float | None = None  # when its present park began; monotonic clock


@dataclass(slots=True)
class Counters:
    """Totals since the start (names as `/metrics` shows them) and the gauges of this moment.

    Not frozen, since the engine adds to one of its own. Each snapshot has a copy that is never changed.
    """

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
    requests_refused_total: int = 0
    requests_cancelled_total: int = 0
    preemptions_total: int = 0
    restores_total: int = 0
    rotations_total: int = 0
    recomputes_total: int = 0
    preempt_refusals_total: int = 0
    spills_total: int = 0
    fetches_total: int = 0
    spilled_bytes_total: int = 0
    cache_disk_written_total: int = 0
    cache_disk_read_total: int = 0
    parked_bytes_total: int = 0
    restored_bytes_total: int = 0
    park_seconds_total: float = 0.0
    restore_seconds_total: float = 0.0
    park_issue_seconds_total: float = 0.0
    restore_issue_seconds_total: float = 0.0
    restore_prefetch_seconds_total: float = 0.0
    restore_scatter_seconds_total: float = 0.0
    slots_held: int = 0
    preempt_disk_bytes: int = 0
    preempt_disk_limit_bytes: int = 0
    cache_disk_bytes: int = 0
    cache_disk_limit_bytes: int = 0
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
