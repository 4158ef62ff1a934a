"""What the planner may know: one frozen picture of the pool and the slots, taken at the top of a pass.

Owns the data types only; they are values, safe on any thread. The engine's `observe` builds a `View` for `decide`.
Nothing here reads a clock, a model or a buffer: time arrives as `now_s`, sizes arrive as counts of cells and bytes.

A *cell* is one entry of the unified KV pool, counted once however many sequences use it. A *step* of a slot is the
cells that its next decode takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum


class SlotPhase(Enum):
    """Where a slot is in its life. `engine.slot_states` holds the moves between them."""

    __hash__ = object.__hash__  # Enum's own is a Python function, and the rules look phases up all the time

    IDLE = "idle"
    WAIT_OTHER = "wait_other"
    STARTED = "started"
    PROCESSING_PROMPT = "processing_prompt"
    DONE_PROMPT = "done_prompt"
    GENERATING = "generating"
    PREEMPTING = "preempting"
    PREEMPTED = "preempted"
    RESTORING = "restoring"


#: Slots that hold cells and run: "resident". A started slot is not one yet: it may be made to wait at no cost.
RESIDENT_PHASES = frozenset(
    {SlotPhase.PROCESSING_PROMPT, SlotPhase.DONE_PROMPT, SlotPhase.GENERATING, SlotPhase.RESTORING}
)
#: Slots that may be parked.
PARKABLE_PHASES = frozenset({SlotPhase.PROCESSING_PROMPT, SlotPhase.GENERATING})


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot. Times are in the clock of `View.now_s`; only the fields that a phase uses need be set.

    Sizes in cells:
      n_cells             of its sequence: in the pool, or (PREEMPTING, PREEMPTED) needed to come back; an IDLE slot's
                          cells are its cached prompt.
      n_cells_owned       those of `n_cells` that no other sequence uses = what its park, drop or end gives back.
                          0 once a park has released them (PREEMPTED; PREEMPTING that released at issue). Of a RESTORING
                          slot those that are promised to it count.
      n_step_cells        next step: 1 + draft while generating; the next prompt chunk (at most n_batch) while STARTED
                          or processing a prompt, for STARTED counted from the kept prefix; the whole chunk for media.
                          For PREEMPTED and RESTORING: the step that it takes once it is back.
      n_decode_step_cells 1 + longest draft: the unit of the lookahead, whatever the phase.
      n_prompt_left       tokens of the prompt not yet in the cache, from the kept prefix on; 0 once it generates.
      n_kept_cells        STARTED: the prefix of `n_cells` that its request will reuse; the rest may be trimmed.

    Order:
      request_order       number of the request, growing in order of arrival and never used twice.
      priority            class of the request: lower runs first (rule 13).
      started_at_s        when its request got the slot and began to wait for cells.
      resident_since_s    when it last got cells (start of its prompt, or its restore); of a refill, its end.
      parked_at_s         when its park was issued; `park_order` breaks ties and grows with each park of the engine.
      last_used_s         IDLE: when its cached prompt was last used.

    Preemption:
      parked_for_request  PREEMPTING, PREEMPTED: `Park.for_request` of its park: the started prompt that gets its room.
      n_tokens_since_park tokens generated since its last park, or since the request began.
      has_run_since_restore  False from its restore until it has decoded something, and from its `Refill` until it is
                          back where it was (True if it was never away).
      needs_refill        PREEMPTED by `Recompute`: no state lies on the host. `n_cells` is what it takes to come back,
                          the last token of an unfinished prompt aside (that is `n_prompt_left`).
      has_pending_shift   a context or cache-reuse shift not applied yet: must not be parked.
      has_transfer_in_flight  any copy of its state is under way: a prompt-cache save of an IDLE slot included, and the
                          last part of a restore, during which the slot already runs; also to
                          a file or back.
      frees_on_completion  a park of it gives its cells back only when the copy completes (asynchronous, not staged).
      state_bytes         host memory that a park of it needs (target and draft together); residents' may be left at 0
                          for a first look (`Plan.has_parks`).
      buffer_bytes        host memory that it holds now, used or kept for its next park.
      group_id            n > 1 requests that still share cells (see `GroupView`); None once diverged.
      is_media_step       the next step is a media chunk: never cut.
      is_on_disk          PREEMPTED: a file has its state, of `state_bytes`, and host memory has none.
      was_on_disk         PREEMPTED: its state was in a file since its park, and came back.
      is_held             it was told to stay out of the pool until it is called back (rule 14).
      is_park_refusal_known  a `RefusePark` was already carried out since it last got cells.
      is_rotation_refusal_known  a `RefuseRotation` was already carried out for its present wait.
    """

    slot_id: int
    phase: SlotPhase
    n_cells: int = 0
    n_cells_owned: int = 0
    n_step_cells: int = 0
    n_decode_step_cells: int = 1
    n_prompt_left: int = 0
    n_kept_cells: int = 0
    request_order: int = 0
    priority: int = 0
    started_at_s: float = 0.0
    resident_since_s: float = 0.0
    parked_at_s: float = 0.0
    park_order: int = 0
    last_used_s: float = 0.0
    parked_for_request: int | None = None
    n_tokens_since_park: int = 0
    has_run_since_restore: bool = True
    needs_refill: bool = False
    has_pending_shift: bool = False
    has_transfer_in_flight: bool = False
    frees_on_completion: bool = False
    state_bytes: int = 0
    buffer_bytes: int = 0
    group_id: int | None = None
    is_media_step: bool = False
    is_on_disk: bool = False
    was_on_disk: bool = False
    is_held: bool = False
    is_park_refusal_known: bool = False
    is_rotation_refusal_known: bool = False

    @property
    def waits_since_s(self) -> float:
        """Since when it waits for cells; of a resident, since when it waited for those that it has."""
        return max(self.started_at_s, self.parked_at_s)

    @property
    def is_in_line(self) -> bool:
        """Whether it stands in the line for restores: parked or on its way out, and not to stay out."""
        return self.phase in (SlotPhase.PREEMPTING, SlotPhase.PREEMPTED) and not self.is_held

    @property
    def n_alone_cells(self) -> int:
        """Cells without which it can never go on, even with the pool to itself: the whole prompt, or one token."""
        n_base = self.n_kept_cells if self.phase is SlotPhase.STARTED else self.n_cells
        return n_base + (self.n_prompt_left or 1)

    def as_whole(self) -> SlotView:
        """The prompt as if it took all of its tokens in its next step: uncut, and beyond one batch."""
        return replace(self, n_step_cells=self.n_prompt_left, is_media_step=True)


