"""Carries a Plan out: the only place where preemption has effects, is logged and is counted. Engine thread.

Every line and every count comes from here, once per action, with the action's reason.
"""

from __future__ import annotations

import logging
from functools import singledispatchmethod

from pyggml_server.engine import endings
from pyggml_server.engine.slot import Slot
from pyggml_server.engine.slot_states import SlotPhase
from pyggml_server.engine.state import EngineState
from pyggml_server.engine.transfer import TransferRefusedError
from pyggml_server.messages import Notice
from pyggml_server.planner import plan as orders
from pyggml_server.planner.view import RESIDENT_PHASES

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
        if not self._park(slot, action.reason):
            return False
        slot.parked_for_request = action.for_request
        if action.reason is orders.Reason.ROTATION:
            self._state.counters.tally.rotations_total += 1
        return True

    @_do.register
    def _(self, action: orders.Restore) -> bool:
        self._restore(self._state.slot(action.slot_id), action.reason)
        return True

    @_do.register
    def _(self, action: orders.WaitForPark) -> bool:
        self._state.slot(action.slot_id).transfer.wait()
        return True

    @_do.register
    def _(self, action: orders.DropIdlePrompt) -> bool:
        slot = self._state.slot(action.slot_id)
        log.info("slot %d: dropping the cached prompt of %d tokens: %s", slot.id, len(slot.tokens), action.reason.value)
        self._state.pool.clear(slot)
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
        slot.is_rotation_refusal_known = True
        log.info("slot %d: no turn for the parked chat: %s", slot.id, action.reason.value)
        return True

    # -- park and restore ---------------------------------------------------------------------------------------------

    def _park(self, slot: Slot, reason: orders.Reason) -> bool:
        state = self._state
        tally = state.counters.tally
        job = slot.active_job
        started_s = state.clock()
        slot.state.move(SlotPhase.PREEMPTING)
        try:
            slot.transfer.save(slot.id)
        except TransferRefusedError as error:
            slot.state.come_back()
            tally.preempt_refusals_total += 1
            log.warning("slot %d: park refused: %s", slot.id, error)
            return False
        state.pool.release_cells(slot)
        slot.state.move(SlotPhase.PREEMPTED)
        slot.parked_at_s = state.clock()
        state.n_parks += 1
        slot.park_order = state.n_parks
        slot.is_rotation_refusal_known = False
        job.n_tokens_since_park = 0
        job.n_parks += 1
        job.last_token_at_s = None
        took_s = slot.parked_at_s - started_s
        tally.preemptions_total += 1
        tally.parked_bytes_total += slot.transfer.state_bytes
        tally.park_seconds_total += took_s
        state.outbox.append(Notice(job.task_id, "preempted"))
        _log_copy("parked", slot, slot.transfer.state_bytes, took_s, reason)
        return True

    def _restore(self, slot: Slot, reason: orders.Reason) -> None:
        state = self._state
        tally = state.counters.tally
        job = slot.active_job
        n_bytes = slot.transfer.state_bytes
        started_s = state.clock()
        slot.state.move(SlotPhase.RESTORING)
        try:
            slot.transfer.restore(slot.id)
        except TransferRefusedError as error:
            slot.state.move(SlotPhase.PREEMPTED)
            state.pool.release_cells(slot)
            log.warning("slot %d: restore refused: %s", slot.id, error)
            if not any(other.phase in RESIDENT_PHASES for other in state.slots):
                endings.fail_for_room(state, slot)  # nobody will make room: it would be tried again for ever
            return
        slot.state.come_back()
        now_s = state.clock()
        waited_s = now_s - slot.parked_at_s
        job.parked_s += waited_s
        job.task.add_pause(int(waited_s * 1e6))
        slot.resident_since_s = now_s
        slot.parked_for_request = None
        slot.has_run_since_restore = False
        tally.restores_total += 1
        tally.restored_bytes_total += n_bytes
        tally.restore_seconds_total += now_s - started_s
        state.outbox.append(Notice(job.task_id, "resumed"))
        _log_copy("restored", slot, n_bytes, now_s - started_s, reason)


def _log_copy(what: str, slot: Slot, n_bytes: int, took_s: float, reason: orders.Reason) -> None:
    gb_s = n_bytes / took_s / 1e9 if took_s > 0 else 0.0
    log.info(
        "slot %d: %s task %d (%s): %d cells, %.2f MiB in %.2f ms, %.2f GB/s",
        slot.id,
        what,
        slot.active_job.task_id,
        reason.value,
        len(slot.tokens),
        n_bytes / 1024**2,
        took_s * 1e3,
        gb_s,
    )
