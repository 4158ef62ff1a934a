"""The pool of the model engine: slots, cells and host memory as counters, and what each order does to them.

Every effect checks what must hold where it happens. A real pool would answer "no room" or corrupt a copy where this
raises `InvariantError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from pyggml_server.planner import Plan, Policy, View
from pyggml_server.planner.plan import (
    Action,
    DropIdlePrompt,
    FailContext,
    Fetch,
    Forget,
    GiveBackBuffer,
    LimitDraft,
    Park,
    Recompute,
    Refill,
    RefusePark,
    RefuseRotation,
    Restore,
    Spill,
    TrimStarted,
    WaitForPark,
)
from pyggml_server.planner.view import SlotPhase

from tests.planner.invariants import check_not_the_last_resident, class_of, require
from tests.planner.model_family import group_views, leave_family, n_counted_cells, n_used_cells, waiting_children
from tests.planner.model_slot import ModelSlot, Request


class Copies(Enum):
    """When a copy completes, and when a park's cells come free."""

    SYNCHRONOUS = "at once"
    STAGED = "copies complete later, cells come free at once"
    LATE = "copies complete later, and free the cells only then"


@dataclass(frozen=True, slots=True)
class Setup:
    n_cells: int = 100
    n_slots: int = 4
    n_batch: int = 32
    copies: Copies = Copies.SYNCHRONOUS
    n_passes_per_copy: int = 3
    ram_limit: int | None = None
    keeps_buffers: bool = False  # a restored slot keeps its buffer for the next park
    keeps_prompts: bool = True  # an idle slot keeps its cells as a cached prompt
    kept_share: float = 0.5  # of an idle slot's cells that a new request reuses
    pass_s: float = 1.0
    disk_limit: int = 0
    n_passes_per_file: int = 4
    n_cells_missing: int = 0  # so many fewer cells than it says the pool has


