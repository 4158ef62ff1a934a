"""What POST /slots/{id_slot} asks for: a slot saved to a file, restored from one, erased. Engine thread.

An action waits until its slot is idle, and its turn comes before the next completion's. Where copies are asynchronous
files are written and read while others decode (`slot_files.py`). A file holds one sequence in llama.cpp's format, with
the tokens wrapped as llama-server wraps them, so files go both ways between the two. Actions are no requests: the
counters leave them out.
"""

from __future__ import annotations

import json
import logging
from collections import deque

from pyggml_server.engine.background.jobs import Steps, at_once
from pyggml_server.engine.background.runner import BackgroundRunner
from pyggml_server.engine.idle_slots.slot_files import (
    AsyncSlotFiles,
    SlotFiles,
    SyncSlotFiles,
    TooLargeError,
    reason_of,
)
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.transfers.transfer import TransferRefusedError
from pyggml_server.errors import error_object
from pyggml_server.messages import Answered, Cancelled, Failed, Outbound, SlotAction, SlotVerb
from pyggml_server.native.border import InvalidArgumentError, NoRoomError, PyggmlError

log = logging.getLogger(__name__)

Answer = dict[str, object]


class ActionRefusedError(Exception):
    """The action cannot be done; the message and the error type are llama-server's."""

    def __init__(self, message: str, error_type: str) -> None:
        super().__init__(message)
        self.error_type = error_type


class SlotActions:
    """The actions that wait for their slot, in the order in which they came, and those that are under way."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._line: deque[SlotAction] = deque()
        self._under_way: set[int] = set()

    def __len__(self) -> int:
        return len(self._line)

    def add(self, action: SlotAction) -> None:
        """Take one in; `run` does it."""
        self._line.append(action)

    def cancel(self, task_id: int) -> bool:
        """Take an action out of the line. One that is under way runs to its end, unanswered. False if there is none."""
        for action in self._line:
            if action.task_id == task_id:
                self._line.remove(action)
                self._state.outbox.append(Cancelled(task_id))
                return True
        if task_id in self._under_way:
            self._under_way.remove(task_id)
            self._state.outbox.append(Cancelled(task_id))
            return True
        return False

    def cancel_all(self) -> None:
        """Cancel every action."""
        for task_id in [*(action.task_id for action in self._line), *self._under_way]:
            self.cancel(task_id)

    def run(self) -> None:
        """Do or begin every action whose slot is free; each ends exactly once, whatever goes wrong with it."""
        for action in list(self._line):
            slot = self._slot_of(action)
            if slot.is_free_for(None) and not self._state.is_held_up:
                slot.drop_background_job()
                self._line.remove(action)
                if not self._starts_async(slot, action):
                    self._state.outbox.append(self._end_of(action))

    def _starts_async(self, slot: Slot, action: SlotAction) -> bool:
        runner = self._state.background
        if runner is None or action.verb is SlotVerb.ERASE:
            return False
        self._under_way.add(action.task_id)
        slot.background_job = runner.start(f"slot {slot.id}: {action.verb}", self._steps(slot, action, runner))
        return True

    def _steps(self, slot: Slot, action: SlotAction, runner: BackgroundRunner) -> Steps[None]:
        job = slot.background_job
        try:
            end = _answered(action, (yield from self._do(slot, action, AsyncSlotFiles(self._state, runner))))
        except TooLargeError:
            end = self._end_of(action)
        except Exception as error:
            end = _failed(action, error)
        finally:
            if slot.background_job is job:
                slot.background_job = None
        if action.task_id in self._under_way:
            self._under_way.remove(action.task_id)
            self._state.outbox.append(end)

    def _end_of(self, action: SlotAction) -> Outbound:
        """Do it at once."""
        try:
            return _answered(action, at_once(self._do(self._slot_of(action), action, SyncSlotFiles(self._state))))
        except Exception as error:
            return _failed(action, error)

    def _slot_of(self, action: SlotAction) -> Slot:
        """As in llama-server, ids beyond the last slot begin again at the first."""
        return self._state.slots[action.slot_id % len(self._state.slots)]

    def _do(self, slot: Slot, action: SlotAction, files: SlotFiles) -> Steps[Answer]:
        match action.verb:
            case SlotVerb.SAVE:
                return (yield from self._save(slot, action, files))
            case SlotVerb.RESTORE:
                return (yield from self._restore(slot, action, files))
            case SlotVerb.ERASE:
                n_erased = len(slot.tokens)
                self._state.pool.clear(slot)
                return {"id_slot": action.slot_id, "n_erased": n_erased}

    def _save(self, slot: Slot, action: SlotAction, files: SlotFiles) -> Steps[Answer]:
        started_s = self._state.clock()
        n_tokens = len(slot.tokens)
        try:
            n_bytes = yield from files.save(slot, action.path)
        except (OSError, PyggmlError, TransferRefusedError) as error:
            log.error("slot %d: cannot be saved to %s: %s", slot.id, action.path, error)
            raise ActionRefusedError("Unable to save slot", "server_error") from error
        timings = {"save_ms": (self._state.clock() - started_s) * 1e3}
        names = {"id_slot": action.slot_id, "filename": action.filename}
        return {**names, "n_saved": n_tokens, "n_written": n_bytes, "timings": timings}

    def _restore(self, slot: Slot, action: SlotAction, files: SlotFiles) -> Steps[Answer]:
        started_s = self._state.clock()
        try:
            n_bytes = yield from files.restore(slot, action.path)
        except (OSError, PyggmlError, TransferRefusedError) as error:
            log.error("slot %d: cannot be restored from %s: %s", slot.id, action.path, reason_of(error))
            message = f"Unable to restore slot: {_in_stock_words(reason_of(error))}"
            raise ActionRefusedError(message, "invalid_request_error") from error
        if self._state.policy.is_enabled:  # else as in llama-server
            slot.last_used_s = self._state.clock()
        timings = {"restore_ms": (self._state.clock() - started_s) * 1e3}
        names = {"id_slot": action.slot_id, "filename": action.filename}
        return {**names, "n_restored": len(slot.tokens), "n_read": n_bytes, "timings": timings}


def _answered(action: SlotAction, answer: Answer) -> Outbound:
    return Answered(action.task_id, json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode())


def _failed(action: SlotAction, error: Exception) -> Outbound:
    if isinstance(error, ActionRefusedError):
        return Failed(action.task_id, *error_object(str(error), error.error_type))
    log.error("slot %d: %s failed", action.slot_id, action.verb, exc_info=error)
    return Failed(action.task_id, *error_object(f"got exception: {error}", "server_error"))


def _in_stock_words(error: Exception) -> str:
    """llama-server's words where it has some; the log has ours."""
    if isinstance(error, OSError | NoRoomError):
        return "No available space in KV cache or invalid slot save file"
    if isinstance(error, InvalidArgumentError):
        return "Restored prompt does not fit in the slot context"
    return str(error)
