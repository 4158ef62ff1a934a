"""Requests and slots of the model engine, and how a slot is seen. One cell = one token = one byte of state."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyggml_server.planner.view import SlotPhase, SlotView


@dataclass(slots=True)
class Request:
    """A prompt of `n_prompt` tokens that generates `n_generate`, and how it ended."""

    order: int
    n_prompt: int
    n_generate: int
    arrived_s: float = 0.0
    n_draft: int = 0
    priority: int = 0
    family: int = 0  # number of its parent, which is also the parent's own; 0 without children
    n_generated: int = 0
    endings: list[str] = field(default_factory=list)
    n_parks: int = 0
    n_recomputes: int = 0
    n_passes_in_batch: int = 0
    first_token_s: float | None = None
    ended_s: float | None = None

    @property
    def wait_share(self) -> float:
        """The part of its life that it was in no batch: behind others, parked, or on its way."""
        life_s = (self.ended_s or self.arrived_s) - self.arrived_s
        return max(0.0, 1.0 - self.n_passes_in_batch / life_s) if life_s > 0 else 0.0


@dataclass(slots=True)
class ModelSlot:
    slot_id: int
    phase: SlotPhase = SlotPhase.IDLE
    request: Request | None = None
    former: SlotPhase = SlotPhase.IDLE
    n_cells: int = 0  # in the pool, or parked
    n_kept: int = 0
    n_shared: int = 0  # of its cells, those that its family uses too
    n_shared_till_out: int = 0  # it left its family, who have these until the copy of its state completes
    is_in_pool: bool = True
    n_passes_to_completion: int | None = None
    is_promised: bool = False  # its state is on its way to staging memory: it holds no cells yet
    buffer_bytes: int = 0
    started_at_s: float = 0.0
    resident_since_s: float = 0.0
    parked_at_s: float = 0.0
    park_order: int = 0
    last_used_s: float = 0.0
    parked_for_request: int | None = None
    n_tokens_since_park: int = 0
    has_run_since_restore: bool = True
    needs_refill: bool = False
    n_refill: int = 0  # tokens that it computes again before it goes on
    has_pending_shift: bool = False
    is_held: bool = False
    is_on_disk: bool = False
    was_on_disk: bool = False
    disk_bytes: int = 0
    n_passes_to_file: int | None = None  # a file is written for it, or read
    is_park_refusal_known: bool = False
    is_rotation_refusal_known: bool = False

    @property
    def n_prompt_left(self) -> int:
        if self.n_refill:
            return self.n_refill - self.n_cells
        if self.request is None or self.request.n_generated or self.phase is SlotPhase.WAIT_OTHER:
            return 0
        n_base = self.n_kept if self.phase is SlotPhase.STARTED else self.n_cells
        return self.request.n_prompt - n_base

    @property
    def holds_state(self) -> bool:
        is_away = self.phase in (SlotPhase.PREEMPTED, SlotPhase.PREEMPTING, SlotPhase.RESTORING)
        return is_away and not self.needs_refill

    @property
    def is_in_line(self) -> bool:
        return self.phase in (SlotPhase.PREEMPTED, SlotPhase.PREEMPTING) and not self.is_held

    @property
    def has_copy(self) -> bool:
        """Whether a copy of its state is under way."""
        return self.n_passes_to_completion is not None

    @property
    def counts_cells(self) -> bool:
        """Whether nobody else may have its cells."""
        return self.is_in_pool or self.is_promised

    @property
    def n_owned(self) -> int:
        """Those that are promised to it included."""
        return self.n_cells - self.n_shared - self.n_shared_till_out if self.counts_cells else 0

    def next_step(self, n_batch: int) -> int:
        if self.request is None or self.phase is SlotPhase.WAIT_OTHER:
            return 0
        if self.n_prompt_left:
            return min(n_batch, self.n_prompt_left)
        return 1 + self.request.n_draft

    def seen(self, n_batch: int, *, frees_on_completion: bool) -> SlotView:
        request = self.request
        return SlotView(
            self.slot_id,
            self.phase,
            n_cells=self.n_cells,
            n_cells_owned=self.n_owned,
            n_step_cells=self.next_step(n_batch),
            n_decode_step_cells=1 + request.n_draft if request else 1,
            n_prompt_left=self.n_prompt_left,
            n_kept_cells=self.n_kept,
            request_order=request.order if request else 0,
            priority=request.priority if request else 0,
            started_at_s=self.started_at_s,
            resident_since_s=self.resident_since_s,
            parked_at_s=self.parked_at_s,
            park_order=self.park_order,
            last_used_s=self.last_used_s,
            parked_for_request=self.parked_for_request,
            n_tokens_since_park=self.n_tokens_since_park,
            has_run_since_restore=self.has_run_since_restore,
            has_pending_shift=self.has_pending_shift,
            has_transfer_in_flight=self.n_passes_to_completion is not None or self.n_passes_to_file is not None,
            frees_on_completion=frees_on_completion,
            state_bytes=self.n_cells,
            buffer_bytes=self.buffer_bytes,
            group_id=request.family if request and self.n_shared else None,
            needs_refill=self.needs_refill,
            is_on_disk=self.is_on_disk,
            was_on_disk=self.was_on_disk,
            is_held=self.is_held,
            is_park_refusal_known=self.is_park_refusal_known,
            is_rotation_refusal_known=self.is_rotation_refusal_known,
        )
