"""The pool while a plan is made: who is where, and the sums that the rules ask for. Lives inside one call of `decide`.

It starts as a `View`, and `effects` alone changes it, one slot at a time. Each change updates the sums, so no rule has
to walk all slots to count cells: that keeps `decide` short in a pool of many slots.
"""

from __future__ import annotations

from pyggml_server.planner.classes import Classes
from pyggml_server.planner.policy import Policy
from pyggml_server.planner.view import RESIDENT_PHASES, GroupView, SlotPhase, SlotView, View


class Ledger:
    """Slots by what they do, and sums over them.

    classes           whose turn it is before whose (rule 13).
    residents         slots that hold cells and run, by id.
    cached            idle slots whose prompts may be dropped, by id.
    n_step_cells      residents' next steps, prompt chunks aside.
    n_chunk_cells     residents' prompt chunks. They share a batch, so they take at most `n_batch_tokens` together.
    n_beyond_cells    what residents' prompts take beyond their next chunk.
    n_decode_cells    one decode step of each resident; `n_late_decode_cells`: of those whose parks free cells late.
    n_left_tokens     residents' prompt tokens that are not in the cache; `n_prompt_step_cells` and
                      `n_prompt_decode_cells`: the next step and one decode step of each of these residents.
    n_resident_cells  cells that residents own, each group's shared ones aside.
    n_leftover_cells  cells of started slots beyond the prefix that they keep; `n_prefix_cells`: that prefix.
    n_cached_cells    cells of the cached prompts.
    """

    __slots__ = (
        "_in_flight",
        "_line",
        "_slots",
        "_started",
        "_started_line",
        "_waiting",
        "ahead_bytes",
        "cached",
        "classes",
        "disk_held_bytes",
        "disk_limit_bytes",
        "groups",
        "is_disk_busy",
        "n_batch_tokens",
        "n_beyond_cells",
        "n_cached_cells",
        "n_cells",
        "n_cells_found",
        "n_cells_used",
        "n_chunk_cells",
        "n_decode_cells",
        "n_late_decode_cells",
        "n_left_tokens",
        "n_leftover_cells",
        "n_prefix_cells",
        "n_prompt_decode_cells",
        "n_prompt_step_cells",
        "n_resident_cells",
        "n_step_cells",
        "now_s",
        "ram_held_bytes",
        "ram_limit_bytes",
        "refused_parks",
        "residents",
    )

    def __init__(self, view: View, policy: Policy) -> None:
        self.now_s = view.now_s
        self.classes = Classes(view, policy)
        self.n_cells, self.n_cells_found, self.n_cells_used = view.n_cells, view.n_cells_found, view.n_cells_used
        self.n_batch_tokens = view.n_batch_tokens
        self.ram_limit_bytes, self.ram_held_bytes = view.ram_limit_bytes, view.ram_held_bytes
        self.ahead_bytes = view.ahead_bytes
        self.disk_limit_bytes, self.disk_held_bytes = view.disk_limit_bytes, view.disk_held_bytes
        self.is_disk_busy = view.is_disk_busy
        self.refused_parks = view.refused_parks
        self.groups: dict[int, GroupView] = {group.group_id: group for group in view.groups}
        self.residents: dict[int, SlotView] = {}
        self.cached: dict[int, SlotView] = {}
        self._started: dict[int, SlotView] = {}
        self._waiting: dict[int, SlotView] = {}
        self._in_flight: dict[int, SlotView] = {}
        self._started_line: list[SlotView] | None = None
        self._line: list[SlotView] | None = None
        self.n_step_cells = self.n_chunk_cells = self.n_beyond_cells = self.n_left_tokens = 0
        self.n_decode_cells = self.n_late_decode_cells = self.n_prompt_decode_cells = self.n_prompt_step_cells = 0
        self.n_resident_cells = self.n_leftover_cells = self.n_prefix_cells = self.n_cached_cells = 0
        self._slots: dict[int, SlotView] = {}
        for slot in view.slots:
            self._slots[slot.slot_id] = slot
            self._enter(slot)

    def put(self, slot: SlotView, n_used: int = 0, held_bytes: int = 0) -> None:
        """The slot in place of its former self; cells that a member gains or loses are its group's too."""
        self._exit(self._slots[slot.slot_id])
        self._slots[slot.slot_id] = slot
        self._enter(slot)
        self.n_cells_used += n_used
        self.ram_held_bytes += held_bytes

    def slot(self, slot_id: int) -> SlotView:
        return self._slots[slot_id]

    def slots(self) -> list[SlotView]:
        return list(self._slots.values())

    @property
    def started(self) -> list[SlotView]:
        """Prompts that have no cells of their own request yet, by class, and then first come first."""
        if self._started_line is None:
            self._started_line = sorted(self._started.values(), key=self.latest)
        return self._started_line

    @property
    def line(self) -> list[SlotView]:
        """The line for restores, head first: by class, and then by the time of the park."""
        if self._line is None:
            self._line = sorted(self._waiting.values(), key=self._place)
        return self._line

    @property
    def parks_in_flight(self) -> list[SlotView]:
        """Slots whose cells come free when a copy that is in flight completes, in the order of their issue."""
        return sorted(self._in_flight.values(), key=lambda slot: slot.park_order)

    @property
    def promised(self) -> list[SlotView]:
        """Started prompts for which somebody was parked: they go before those who made room for them."""
        paid_for = {slot.parked_for_request for slot in self._waiting.values()} - {None} if self._started else ()
        return [slot for slot in self.started if slot.request_order in paid_for] if paid_for else []

    @property
    def runners(self) -> list[SlotView]:
        """Slots that run, or are sure to: residents and promised prompts."""
        return [*self.residents.values(), *self.promised]

    @property
    def n_cells_usable(self) -> int:
        """Cells that may be in use at once: all of the pool, or as many as it was found to give to those who run."""
        if self.n_cells_found is None or not self.residents:
            return self.n_cells
        return min(self.n_cells, self.n_cells_found)

    @property
    def n_free_cells(self) -> int:
        return self.n_cells_usable - self.n_cells_used

    @property
    def n_reclaimable_cells(self) -> int:
        """Cells that can be had without preempting anybody: leftovers and cached prompts."""
        return self.n_leftover_cells + self.n_cached_cells

    def latest(self, slot: SlotView) -> tuple[int, int]:
        """Orders slots by class and arrival: who fails first where somebody has to is the last."""
        return (self.classes.of(slot), slot.request_order)

    def _place(self, slot: SlotView) -> tuple[int, float, int]:
        return (self.classes.of(slot), slot.parked_at_s, slot.park_order)

    def _enter(self, slot: SlotView) -> None:
        phase = slot.phase
        if phase in RESIDENT_PHASES:
            self.residents[slot.slot_id] = slot
            self._count(slot, 1)
        elif phase is SlotPhase.STARTED:
            self._started[slot.slot_id], self._started_line = slot, None
            self._count_started(slot, 1)
        elif slot.is_in_line:
            self._waiting[slot.slot_id], self._line = slot, None
        elif phase is SlotPhase.IDLE and slot.n_cells_owned and not slot.has_transfer_in_flight:
            self.cached[slot.slot_id] = slot
            self.n_cached_cells += slot.n_cells_owned
        if slot.has_transfer_in_flight and phase in _FREES_WHEN_COMPLETE and _brings_cells(slot):
            self._in_flight[slot.slot_id] = slot

    def _exit(self, slot: SlotView) -> None:
        slot_id = slot.slot_id
        if slot_id in self.residents:
            self._count(self.residents.pop(slot_id), -1)
        elif slot_id in self._started:
            self._count_started(self._started.pop(slot_id), -1)
            self._started_line = None
        elif slot_id in self._waiting:
            del self._waiting[slot_id]
            self._line = None
        elif slot_id in self.cached:
            self.n_cached_cells -= self.cached.pop(slot_id).n_cells_owned
        self._in_flight.pop(slot_id, None)

    def _count(self, slot: SlotView, sign: int) -> None:
        n_step, n_decode = sign * slot.n_step_cells, sign * slot.n_decode_step_cells
        self.n_resident_cells += sign * slot.n_cells_owned
        self.n_decode_cells += n_decode
        if slot.frees_on_completion:
            self.n_late_decode_cells += n_decode
        if not slot.n_prompt_left:
            self.n_step_cells += n_step
            return
        if slot.is_media_step:
            self.n_step_cells += n_step
        else:
            self.n_chunk_cells += n_step
        self.n_beyond_cells += sign * max(0, slot.n_prompt_left - slot.n_step_cells)
        self.n_left_tokens += sign * slot.n_prompt_left
        self.n_prompt_step_cells += n_step
        self.n_prompt_decode_cells += n_decode

    def _count_started(self, slot: SlotView, sign: int) -> None:
        if slot.n_cells:
            n_leftover = n_trimmed_cells(slot, slot.n_kept_cells)
            self.n_leftover_cells += sign * n_leftover
            self.n_prefix_cells += sign * (n_trimmed_cells(slot, 0) - n_leftover)


#: A copy out of these gives cells back when it completes. IDLE: a save to the prompt cache.
_FREES_WHEN_COMPLETE = frozenset({SlotPhase.PREEMPTING, SlotPhase.IDLE})


def _brings_cells(slot: SlotView) -> bool:
    """Its own; or, even without any, those that it shares with others who leave."""
    return slot.n_cells_owned > 0 or (slot.group_id is not None and slot.frees_on_completion)


def n_trimmed_cells(slot: SlotView, n_keep_cells: int) -> int:
    """Cells that come free when a started slot is cut down to its first `n_keep_cells`."""
    return max(0, min(slot.n_cells - n_keep_cells, slot.n_cells_owned))