@dataclass(frozen=True, slots=True)
class GroupView:
    """Parent and children that share cells, counted together: they leave, and come back, as one.

    n_cells        what all of them take in the pool once they are back.
    n_cells_owned  what comes free when all of them leave; 0 while they are parked.
    """

    group_id: int
    n_cells: int
    n_cells_owned: int


@dataclass(frozen=True, slots=True)
class View:
    """The pool and its slots at one moment.

    n_cells          cells of the pool (of the base cache where there is a window cache too).
    n_cells_found    cells beyond which the pool refused a batch though by the count it had room; None if it did not. It
                     is believed as long as anybody runs: what runs has to fit, what waits is not failed for it.
    n_cells_used     cells in use or promised, each once: idle slots' prompts, STARTED leftovers, PREEMPTING until
                     released, and RESTORING included, from its order on. Promised are those of a restore whose state is
                     on its way to staging memory: the pool still has them, and nobody else may get them, or the state
                     would find none when it is there. The steps ahead that each admission leaves clear cover what the
                     others take meanwhile, so that this parks nobody.
    n_batch_tokens   the most prompt tokens that one pass decodes, all slots together (media chunks come on top).
    ram_limit_bytes  `--preempt-ram` in bytes; None = no limit.
    ram_held_bytes   host memory held by or for tasks, buffers kept for the next park included.
    ahead_bytes      host memory that the next park may take, by estimate; 0 where nothing can go to files.
    disk_limit_bytes  `--preempt-disk` in bytes; 0 = no files, or none at the moment.
    disk_held_bytes  of it, what files have.
    is_disk_busy     a file is written or read that nobody wants any more.
    refused_parks    slots whose park the engine tried in this pass and could not carry out (allocation, copy).
    """

    now_s: float
    n_cells: int
    n_cells_used: int
    slots: tuple[SlotView, ...]
    n_batch_tokens: int
    ram_limit_bytes: int | None = None
    ram_held_bytes: int = 0
    ahead_bytes: int = 0
    disk_limit_bytes: int = 0
    disk_held_bytes: int = 0
    is_disk_busy: bool = False
    refused_parks: frozenset[int] = frozenset()
    groups: tuple[GroupView, ...] = ()
    n_cells_found: int | None = None

    @property
    def n_cells_usable(self) -> int:
        """Cells that may be in use at once: all of the pool, or as many as it was found to give to those who run."""
        if self.n_cells_found is None or not any(self.residents()):
            return self.n_cells
        return min(self.n_cells, self.n_cells_found)

    def slot(self, slot_id: int) -> SlotView:
        """The slot of that id; KeyError when the view has none."""
        for slot in self.slots:
            if slot.slot_id == slot_id:
                return slot
        raise KeyError(f"no slot {slot_id} in this view; it has {[s.slot_id for s in self.slots]}")

    def group(self, group_id: int) -> GroupView:
        """The group of that id; KeyError when the view has none."""
        for group in self.groups:
            if group.group_id == group_id:
                return group
        raise KeyError(f"no group {group_id} in this view; it has {[g.group_id for g in self.groups]}")

    def residents(self) -> Iterator[SlotView]:
        """Slots that hold cells and run, those on their way in included."""
        return (slot for slot in self.slots if slot.phase in RESIDENT_PHASES)

    def started(self) -> list[SlotView]:
        """Prompts that have no cells of their own request yet, first come first."""
        return sorted((s for s in self.slots if s.phase is SlotPhase.STARTED), key=lambda s: s.request_order)

    def waiting(self) -> list[SlotView]:
        """The line for restores, head first."""
        line = (s for s in self.slots if s.is_in_line)
        return sorted(line, key=lambda s: (s.parked_at_s, s.park_order))
