"""Where each message of the web side goes: to the line of tasks, to the line of slot actions, to a running job.

Engine thread. Nothing that goes wrong with one message ends another's work.
"""

from __future__ import annotations

import json
import logging

from pyggml_server.engine.admission.holds import Holds
from pyggml_server.engine.admission.queue import TaskQueue
from pyggml_server.engine.idle_slots.slot_actions import SlotActions
from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.slots.slot import Job
from pyggml_server.messages import Answered, Cancel, EndReasoning, FromWeb, HoldSlot, SlotAction, Submit, Wake

log = logging.getLogger(__name__)


class Dispatcher:
    """Everything that has arrived and has no slot yet."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._queue = TaskQueue(state)
        self._actions = SlotActions(state)
        self._holds = Holds(state)

    @property
    def n_tasks(self) -> int:
        """Tasks in line, as `/metrics` counts them."""
        return len(self._queue)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not len(self._queue) and not len(self._actions) and self._holds.is_empty

    @property
    def is_time_up(self) -> bool:
        """Whether `place` would end a wait whose time is over."""
        return self._queue.is_time_up or self._holds.is_time_up

    def take(self, message: FromWeb) -> None:
        """Take one message in."""
        match message:
            case Submit():
                self._take_task(message)
            case Cancel(task_id=task_id):
                if not any(line.cancel(task_id) for line in (self._queue, self._actions, self._holds)):
                    self._cancel_running(task_id)
            case SlotAction():
                self._actions.add(message)
            case HoldSlot():
                self._holds.take(message)
            case EndReasoning():
                self._end_reasoning(message)
            case Wake():
                pass  # it is awake

    def place(self) -> None:
        """Give idle slots to what waits for one. Actions come before tasks: they take one pass and no longer."""
        self._holds.run()
        self._actions.run()
        self._queue.expire()
        self._queue.place()

    def close(self) -> None:
        """The model is freed soon, and nothing runs or waits. Blocks to write prompts to files (--cache-disk)."""
        self._queue.close()

    def cancel_all(self) -> None:
        """End everything that waits as cancelled."""
        self._holds.cancel_all()
        self._actions.cancel_all()
        self._queue.cancel_all()

    def _take_task(self, message: Submit) -> None:
        try:
            self._queue.add(message.task_id, message.task, message.priority)  # type: ignore[arg-type]
        except Exception as error:
            log.exception("task %d could not be accepted", message.task_id)
            endings.fail_unplaced(self._state, message.task_id, f"got exception: {error}", "server_error")
            message.task.close()

    def _cancel_running(self, task_id: int) -> None:
        for slot in self._state.busy():
            if slot.active_job.task_id == task_id:
                endings.cancel(self._state, slot)
                return

    def _end_reasoning(self, message: EndReasoning) -> None:
        jobs = [slot.active_job for slot in self._state.busy()]
        named = [job for job in jobs if job.task.completion_id == message.completion_id]
        answer = _end_reasoning_of(named[0]) if named else _failure("no active completion for this id")
        self._state.outbox.append(Answered(message.task_id, json.dumps(answer).encode()))


def _end_reasoning_of(job: Job) -> dict[str, object]:
    try:
        is_armed = job.task.end_reasoning()
    except Exception as error:
        log.exception("task %d: failed to end its reasoning", job.task_id)
        return _failure(str(error))
    return {"success": True} if is_armed else _failure("reasoning control not enabled for this completion")


def _failure(message: str) -> dict[str, object]:
    return {"success": False, "message": message}
