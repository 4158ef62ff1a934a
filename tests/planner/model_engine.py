"""A model of the engine's loop: it carries plans out on counters instead of cells, checking every invariant as it goes.

Written from `plan.py`'s contract, not from the planner's code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from pyggml_server.planner import Plan, Policy, View, decide
from pyggml_server.planner.plan import FailContext
from pyggml_server.planner.view import SlotPhase

from tests.planner.invariants import (
    check_empty_when_nothing_is_short,
    check_no_slot_both_parked_and_restored,
    check_sizes_matter_to_parks_only,
    check_wait_is_last,
    n_short_of_head,
    require,
)
from tests.planner.model_family import share_prompt, waiting_children
from tests.planner.model_pool import ModelPool, Setup
from tests.planner.model_slot import ModelSlot, Request

Decide = Callable[[View, Policy], Plan]


class ModelEngine(ModelPool):
    """`step()` is one pass of the loop. Requests end as "finished", "failed" or "cancelled"."""

    def __init__(self, setup: Setup, policy: Policy, decider: Decide = decide) -> None:
        super().__init__(setup, policy)
        self.decide = decider
        self.requests: list[Request] = []
        self.queue: deque[list[Request]] = deque()  # families; most are one request
        self.n_passes = 0
        self.n_idle_passes = 0
        self.families_passed: set[int] = set()  # those that waited for slots while who came later got theirs

    # --- from outside

    def submit(self, n_prompt: int, n_generate: int, n_draft: int = 0, n: int = 1, priority: int = 0) -> Request:
        """One request; with `n` above 1 a parent, which is returned, and its children, which get its prompt."""
        first = len(self.requests) + 1
        n = min(n, len(self.slots))
        family = [
            Request(first + i, n_prompt, n_generate, self.now_s, n_draft, priority, first if n > 1 else 0)
            for i in range(n)
        ]
        self.requests += family
        self.queue.append(family)
        return family[0]

    def cancel(self, request: Request) -> None:
        """Wait for the slot's copy, then drop it (rule 12)."""
        for family in [family for family in self.queue if request in family]:
            family.remove(request)
            self._end(request, "cancelled")
            if not family:
                self.queue.remove(family)
        for slot in self.slots:
            if slot.request is request:
                self._end_copy(slot)
                self._release(slot, "cancelled", keeps_cells=slot.is_in_pool and self.setup.keeps_prompts)

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
            self._poll_file(slot)
        plan, has_progress = self._plan()
        has_progress = self._decode(plan) or has_progress
        has_copies = any(s.n_passes_to_completion is not None or s.n_passes_to_file is not None for s in self.slots)
        is_still = all(s.is_held or s.phase in (SlotPhase.IDLE, SlotPhase.WAIT_OTHER) for s in self.slots)
        may_rest = has_progress or has_copies or self.is_done or is_still
        self.n_idle_passes = 0 if may_rest else self.n_idle_passes + 1
        require(self.n_idle_passes <= 4, "liveness", f"nothing moved in {self.n_idle_passes} passes: {self.slots}")

    def _plan(self) -> tuple[Plan, bool]:
        """Decide and apply until the batch may be built. Also whether anybody failed, which counts as progress."""
        self.refused = frozenset()
        has_failures = False
        for _ in range(3 * self.setup.n_slots + 3):
            view = self.planned_view = self.observe()
            plan = self.decide(view, self.policy)
            check_empty_when_nothing_is_short(view, self.policy, plan)
            if view.ram_limit_bytes is not None:
                check_sizes_matter_to_parks_only(view, plan, lambda seen: self.decide(seen, self.policy))
            check_no_slot_both_parked_and_restored(plan)
            check_wait_is_last(plan)
            refusal = self.apply(plan)
            has_failures = has_failures or any(isinstance(action, FailContext) for action in plan.actions)
            if refusal is not None:
                self.refused |= {refusal}
            elif plan.may_decode:
                return plan, has_failures
        require(False, "liveness", "looks again for ever")
        raise AssertionError

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
        n_advanced = 0
        for slot, n_step in steps:
            n_fitting = self._n_fitting(slot, n_step)
            if n_fitting:
                self._advance(slot, n_fitting)
                n_advanced += 1
            if n_fitting < n_step:
                break  # given up here, as the engine does
        return n_advanced > 0

    def _n_fitting(self, slot: ModelSlot, n_step: int) -> int:
        """The pool may have fewer cells than it says: here that is found out."""
        n_free = max(0, self.setup.n_cells - self.setup.n_cells_missing - self.n_used)
        if n_free >= n_step:
            return n_step
        self.n_cells_found = self.n_used + n_free
        return n_free if slot.n_prompt_left else min(n_free, 1)

    def _begin(self, slot: ModelSlot) -> None:
        """A started prompt gets its first cells: nobody parked before may be kept out by it."""
        if slot.phase is not SlotPhase.STARTED or slot.request is None:
            return
        view = self.observe()
        order = slot.request.order
        # whoever was parked in this very pass for a prompt that came later was not waiting when this one had its turn
        own_class = self.class_of(slot.slot_id)
        line = [
            s
            for s in sorted(view.waiting(), key=lambda s: self.class_of(s.slot_id))
            if (s.parked_at_s < self.now_s or (s.parked_for_request or 0) <= order)
            and self.class_of(s.slot_id) <= own_class
        ]
        is_promised = any(s.parked_for_request == order for s in view.waiting())
        has_turn = bool(line) and self.class_of(line[0].slot_id) == own_class
        has_turn = has_turn and self._has_turn(slot, line[0].parked_at_s)
        if line and not is_promised and not has_turn:
            n_more = slot.n_prompt_left - (slot.n_cells - slot.n_kept)
            n_spare = sum(s.n_cells - s.n_kept for s in self.slots if s.phase in (SlotPhase.IDLE, SlotPhase.STARTED))
            n_short = n_short_of_head(view, line[0], self.policy, n_more) - n_spare
            require(
                n_short <= 0, "new prompts do not overtake", f"slot {slot.slot_id}, head {line[0].slot_id}: {n_short}"
            )
        self.longest_start_wait_s = max(self.longest_start_wait_s, self.now_s - slot.started_at_s)
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
        if slot.n_passes_to_completion is not None:
            self._complete(slot)  # what decodes has waited for it
        slot.has_pending_shift = False
        request.n_passes_in_batch += 1
        if slot.phase is SlotPhase.PROCESSING_PROMPT:
            slot.n_cells += n_step
            slot.has_run_since_restore = not slot.n_refill or not slot.n_prompt_left
            if slot.n_prompt_left:
                return
            if slot.n_refill:
                slot.resident_since_s = self.now_s
            slot.n_refill = 0
            slot.phase = SlotPhase.GENERATING
            if request.n_generated:
                return
            request.first_token_s = self.now_s
            self._give_children_their_prompt(slot)
            n_new = 1
        else:
            slot.has_run_since_restore = True
            n_new = min(1 + (n_step - 1) // 2, request.n_generate - request.n_generated)  # half the draft is accepted
            slot.n_cells += n_new
        request.n_generated += n_new
        slot.n_tokens_since_park += n_new
        if request.n_generated >= request.n_generate:
            self._release(slot, "finished", keeps_cells=self.setup.keeps_prompts)

    def _give_children_their_prompt(self, parent: ModelSlot) -> None:
        children = waiting_children(self.slots, parent)
        share_prompt(parent, children, self.now_s)
        for child in children:
            child.is_held = parent.is_held
        for child in children:
            if child.request and child.request.n_generate == 1:
                self._release(child, "finished", keeps_cells=False)

    # --- ends and beginnings

    def _assign(self) -> None:
        """First come first served among those who find a slot for each of their answers, as in `engine`: a family that
        waits for several slots does not hold up the requests behind it, which may get theirs earlier."""
        free = sorted((s for s in self.slots if s.phase is SlotPhase.IDLE), key=lambda s: s.last_used_s)
        waiting: set[int] = set()
        for family in [*self.queue]:
            if len(family) <= len(free):
                self.queue.remove(family)
                self._seat(family, free)
                self.families_passed |= waiting
            elif len(family) > 1:
                waiting.add(family[0].family)

    def _seat(self, family: list[Request], free: list[ModelSlot]) -> None:
        for i, request in enumerate(family):
            slot = free.pop(0)
            slot.request, slot.started_at_s, slot.n_tokens_since_park = request, self.now_s, 0
            if i:
                slot.phase, slot.n_cells = SlotPhase.WAIT_OTHER, 0
            else:
                slot.phase = SlotPhase.STARTED
                slot.n_kept = min(int(slot.n_cells * self.setup.kept_share), request.n_prompt - 1)
