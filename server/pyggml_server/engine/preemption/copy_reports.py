"""What is counted, logged and told of parks and restores that have completed. Engine thread."""

from __future__ import annotations

import logging

from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.slots.copy_in_flight import CopyInFlight
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.history import EventKind
from pyggml_server.messages import Notice

log = logging.getLogger(__name__)


def note_parked(state: EngineState, slot: Slot, copy: CopyInFlight) -> None:
    """The slot's state is on the host."""
    now_s = state.clock()
    took_s = now_s - copy.started_s
    tally = state.counters.tally
    tally.parked_bytes_total += copy.n_bytes
    tally.park_seconds_total += took_s
    tally.park_issue_seconds_total += copy.issue_s
    state.last_copy_at_s = now_s
    state.record(EventKind.PARK, slot, now_s, copy.reason.value, n_bytes=copy.n_bytes, took_s=took_s)
    log.info("slot %d: parked task %d %s", slot.id, slot.active_job.task_id, copy.in_words(took_s))


def note_restored(state: EngineState, slot: Slot, copy: CopyInFlight) -> None:
    """The slot runs again."""
    now_s = end_wait(state, slot)
    took_s = now_s - copy.started_s
    tally = state.counters.tally
    tally.restores_total += 1
    tally.restored_bytes_total += copy.n_bytes
    tally.restore_seconds_total += took_s
    tally.restore_issue_seconds_total += copy.issue_s
    tally.restore_prefetch_seconds_total += copy.prefetch_s
    state.last_copy_at_s = now_s
    state.record(EventKind.RESTORE, slot, now_s, copy.reason.value, n_bytes=copy.n_bytes, took_s=took_s)
    log.info("slot %d: restored task %d %s", slot.id, slot.active_job.task_id, copy.in_words(took_s))


def note_scattered(state: EngineState, copy: CopyInFlight) -> None:
    """A state has left staging memory for its cells."""
    state.counters.tally.restore_scatter_seconds_total += state.clock() - copy.started_s


def end_wait(state: EngineState, slot: Slot) -> float:
    """The slot is resident again. Returns the time of that; what it waited is no time of its task's."""
    job = slot.active_job
    now_s = _count_wait(state, slot)
    slot.resident_since_s = now_s
    job.parked_for_request = None
    state.outbox.append(Notice(job.task_id, "resumed"))
    return now_s


def restart_wait(state: EngineState, slot: Slot) -> None:
    """The parked slot stands at the end of the line, as if it had been parked now."""
    slot.parked_at_s = _count_wait(state, slot)
    state.n_parks += 1
    slot.park_order = state.n_parks
    slot.active_job.is_rotation_refusal_known = False


def _count_wait(state: EngineState, slot: Slot) -> float:
    now_s = state.clock()
    waited_s = now_s - slot.parked_at_s
    slot.active_job.parked_s += waited_s
    slot.active_job.task.add_pause(int(waited_s * 1e6))
    return now_s
