"""Slots that are parked by hand: who asked for it, and what he is told. Engine thread.

What is asked for is a mark on the job. The planner parks who has it, and leaves those in peace who are parked.
"""

from __future__ import annotations

import json

from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import copy_reports
from pyggml_server.engine.slots import shared_prompt
from pyggml_server.engine.slots.slot import Job, Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.errors import error_object
from pyggml_server.messages import Answered, Cancelled, Failed, HoldSlot

_HAS_NOTHING_YET = frozenset({SlotPhase.STARTED, SlotPhase.WAIT_OTHER})


class Holds:
    """Takes the orders, and answers each once the slot is out, or cannot be parked."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._asked: list[tuple[HoldSlot, Slot, Job]] = []

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits for an answer."""
        return not self._asked

    def take(self, order: HoldSlot) -> None:
        """Mark the slot, or call it back."""
        refusal = self._refusal_of(order)
        if refusal is not None:
            self._fail(order, *refusal)
            return
        slot = self._state.slots[order.slot_id]
        if order.is_held:
            self._hold(slot, order.seconds)
            self._asked.append((order, slot, slot.active_job))
        else:
            self._call_back(slot)
            self._answer(order, slot)

    def cancel(self, task_id: int) -> bool:
        """Whoever asked has gone: no answer. What he asked for stays. False if nobody asked under this id."""
        for asked in self._asked:
            if asked[0].task_id == task_id:
                self._asked.remove(asked)
                self._state.outbox.append(Cancelled(task_id))
                return True
        return False

    def cancel_all(self) -> None:
        """No more answers."""
        for order, _, _ in list(self._asked):
            self.cancel(order.task_id)

    def run(self) -> None:
        """Call back those whose time is over, and answer what has come to its end."""
        for slot in self._whose_time_is_up():
            self._call_back(slot)
        for asked in list(self._asked):
            if self._has_ended(*asked):
                self._asked.remove(asked)

    @property
    def is_time_up(self) -> bool:
        """Whether somebody is to be called back."""
        return bool(self._whose_time_is_up())

    def _whose_time_is_up(self) -> list[Slot]:
        now_s = self._state.clock()
        held = [slot for slot in self._state.busy() if slot.active_job.is_held]
        return [slot for slot in held if (until_s := slot.active_job.held_until_s) is not None and until_s <= now_s]

    def _has_ended(self, order: HoldSlot, slot: Slot, job: Job) -> bool:
        if slot.job is not job:
            self._fail(order, f"the request of slot {slot.id} ended before it was parked", "invalid_request_error")
        elif not job.is_held:
            message = f"slot {slot.id} was not parked: it was called back, or host memory cannot hold its state"
            self._fail(order, f"{message} (--preempt-ram)", "unavailable_error")
        elif slot.phase is SlotPhase.PREEMPTED:
            self._answer(order, slot)
        else:
            return False
        return True

    def _refusal_of(self, order: HoldSlot) -> tuple[str, str] | None:
        if not self._state.policy.is_enabled:
            return "preemption is off: the log says why at the start", "not_supported_error"
        if not 0 <= order.slot_id < len(self._state.slots):
            return "Invalid slot ID", "invalid_request_error"
        slot = self._state.slots[order.slot_id]
        if slot.is_idle:
            return f"slot {slot.id} is idle: there is nothing to park or to call back", "invalid_request_error"
        if order.is_held and slot.phase in _HAS_NOTHING_YET:
            return f"the request of slot {slot.id} has not begun: there is nothing to park", "invalid_request_error"
        return None

    def _hold(self, slot: Slot, seconds: float) -> None:
        for member in shared_prompt.unit_of(slot):
            job = member.active_job
            job.is_held, job.is_park_refusal_known = True, False
            job.held_until_s = self._state.clock() + seconds if seconds > 0 else None

    def _call_back(self, slot: Slot) -> None:
        for member in shared_prompt.unit_of(slot):
            if member.active_job.is_held and member.phase is SlotPhase.PREEMPTED:
                copy_reports.restart_wait(self._state, member)
            member.active_job.is_held = False

    def _answer(self, order: HoldSlot, slot: Slot) -> None:
        action = "park" if order.is_held else "unpark"
        answer = {"id_slot": slot.id, "id_task": slot.active_job.task_id, "action": action, "state": slot.phase.value}
        self._state.outbox.append(Answered(order.task_id, json.dumps(answer, separators=(",", ":")).encode()))

    def _fail(self, order: HoldSlot, message: str, error_type: str) -> None:
        self._state.outbox.append(Failed(order.task_id, *error_object(message, error_type)))