class ModelPool:
    """Slots of one pool, and the effects of orders on them."""

    def __init__(self, setup: Setup, policy: Policy | None = None) -> None:
        self.setup = setup
        self.policy = policy or Policy()
        self.slots = [ModelSlot(i) for i in range(setup.n_slots)]
        self.refusals: set[int] = set()  # slots whose next park is refused
        self.pageable: set[int] = set()  # slots that copy synchronously from their next park on
        self.refused: frozenset[int] = frozenset()  # those that were refused in this pass
        self.n_cells_found: int | None = None
        self.now_s = 0.0
        self.file_failures: set[int] = set()  # slots whose next file cannot be written, or read
        self.planned_view: View | None = None  # what the plan that is carried out was made for
        self.counts: dict[str, int] = {}
        self.longest_wait_s = 0.0  # of parked chats
        self.longest_start_wait_s = 0.0  # of prompts that have a slot and no cells

    @property
    def n_used(self) -> int:
        return n_used_cells(self.slots)

    @property
    def ram_held(self) -> int:
        return sum(slot.buffer_bytes for slot in self.slots)

    @property
    def disk_held(self) -> int:
        return sum(slot.disk_bytes for slot in self.slots)

    def copies_of(self, slot: ModelSlot) -> Copies:
        """How the slot's states are copied: a slot whose buffer was pageable once parks synchronously from then on."""
        return Copies.SYNCHRONOUS if slot.slot_id in self.pageable else self.setup.copies

    def observe(self) -> View:
        return View(
            now_s=self.now_s,
            n_cells=self.setup.n_cells,
            n_cells_used=n_counted_cells(self.slots),
            slots=tuple(
                slot.seen(self.setup.n_batch, frees_on_completion=self.copies_of(slot) is Copies.LATE)
                for slot in self.slots
            ),
            n_batch_tokens=self.setup.n_batch,
            ram_limit_bytes=self.setup.ram_limit,
            ram_held_bytes=self.ram_held,
            ahead_bytes=max((s.n_cells + 1 for s in self.slots if s.is_in_pool and s.request), default=0),
            disk_limit_bytes=self.setup.disk_limit,
            disk_held_bytes=self.disk_held,
            refused_parks=self.refused,
            groups=group_views(self.slots),
            n_cells_found=self.n_cells_found,
        )

    def apply(self, plan: Plan) -> int | None:
        """Carry it out in order; the slot whose park was refused, if one was (the rest is then not carried out)."""
        for action in plan.actions:
            slot = self.slots[action.slot_id]
            name = type(action).__name__
            has_copy = slot.n_passes_to_completion is not None or slot.n_passes_to_file is not None
            is_free = not has_copy or isinstance(action, WaitForPark | LimitDraft)
            require(is_free, "nothing is done to a slot under a running copy", repr(action))
            if isinstance(action, Park) and (refused := self._refused_of(slot)):
                self.refusals -= refused
                self._stop_holding(slot)
                return slot.slot_id
            self.counts[name] = self.counts.get(name, 0) + 1
            self._carry_out(action, slot)
            held, limit = self.ram_held, self.setup.ram_limit
            require(limit is None or held <= limit, "RAM is never over budget", f"{held} of {limit} after {action}")
            require(self.disk_held <= self.setup.disk_limit, "the disk is never over its limit", repr(action))
            require(self.n_used <= self.setup.n_cells, "cells are never overcommitted", f"{self.n_used} after {action}")
        return None

    def _carry_out(self, action: Action, slot: ModelSlot) -> None:
        effect = self._EFFECTS.get(type(action))  # holds and limits have none: they bind the batch
        if effect is not None:
            effect(self, action, slot)

    def _wait(self, action: WaitForPark, slot: ModelSlot) -> None:
        require(slot.has_copy and not slot.is_promised, "a wait names a copy in flight", repr(action))
        self._complete(slot)

    def _drop_idle(self, action: DropIdlePrompt, slot: ModelSlot) -> None:
        require(slot.phase is SlotPhase.IDLE, "only idle prompts are dropped", repr(action))
        slot.n_cells = 0

    def _trim(self, action: TrimStarted, slot: ModelSlot) -> None:
        require(slot.phase is SlotPhase.STARTED, "only started slots are trimmed", repr(action))
        slot.n_cells = action.n_keep_cells
        slot.n_kept = min(slot.n_kept, slot.n_cells)

    def _fail(self, action: FailContext, slot: ModelSlot) -> None:
        require(slot.request is not None, "every request ends exactly once", f"nothing to fail: {action}")
        self._release(slot, "failed", keeps_cells=False)

    def _give_back(self, action: GiveBackBuffer, slot: ModelSlot) -> None:
        require(not slot.holds_state, "no buffer that holds a state is given back", repr(action))
        slot.buffer_bytes = 0

    def _refuse_rotation(self, action: RefuseRotation, slot: ModelSlot) -> None:
        require(not slot.is_rotation_refusal_known, "a refused turn is told once", repr(action))
        slot.is_rotation_refusal_known = True

    def _refuse_park(self, action: RefusePark, slot: ModelSlot) -> None:
        require(not slot.is_park_refusal_known, "a refused park is told once", repr(action))
        slot.is_park_refusal_known = True
        self._stop_holding(slot)

    # --- files

    def _spill(self, action: Spill, slot: ModelSlot) -> None:
        is_in_memory = slot.phase is SlotPhase.PREEMPTED and not slot.is_on_disk and not slot.needs_refill
        require(is_in_memory and not slot.n_shared, "only a whole parked state goes to a file", repr(action))
        slot.disk_bytes, slot.n_passes_to_file = slot.n_cells, self.setup.n_passes_per_file

    def _fetch(self, action: Fetch, slot: ModelSlot) -> None:
        require(slot.is_on_disk, "only what is in a file is read", repr(action))
        slot.buffer_bytes, slot.n_passes_to_file = slot.n_cells, self.setup.n_passes_per_file

    def _forget(self, action: Forget, slot: ModelSlot) -> None:
        limit = self.setup.ram_limit
        is_needed = limit is not None and self.ram_held + slot.n_cells > limit
        require(slot.is_on_disk and is_needed, "only what host memory cannot take back is given up", repr(action))
        self._lose_file(slot)

    def _lose_file(self, slot: ModelSlot) -> None:
        if slot.former is SlotPhase.PROCESSING_PROMPT:
            slot.n_cells += slot.n_prompt_left - 1
        slot.needs_refill, slot.is_on_disk, slot.disk_bytes, slot.buffer_bytes = True, False, 0, 0
        if slot.request:
            slot.request.n_recomputes += 1

    def _poll_file(self, slot: ModelSlot) -> None:
        if slot.n_passes_to_file is None:
            return
        slot.n_passes_to_file -= 1
        if slot.n_passes_to_file > 0:
            return
        slot.n_passes_to_file = None
        fails = slot.slot_id in self.file_failures
        self.file_failures.discard(slot.slot_id)
        if not slot.is_on_disk:
            slot.is_on_disk, slot.buffer_bytes = not fails, slot.buffer_bytes if fails else 0
            slot.disk_bytes = 0 if fails else slot.disk_bytes
        elif fails:
            self._lose_file(slot)
        else:
            slot.is_on_disk, slot.was_on_disk, slot.disk_bytes = False, True, 0

    # --- by hand

    def hold(self, slot: ModelSlot) -> None:
        """It is to stay out, with those that leave with it."""
        for member in self._unit(slot):
            member.is_held, member.is_park_refusal_known = True, False

    def call_back(self, slot: ModelSlot) -> None:
        """It may come back, from the end of the line."""
        for member in self._unit(slot):
            if member.is_held and member.phase is SlotPhase.PREEMPTED:
                member.parked_at_s, member.park_order = self.now_s, 1 + max(s.park_order for s in self.slots)
                member.is_rotation_refusal_known = False
            member.is_held = False

    def _stop_holding(self, slot: ModelSlot) -> None:
        for member in self._unit(slot):
            member.is_held = False

    # --- copies

    def _park(self, action: Park, slot: ModelSlot) -> None:
        is_parkable = slot.phase in (SlotPhase.GENERATING, SlotPhase.PROCESSING_PROMPT)
        require(is_parkable, "no slot both parked and restored", f"{action} of a slot that is {slot.phase}")
        require(not slot.has_pending_shift, "an unapplied shift is not parked", repr(action))
        require(slot.has_run_since_restore, "no park-restore-park without a token between", repr(action))
        check_not_the_last_resident(action, self.observe().residents(), gives_way=self._gives_way(action))
        slot.former, slot.phase, slot.was_on_disk = slot.phase, SlotPhase.PREEMPTING, False
        self._join_line(slot)
        slot.parked_for_request = action.for_request
        if action.leaves_group:
            slot.n_shared_till_out = slot.n_shared
            leave_family(self.slots, slot)
        slot.buffer_bytes = max(slot.buffer_bytes, slot.n_cells)
        slot.n_passes_to_completion = self.setup.n_passes_per_copy
        if slot.request:
            slot.request.n_parks += 1
        if self.copies_of(slot) is not Copies.LATE:
            slot.is_in_pool = False
        if self.copies_of(slot) is Copies.SYNCHRONOUS:
            self._complete(slot)

    def _drop(self, action: Recompute, slot: ModelSlot) -> None:
        is_running = slot.phase in (SlotPhase.GENERATING, SlotPhase.PROCESSING_PROMPT)
        require(
            is_running and slot.has_run_since_restore, "nobody is computed again without a token between", repr(slot)
        )
        check_not_the_last_resident(action, self.observe().residents())
        n_held = sum(other.buffer_bytes for other in self.slots if other.holds_state)
        has_room = self.setup.ram_limit is None or n_held + self._n_unit_bytes(slot) <= self.setup.ram_limit
        is_needed = not has_room or any(s.slot_id in self.refused for s in self._unit(slot))
        require(is_needed, "only what host memory cannot hold is computed again", repr(action))
        if slot.phase is SlotPhase.PROCESSING_PROMPT:
            slot.n_cells += slot.n_prompt_left - 1  # the last token of a prompt is decoded for its logits
        slot.former, slot.phase = slot.phase, SlotPhase.PREEMPTED
        self._join_line(slot)
        leave_family(self.slots, slot)
        slot.is_in_pool, slot.needs_refill, slot.has_pending_shift = False, True, False
        if slot.request:
            slot.request.n_recomputes += 1

    def class_of(self, slot_id: int) -> int:
        """The class that the slot counted as when the plan was made; parked by it, it waits anew."""
        view, now = self.planned_view or self.observe(), self.observe().slot(slot_id)
        is_parked_now = now.phase in (SlotPhase.PREEMPTING, SlotPhase.PREEMPTED) and now.parked_at_s == view.now_s
        return class_of(view, self.policy, now if is_parked_now else view.slot(slot_id))

    def _gives_way(self, action: Park) -> bool:
        """Whether the slot passed the prompt for which it leaves, or is of a lower class: that takes its place."""
        waiter = next((s for s in self.slots if s.request and s.request.order == action.for_request), None)
        order = self.slots[action.slot_id].request
        if waiter is None or order is None or waiter.request is None:
            return False
        is_lower = self.class_of(waiter.slot_id) < self.class_of(action.slot_id)
        return is_lower or order.order > waiter.request.order

    def _refused_of(self, slot: ModelSlot) -> set[int]:
        """Who of the slot's unit cannot be parked: then none of it is."""
        return {member.slot_id for member in self._unit(slot)} & self.refusals

    def _n_unit_bytes(self, slot: ModelSlot) -> int:
        return sum(member.n_cells for member in self._unit(slot))

    def _unit(self, slot: ModelSlot) -> list[ModelSlot]:
        """The slot, and those that have to leave with it."""
        family = slot.request.family if slot.request else 0
        return [s for s in self.slots if s is slot or (family and s.request and s.request.family == family)]

    def _join_line(self, slot: ModelSlot) -> None:
        slot.parked_at_s, slot.park_order = self.now_s, 1 + max(other.park_order for other in self.slots)
        slot.is_park_refusal_known = slot.is_rotation_refusal_known = False
        slot.n_tokens_since_park = 0

    def _refill(self, _action: Refill, slot: ModelSlot) -> None:
        require(slot.needs_refill, "only dropped slots are computed again", repr(slot))
        self._leave_line(slot)
        slot.n_refill = slot.n_cells + (1 if slot.former is SlotPhase.PROCESSING_PROMPT else 0)
        slot.n_cells, slot.is_in_pool, slot.needs_refill = 0, True, False
        slot.phase = SlotPhase.PROCESSING_PROMPT

    def _restore(self, _action: Restore, slot: ModelSlot) -> None:
        require(not slot.needs_refill and not slot.is_on_disk, "only what was saved is restored", repr(slot))
        self._leave_line(slot)
        slot.phase = SlotPhase.RESTORING
        slot.is_promised = all(self.copies_of(member) is Copies.STAGED for member in self._unit(slot))
        slot.is_in_pool = not slot.is_promised
        slot.n_passes_to_completion = self.setup.n_passes_per_copy
        if self.copies_of(slot) is Copies.SYNCHRONOUS:
            self._complete(slot)

    def _leave_line(self, slot: ModelSlot) -> None:
        require(slot.phase is SlotPhase.PREEMPTED, "no slot both parked and restored", f"return of {slot}")
        line = [s for s in self.slots if s.is_in_line]
        head = min(line, key=lambda s: (self.class_of(s.slot_id), s.park_order))
        is_its_turn = any(head is member for member in self._unit(slot))  # a unit comes back as one
        require(is_its_turn, "head of the line", f"slot {slot.slot_id} passes slot {head.slot_id}")
        self.longest_wait_s = max(self.longest_wait_s, self.now_s - slot.parked_at_s)
        slot.has_run_since_restore = False
        slot.parked_for_request = None
        slot.resident_since_s = self.now_s

    def _poll(self, slot: ModelSlot) -> None:
        if slot.n_passes_to_completion is not None:
            slot.n_passes_to_completion -= 1
            if slot.n_passes_to_completion <= 0:
                self._complete(slot)

    def _complete(self, slot: ModelSlot) -> None:
        slot.n_passes_to_completion = None
        if slot.phase is SlotPhase.PREEMPTING:
            slot.phase, slot.is_in_pool, slot.n_shared_till_out = SlotPhase.PREEMPTED, False, 0
        elif slot.is_promised:
            self._bring_in(slot)
        else:
            slot.phase = slot.former if slot.phase is SlotPhase.RESTORING else slot.phase
            if not self.setup.keeps_buffers:
                slot.buffer_bytes = 0

    def _bring_in(self, slot: ModelSlot) -> None:
        """Its state is in staging memory: it runs in this pass, during the last part of its copy."""
        slot.phase, slot.is_promised, slot.is_in_pool = slot.former, False, True
        slot.n_passes_to_completion = 1
        require(self.n_used <= self.setup.n_cells, "cells are never overcommitted", f"{self.n_used} once {slot} is in")

    def _end_copy(self, slot: ModelSlot) -> None:
        """Wait for it, and take no cells."""
        slot.is_promised = False
        while slot.n_passes_to_completion is not None:
            self._complete(slot)

    def _release(self, slot: ModelSlot, ending: str, *, keeps_cells: bool) -> None:
        require(slot.n_passes_to_completion is None, "nothing is done to a slot under a running copy", repr(slot))
        for child in waiting_children(self.slots, slot):
            self._release(child, ending, keeps_cells=False)
        keeps_cells = keeps_cells and not slot.n_shared  # the others' prompt is not its to keep
        leave_family(self.slots, slot)
        if slot.request is not None:
            self._end(slot.request, ending)
        n_cells = slot.n_cells if keeps_cells and slot.is_in_pool else 0
        self.n_cells_found = None
        cleared = ModelSlot(slot.slot_id, n_cells=n_cells, last_used_s=self.now_s, park_order=slot.park_order)
        self.slots[slot.slot_id] = cleared

    def _end(self, request: Request, ending: str) -> None:
        request.endings.append(ending)
        request.ended_s = self.now_s

    _EFFECTS: ClassVar[dict[type[Action], Callable[[Any, Any, ModelSlot], None]]] = {
        Park: _park,
        Recompute: _drop,
        Restore: _restore,
        Refill: _refill,
        Spill: _spill,
        Fetch: _fetch,
        Forget: _forget,
        WaitForPark: _wait,
        DropIdlePrompt: _drop_idle,
        TrimStarted: _trim,
        FailContext: _fail,
        GiveBackBuffer: _give_back,
        RefuseRotation: _refuse_rotation,
        RefusePark: _refuse_park,
    }
