"""Carries a Plan out: what each order of the planner does to live slots. Engine thread.

With `copies`, which takes each park and restore to its completion, the only place where preemption has effects. Each
action is logged and counted once, with its reason.
"""

from __future__ import annotations

import logging
from functools import singledispatchmethod

from pyggml_server.engine.idle_slots import idle_prompts
from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import copies, copy_reports, disk_states, recompute, waits
from pyggml_server.engine.slots import shared_prompt
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.engine.transfers.park_memory import NotPinnedYetError
from pyggml_server.engine.transfers.transfer import TransferRefusedError
from pyggml_server.history import EventKind
from pyggml_server.messages import Notice
from pyggml_server.planner import plan as orders

log = logging.getLogger(__name__)


class Applier:
    """Effects of the planner's orders on live slots."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def carry_out(self, plan: orders.Plan) -> int | None:
        """Do the actions in order. Returns the slot whose park was refused, at which it stopped, or None."""
        for action in plan.actions:
            if not self._do(action):
                return action.slot_id
        return None

    @singledispatchmethod
    def _do(self, action: orders.Action) -> bool:
        raise NotImplementedError(f"no effect is known for {action!r}")

    @_do.register
    def _(self, action: orders.Park) -> bool:
        slot = self._state.slot(action.slot_id)
        if slot.state.is_preempted:
            return True  # it left with those that share its prompt
        unit = [slot] if action.leaves_group else shared_prompt.unit_of(slot)
        if not self._park(unit, action.reason):
            return False
        for member in unit:
            member.active_job.parked_for_request = action.for_request
        if action.reason is orders.Reason.ROTATION:
            self._state.counters.tally.rotations_total += 1
        return True

    @_do.register
    def _(self, action: orders.Recompute) -> bool:
        slot = self._state.slot(action.slot_id)
        n_cells = len(slot.tokens)
        now_s = self._state.clock()
        self._state.record(EventKind.PARK, slot, now_s, f"{action.reason.value}, to be computed again")
        recompute.drop(self._state, slot)
        self._join_line(slot, now_s)
        self._state.counters.tally.recomputes_total += 1
        if action.reason is orders.Reason.ROTATION:
            self._state.counters.tally.rotations_total += 1
        log.warning(
            "slot %d: task %d is dropped and will be recomputed (%s): %d cells; host memory cannot hold its state, "
            "see --preempt-ram",
            slot.id,
            slot.active_job.task_id,
            action.reason.value,
            n_cells,
        )
        return True

    @_do.register
    def _(self, action: orders.Refill) -> bool:
        slot = self._state.slot(action.slot_id)
        n_tokens = len(slot.tokens)
        recompute.refill(slot)
        now_s = copy_reports.end_wait(self._state, slot)
        self._state.record(EventKind.RESTORE, slot, now_s, f"{action.reason.value}, computed again")
        log.info("slot %d: recomputing %d tokens (%s)", slot.id, n_tokens, action.reason.value)
        return True

    @_do.register
    def _(self, action: orders.Restore) -> bool:
        slot = self._state.slot(action.slot_id)
        if slot.phase is SlotPhase.PREEMPTED:  # else it came back with those that share its prompt
            unit = shared_prompt.unit_of(slot)
            copies.begin_restore(self._state, unit, action.reason)
            for member in unit:
                copies.complete_if_done(self._state, member)
        return True

    @_do.register
    def _(self, action: orders.Spill) -> bool:
        disk_states.begin_spill(self._state, self._state.slot(action.slot_id), action.reason.value)
        return True

    @_do.register
    def _(self, action: orders.Fetch) -> bool:
        disk_states.begin_fetch(self._state, self._state.slot(action.slot_id))
        return True

    @_do.register
    def _(self, action: orders.Forget) -> bool:
        disk_states.forget(self._state, self._state.slot(action.slot_id), action.reason.value)
        return True

    @_do.register
    def _(self, action: orders.WaitForPark) -> bool:
        waits.for_slot(self._state, self._state.slot(action.slot_id))
        return True

    @_do.register
    def _(self, action: orders.DropIdlePrompt) -> bool:
        idle_prompts.drop(self._state, self._state.slot(action.slot_id), action.reason.value)
        return True

    @_do.register
    def _(self, action: orders.TrimStarted) -> bool:
        slot = self._state.slot(action.slot_id)
        slot.active_job.n_kept = min(slot.active_job.n_kept, self._state.pool.cut(slot, action.n_keep_cells))
        return True

    @_do.register(orders.HoldPrompt)
    @_do.register(orders.LimitPrompt)
    @_do.register(orders.LimitDraft)
    def _(self, _action: orders.Action) -> bool:
        return True  # the batch builder reads these from the plan

    @_do.register
    def _(self, action: orders.FailContext) -> bool:
        slot = self._state.slot(action.slot_id)
        if slot.is_idle:
            return True  # it ended with the one whose prompt it shares
        log.warning("slot %d: request of %d tokens fails: %s", slot.id, len(slot.tokens), action.reason.value)
        endings.fail_for_room(self._state, slot)
        return True

    @_do.register
    def _(self, action: orders.GiveBackBuffer) -> bool:
        self._state.slot(action.slot_id).transfer.drop()
        return True

    @_do.register
    def _(self, action: orders.RefuseRotation) -> bool:
        slot = self._state.slot(action.slot_id)
        slot.active_job.is_rotation_refusal_known = True
        self._refuse(slot, "no turn for the chat that waits", action.reason)
        return True

    @_do.register
    def _(self, action: orders.RefusePark) -> bool:
        slot = self._state.slot(action.slot_id)
        slot.active_job.is_park_refusal_known = True
        self._refuse(slot, "not parked", action.reason)
        _stop_holding(shared_prompt.unit_of(slot))
        return True

    # -- parks --------------------------------------------------------------------------------------------------------

    def _park(self, unit: list[Slot], reason: orders.Reason) -> bool:
        state = self._state
        try:
            started_s = copies.begin_park(state, unit, reason)
        except NotPinnedYetError as error:
            log.debug("slot %d: not parked in this pass: %s", unit[0].id, error)
            return False
        except TransferRefusedError as error:
            self._refuse(unit[0], "park refused", error)
            _stop_holding(unit)
            return False
        for slot in unit:
            self._join_line(slot, started_s)
            state.counters.tally.preemptions_total += 1
            if state.counters.tally.preemptions_total == 1:
                _log_buffer(slot)
            copies.complete_if_done(state, slot)
        return True

    def _refuse(self, slot: Slot, what: str, why: orders.Reason | TransferRefusedError) -> None:
        """A park, or a turn, that the budget or an allocation refuses."""
        reason = why.value if isinstance(why, orders.Reason) else str(why)
        self._state.counters.tally.preempt_refusals_total += 1
        self._state.record(EventKind.REFUSAL, slot, self._state.clock(), reason)
        log.warning("slot %d: %s: %s; see --preempt-ram", slot.id, what, reason)

    def _join_line(self, slot: Slot, parked_at_s: float) -> None:
        """The slot joins the end of the line of parked chats."""
        job = slot.active_job
        self._state.n_parks += 1
        slot.parked_at_s = parked_at_s
        slot.park_order = self._state.n_parks
        job.is_park_refusal_known = job.is_rotation_refusal_known = job.was_on_disk = False
        job.n_tokens_since_park = 0
        job.n_parks += 1
        job.last_token_at_s = None
        self._state.outbox.append(Notice(job.task_id, "preempted"))


def _stop_holding(unit: list[Slot]) -> None:
    """They cannot be parked, so they do not stay out."""
    for slot in unit:
        slot.active_job.is_held = False


def _log_buffer(slot: Slot) -> None:
    """What the banner said is offered; this is what the first park got."""
    n_bytes, n_pinned = slot.transfer.buffer_bytes, slot.transfer.pinned_bytes
    kind = "pinned" if n_pinned == n_bytes else "pageable"
    log.info("slot %d: the first park has a buffer of %.2f MiB, %s", slot.id, n_bytes / 1024**2, kind)
