"""What POST /slots/{id_slot} asks for: a slot saved to a file, restored from one, erased. Engine thread.

An action waits until its slot is idle, and its turn comes before the next completion's. A file holds one sequence in
llama.cpp's format, with the tokens wrapped as llama-server wraps them, so files go both ways between the two. Actions
are no requests: the counters leave them out.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from pathlib import Path

from pyggml_server.engine.slot import Slot
from pyggml_server.engine.state import EngineState
from pyggml_server.messages import Answered, Cancelled, Failed, Outbound, SlotAction, SlotVerb
from pyggml_server.native.border import InvalidArgumentError, NoRoomError, PyggmlError
from pyggml_server.native.errors import error_object

log = logging.getLogger(__name__)


class ActionRefusedError(Exception):
    """The action cannot be done; the message and the error type are llama-server's."""

    def __init__(self, message: str, error_type: str) -> None:
        super().__init__(message)
        self.error_type = error_type


class SlotActions:
    """The actions that wait for their slot, in the order in which they came."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._line: deque[SlotAction] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def add(self, action: SlotAction) -> None:
        """Take one in; `run` does it."""
        self._line.append(action)

    def cancel(self, task_id: int) -> bool:
        """Take an action out of the line. False if it is not there."""
        for action in self._line:
            if action.task_id == task_id:
                self._line.remove(action)
                self._state.outbox.append(Cancelled(task_id))
                return True
        return False

    def cancel_all(self) -> None:
        """Take every action out of the line."""
        while self._line:
            self.cancel(self._line[0].task_id)

    def run(self) -> None:
        """Do every action whose slot is idle; each ends exactly once, whatever goes wrong with it."""
        for action in list(self._line):
            slot = self._slot_of(action)
            if slot.is_free_for(None):
                slot.drop_side_job()
                self._line.remove(action)
                self._state.outbox.append(self._end_of(action))

    def _end_of(self, action: SlotAction) -> Outbound:
        try:
            answer = self._do(self._slot_of(action), action)
        except ActionRefusedError as refused:
            return Failed(action.task_id, *error_object(str(refused), refused.error_type))
        except Exception as error:
            log.exception("slot %d: %s failed", action.slot_id, action.verb)
            return Failed(action.task_id, *error_object(f"got exception: {error}", "server_error"))
        return Answered(action.task_id, json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode())

    def _slot_of(self, action: SlotAction) -> Slot:
        """As in llama-server, ids beyond the last slot begin again at the first."""
        return self._state.slots[action.slot_id % len(self._state.slots)]

    def _do(self, slot: Slot, action: SlotAction) -> dict[str, object]:
        match action.verb:
            case SlotVerb.SAVE:
                return self._save(slot, action)
            case SlotVerb.RESTORE:
                return self._restore(slot, action)
            case SlotVerb.ERASE:
                n_erased = len(slot.tokens)
                self._state.pool.clear(slot)
                return {"id_slot": action.slot_id, "n_erased": n_erased}

    def _save(self, slot: Slot, action: SlotAction) -> dict[str, object]:
        started_s = self._state.clock()
        try:
            n_bytes = self._state.pool.save_file(slot, action.path)
        except (OSError, PyggmlError) as error:
            log.error("slot %d: cannot be saved to %s: %s", slot.id, action.path, error)
            raise ActionRefusedError("Unable to save slot", "server_error") from error
        return {
            "id_slot": action.slot_id,
            "filename": action.filename,
            "n_saved": len(slot.tokens),
            "n_written": n_bytes,
            "timings": {"save_ms": (self._state.clock() - started_s) * 1e3},
        }

    def _restore(self, slot: Slot, action: SlotAction) -> dict[str, object]:
        started_s = self._state.clock()
        try:
            n_bytes = Path(action.path).stat().st_size
            self._state.pool.load_file(slot, action.path)
        except (OSError, PyggmlError) as error:
            self._state.pool.clear(slot)  # as llama-server: nobody knows what a half restored slot holds
            log.error("slot %d: cannot be restored from %s: %s", slot.id, action.path, error)
            raise ActionRefusedError(f"Unable to restore slot: {_reason(error)}", "invalid_request_error") from error
        return {
            "id_slot": action.slot_id,
            "filename": action.filename,
            "n_restored": len(slot.tokens),
            "n_read": n_bytes,
            "timings": {"restore_ms": (self._state.clock() - started_s) * 1e3},
        }


def _reason(error: Exception) -> str:
    """llama-server's words where it has some; the log has ours."""
    if isinstance(error, OSError | NoRoomError):
        return "No available space in KV cache or invalid slot save file"
    if isinstance(error, InvalidArgumentError):
        return "Restored prompt does not fit in the slot context"
    return str(error)
