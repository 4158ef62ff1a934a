"""A model of the engine's loop: it carries plans out on counters instead of cells, checking every invariant as it goes.

Written from `plan.py`'s contract, not from the planner's code. A real pool would answer "no room" or corrupt a copy
where this raises `InvariantError`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from pyggml_server.planner import Plan, Policy, View, decide
from pyggml_server.planner.plan import (
    Action,
    DropIdlePrompt,
    FailContext,
    GiveBackBuffer,
    LimitDraft,
    Park,
    RefuseRotation,
    Restore,
    TrimStarted,
    WaitForPark,
)
from pyggml_server.planner.view import SlotPhase

from tests.planner.invariants import (
    check_empty_when_nothing_is_short,
    check_no_slot_both_parked_and_restored,
    check_not_the_last_resident,
    check_wait_is_last,
    n_short_of_head,
    require,
)
from tests.planner.model_slot import ModelSlot, Request

Decide = Callable[[View, Policy], Plan]


class Copies(Enum):
    """When a copy lands, and when a park's cells come free."""

    SYNCHRONOUS = "at once"
    STAGED = "copies land later, cells come free at once"
    LATE = "copies land later, and free the cells only then"


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


class ModelEngine:
    """`step()` is one pass of the loop. Requests end as "finished", "failed" or "cancelled"."""

    def __init__(self, setup: Setup, policy: Policy, decider: Decide = decide) -> None:
        self.setup = setup
        self.policy = policy
        self.decide = decider
        self.slots = [ModelSlot(i) for i in range(setup.n_slots)]
        self.requests: list[Request] = []
        self.queue: deque[Request] = deque()
        self.refusals: set[int] = set()  # slots whose next park is refused
        self.now_s = 0.0
        self.n_passes = 0
        self.n_idle_passes = 0
        self.counts: dict[str, int] = {}
        self.longest_wait_s = 0.0

    # --- from outside

    def submit(self, n_prompt: int, n_generate: int, n_draft: int = 0) -> Request:
        request = Request(len(self.requests) + 1, n_prompt, n_generate, self.now_s, n_draft)
        self.requests.append(request)
        self.queue.append(request)
        return request

    def cancel(self, request: Request) -> None:
        """Wait for the slot's copy, then drop it (rule 12)."""
        if request in self.queue:
            self.queue.remove(request)
            self._end(request, "cancelled")
        for slot in self.slots:
            if slot.request is request:
                self._land(slot)
                self._release(slot, "cancelled", keeps_cells=slot.is_in_pool and self.setup.keeps_prompts)

    @property
    def n_used(self) -> int:
        return sum(slot.n_owned for slot in self.slots)

    @property
    def ram_held(self) -> int:
        return sum(slot.buffer_bytes for slot in self.slots)

    @property
    def is_done(self) -> bool:
        return not self.queue and all(slot.phase is SlotPhase.IDLE for slot in self.slots)

    def run_out(self, n_passes_max: int) -> None:
        """Step until every request has ended; "liveness" breaks if that takes more than so many passes."""
        for _ in range(n_passes_max):
            if self.is_done:
                break
            self.step()
        require(self.is_done, "liveness", f"not done after {n_passes_max} passes: {self.slots}")
        for request in self.requests:
            require(len(request.endings) == 1, "every request ends exactly once", repr(request))
        require(self.ram_held == 0, "RAM is zero at the end", repr(self.ram_held))

    # --- one pass

    def step(self) -> None:
        self.n_passes += 1
        self.now_s += self.setup.pass_s
        self._assign()
        for slot in self.slots:
            self._poll(slot)
        plan, has_progress = self._plan()
        has_progress = self._decode(plan) or has_progress
        has_copies = any(slot.n_passes_to_landing is not None for slot in self.slots)
        self.n_idle_passes = 0 if has_progress or has_copies or self.is_done else self.n_idle_passes + 1
        require(self.n_idle_passes <= 2, "liveness", f"nothing moved in {self.n_idle_passes} passes: {self.slots}")

    def observe(self, refused: frozenset[int]) -> View:
        late = self.setup.copies is Copies.LATE
        return View(
            now_s=self.now_s,
            n_cells=self.setup.n_cells,
            n_cells_used=self.n_used,
            slots=tuple(slot.seen(self.setup.n_batch, frees_on_landing=late) for slot in self.slots),
            n_batch_tokens=self.setup.n_batch,
            ram_limit_bytes=self.setup.ram_limit,
            ram_held_bytes=self.ram_held,
            refused_parks=refused,
        )

    def _plan(self) -> tuple[Plan, bool]:
        """Decide and apply until the batch may be built. Also whether anybody failed, which counts as progress."""
        refused: frozenset[int] = frozenset()
        has_failures = False
        for _ in range(3 * self.setup.n_slots + 3):
            view = self.observe(refused)
            plan = self.decide(view, self.policy)
            check_empty_when_nothing_is_short(view, self.policy, plan)
            check_no_slot_both_parked_and_restored(plan)
            check_wait_is_last(plan)
            refusal = self._apply(plan)
            has_failures = has_failures or any(isinstance(action, FailContext) for action in plan.actions)
            if refusal is not None:
                refused |= {refusal}
            elif plan.may_decode:
                return plan, has_failures
        require(False, "liveness", "looks again for ever")
        raise AssertionError

    def _apply(self, plan: Plan) -> int | None:
        """Carry it out in order; the slot whose park was refused, if one was (the rest is then not carried out)."""
        for action in plan.actions:
            slot = self.slots[action.slot_id]
            name = type(action).__name__
            is_free = slot.n_passes_to_landing is None or isinstance(action, WaitForPark | LimitDraft)
            require(is_free, "nothing is done to a slot under a running copy", repr(action))
            if isinstance(action, Park) and slot.slot_id in self.refusals:
                self.refusals.discard(slot.slot_id)
                return slot.slot_id
            self.counts[name] = self.counts.get(name, 0) + 1
            self._carry_out(action, slot)
            held, limit = self.ram_held, self.setup.ram_limit
            require(limit is None or held <= limit, "RAM is never over budget", f"{held} of {limit} after {action}")
            require(self.n_used <= self.setup.n_cells, "cells are never overcommitted", f"{self.n_used} after {action}")
        return None

    def _carry_out(self, action: Action, slot: ModelSlot) -> None:
        match action:
            case Park():
                self._park(action, slot)
            case Restore():
                self._restore(slot)
            case WaitForPark():
                require(slot.phase is SlotPhase.PREEMPTING, "a wait names a park in flight", repr(action))
                self._land(slot)
            case DropIdlePrompt():
                require(slot.phase is SlotPhase.IDLE, "only idle prompts are dropped", repr(action))
                slot.n_cells = 0
            case TrimStarted():
                require(slot.phase is SlotPhase.STARTED, "only started slots are trimmed", repr(action))
                slot.n_cells = action.n_keep_cells
                slot.n_kept = min(slot.n_kept, slot.n_cells)
            case FailContext():
                require(slot.request is not None, "every request ends exactly once", f"nothing to fail: {action}")
                self._release(slot, "failed", keeps_cells=False)
            case GiveBackBuffer():
                has_state = slot.phase in (SlotPhase.PREEMPTED, SlotPhase.PREEMPTING, SlotPhase.RESTORING)
                require(not has_state, "no buffer that holds a state is given back", repr(action))
                slot.buffer_bytes = 0
            case RefuseRotation():
                require(not slot.is_rotation_refusal_known, "a refused turn is told once", repr(action))
                slot.is_rotation_refusal_known = True
            case _:
                pass  # holds and limits bind the batch

    # --- copies

    def _park(self, action: Park, slot: ModelSlot) -> None:
        is_parkable = slot.phase in (SlotPhase.GENERATING, SlotPhase.PROCESSING_PROMPT)
        require(is_parkable, "no slot both parked and restored", f"{action} of a slot that is {slot.phase}")
        require(not slot.has_pending_shift, "an unapplied shift is not parked", repr(action))
        require(slot.has_run_since_restore, "no park-restore-park without a token between", repr(action))
        late_view = self.observe(frozenset())
        check_not_the_last_resident(action, late_view.residents())
        slot.former, slot.phase = slot.phase, SlotPhase.PREEMPTING
        slot.parked_at_s, slot.park_order = self.now_s, 1 + max(other.park_order for other in self.slots)
        slot.parked_for_request = action.for_request
        slot.is_rotation_refusal_known = False
        slot.n_tokens_since_park = 0
        slot.buffer_bytes = max(slot.buffer_bytes, slot.n_cells)
        slot.n_passes_to_landing = self.setup.n_passes_per_copy
        if slot.request:
            slot.request.n_parks += 1
        if self.setup.copies is not Copies.LATE:
            slot.is_in_pool = False
        if self.setup.copies is Copies.SYNCHRONOUS:
            self._land(slot)

    def _restore(self, slot: ModelSlot) -> None:
        require(slot.phase is SlotPhase.PREEMPTED, "no slot both parked and restored", f"restore of {slot}")
        line = [s for s in self.slots if s.phase in (SlotPhase.PREEMPTED, SlotPhase.PREEMPTING)]
        head = min(line, key=lambda s: s.park_order)
        require(head is slot, "head of the line", f"slot {slot.slot_id} passes slot {head.slot_id}")
        self.longest_wait_s = max(self.longest_wait_s, self.now_s - slot.parked_at_s)
        slot.phase, slot.is_in_pool = SlotPhase.RESTORING, True
        slot.has_run_since_restore = False
        slot.parked_for_request = None
        slot.resident_since_s = self.now_s
        slot.n_passes_to_landing = self.setup.n_passes_per_copy
        if self.setup.copies is Copies.SYNCHRONOUS:
            self._land(slot)

    def _poll(self, slot: ModelSlot) -> None:
        if slot.n_passes_to_landing is not None:
            slot.n_passes_to_landing -= 1
            if slot.n_passes_to_landing <= 0:
                self._land(slot)

    def _land(self, slot: ModelSlot) -> None:
        slot.n_passes_to_landing = None
        if slot.phase is SlotPhase.PREEMPTING:
            slot.phase, slot.is_in_pool = SlotPhase.PREEMPTED, False
        elif slot.phase is SlotPhase.RESTORING:
            slot.phase = slot.former
            if not self.setup.keeps_buffers:
                slot.buffer_bytes = 0

    # --- the batch

    def _decode(self, plan: Plan) -> bool:
        """Build and decode one batch: one token and draft for each generating slot, then chunks up to n_batch."""
        steps: list[tuple[ModelSlot, int]] = []
        for slot in self.slots:
            if slot.phase is SlotPhase.GENERATING and slot.request:
                n_draft = min(slot.request.n_draft, plan.draft_limits.get(slot.slot_id, slot.request.n_draft))
                steps.append((slot, 1 + n_draft))
        n_batch_left = self.setup.n_batch
        for slot in self.slots:
            if slot.phase not in (SlotPhase.STARTED, SlotPhase.PROCESSING_PROMPT) or slot.slot_id in plan.held_prompts:
                continue
            n_step = min(slot.n_prompt_left, n_batch_left, plan.prompt_limits.get(slot.slot_id, slot.n_prompt_left))
            if n_step:
                n_batch_left -= n_step
                self._begin(slot)
                steps.append((slot, n_step))
        n_taken = self.n_used + sum(n for _, n in steps)
        require(n_taken <= self.setup.n_cells, "cells are never overcommitted", f"{n_taken} of {self.setup.n_cells}")
        for slot, n_step in steps:
            self._advance(slot, n_step)
        return bool(steps)

    def _begin(self, slot: ModelSlot) -> None:
        """A started prompt gets its first cells: nobody parked before may be kept out by it."""
        if slot.phase is not SlotPhase.STARTED or slot.request is None:
            return
        view = self.observe(frozenset())
        order = slot.request.order
        # whoever was parked in this very pass for a prompt that came later was not waiting when this one had its turn
        line = [s for s in view.waiting() if s.parked_at_s < self.now_s or (s.parked_for_request or 0) <= order]
        is_promised = any(s.parked_for_request == order for s in line)
        if line and not is_promised and not self._has_turn(slot, line[0].parked_at_s):
            n_more = slot.n_prompt_left - (slot.n_cells - slot.n_kept)
            n_spare = sum(s.n_cells - s.n_kept for s in self.slots if s.phase in (SlotPhase.IDLE, SlotPhase.STARTED))
            n_short = n_short_of_head(view, line[0], self.policy, n_more) - n_spare
            require(
                n_short <= 0, "new prompts do not overtake", f"slot {slot.slot_id}, head {line[0].slot_id}: {n_short}"
            )
        slot.n_cells = slot.n_kept
        slot.phase = SlotPhase.PROCESSING_PROMPT
        slot.resident_since_s = self.now_s

    def _has_turn(self, slot: ModelSlot, head_waits_since_s: float) -> bool:
        """Rotation is on, and the prompt has waited longer than the delay and longer than the head."""
        is_due = self.now_s - slot.started_at_s > self.policy.rotate_s > 0
        return is_due and slot.started_at_s < head_waits_since_s

    def _advance(self, slot: ModelSlot, n_step: int) -> None:
        request = slot.request
        if request is None:
            return
        slot.has_run_since_restore = True
        slot.has_pending_shift = False
        if slot.phase is SlotPhase.PROCESSING_PROMPT:
            slot.n_cells += n_step
            if slot.n_prompt_left:
                return
            slot.phase = SlotPhase.GENERATING
            request.first_token_s = self.now_s
            n_new = 1
        else:
            n_new = min(1 + (n_step - 1) // 2, request.n_generate - request.n_generated)  # half the draft is accepted
            slot.n_cells += n_new
        request.n_generated += n_new
        slot.n_tokens_since_park += n_new
        if request.n_generated >= request.n_generate:
            self._release(slot, "finished", keeps_cells=self.setup.keeps_prompts)

    # --- ends and beginnings

    def _assign(self) -> None:
        free = sorted((s for s in self.slots if s.phase is SlotPhase.IDLE), key=lambda s: s.last_used_s)
        for slot in free:
            if not self.queue:
                return
            request = self.queue.popleft()
            slot.request, slot.phase, slot.started_at_s = request, SlotPhase.STARTED, self.now_s
            slot.n_kept = min(int(slot.n_cells * self.setup.kept_share), request.n_prompt - 1)
            slot.n_tokens_since_park = 0

    def _release(self, slot: ModelSlot, ending: str, *, keeps_cells: bool) -> None:
        require(slot.n_passes_to_landing is None, "nothing is done to a slot under a running copy", repr(slot))
        if slot.request is not None:
            self._end(slot.request, ending)
        n_cells = slot.n_cells if keeps_cells and slot.is_in_pool else 0
        cleared = ModelSlot(slot.slot_id, n_cells=n_cells, last_used_s=self.now_s, park_order=slot.park_order)
        self.slots[slot.slot_id] = cleared

    def _end(self, request: Request, ending: str) -> None:
        request.endings.append(ending)
        request.ended_s = self.now_s
