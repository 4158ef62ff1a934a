"""How a job ends: finished, failed or cancelled, exactly one of them, once. Engine thread.

Every ending first waits for the slot's copy, then gives its host memory back; the cells stay as the cached prompt of
the idle slot unless the ending says otherwise.
"""

from __future__ import annotations

import logging

from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.lifecycle.snapshot import slot_snapshot
from pyggml_server.engine.slots import shared_prompt
from pyggml_server.engine.slots.slot import Job, Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.errors import error_object
from pyggml_server.history import EventKind
from pyggml_server.messages import Cancelled, Failed, Finished
from pyggml_server.published import SlotSnapshot

log = logging.getLogger(__name__)

POOL_EXCEEDED = "Context size has been exceeded."


def finish(state: EngineState, slot: Slot) -> None:
    """The completion is done: hand out its end. If that cannot be put together, this job alone fails."""
    job = slot.active_job
    try:
        payload = job.task.final_payload(len(slot.tokens))
    except Exception as error:
        fail(state, slot, f"got exception: {error}")
        return
    _release(state, slot)
    state.counters.tally.requests_finished_total += 1
    state.outbox.append(Finished(job.task_id, payload))


def fail(state: EngineState, slot: Slot, message: str, error_type: str = "server_error", **extra: int) -> None:
    """End this job with an error, and those of its request that cannot continue without its prompt."""
    job = slot.active_job
    others = shared_prompt.dependents(slot)
    state.record(EventKind.END, slot, state.clock(), message)
    _release(state, slot)
    log.error("task id = %d, error: %s", job.task_id, message)
    fail_unplaced(state, job.task_id, message, error_type, **extra)
    for other in others:
        fail(state, other, message, error_type, **extra)


def fail_unplaced(
    state: EngineState, task_id: int, message: str, error_type: str, retry_after_s: int | None = None, **extra: int
) -> None:
    """End a task that has no slot with an error."""
    status, error = error_object(message, error_type, **extra)
    state.counters.tally.requests_failed_total += 1
    state.outbox.append(Failed(task_id, status, error, retry_after_s))


def refuse_as_busy(state: EngineState, task_id: int, message: str, retry_after_s: int) -> None:
    """End a task that has no slot: its client may try again after so many seconds."""
    state.counters.tally.requests_refused_total += 1
    log.info("task %d: refused: %s", task_id, message)
    fail_unplaced(state, task_id, message, "unavailable_error", retry_after_s)


def fail_and_clear(state: EngineState, slot: Slot, message: str, error_type: str = "server_error") -> None:
    """End this job with an error, and drop its cells: they are in the way, or what they hold is unknown."""
    fail(state, slot, message, error_type)
    state.pool.clear(slot)


def fail_for_room(state: EngineState, slot: Slot) -> None:
    """The context error: the pool cannot hold this request. Its cells go too."""
    fail_and_clear(state, slot, POOL_EXCEEDED)


def fail_all(state: EngineState, message: str) -> None:
    """End every job that has a slot with an error, and drop their cells."""
    for slot in state.slots:
        if not slot.is_idle:  # one may have ended with another
            fail_and_clear(state, slot, message)


def fail_residents(state: EngineState, message: str) -> None:
    """End every job whose cells are in the pool with an error. Those that are parked, or on their way, continue."""
    for slot in list(state.busy()):
        if not slot.state.is_preempted:
            fail_and_clear(state, slot, message)


def cancel(state: EngineState, slot: Slot) -> None:
    """End this job as cancelled, and those of its request that cannot continue without its prompt."""
    job = slot.active_job
    others = shared_prompt.dependents(slot)
    state.record(EventKind.END, slot, state.clock(), "cancelled")
    _release(state, slot)
    cancel_unplaced(state, job.task_id)
    for other in others:
        cancel(state, other)


def cancel_unplaced(state: EngineState, task_id: int) -> None:
    """End a task that has no slot as cancelled."""
    state.counters.tally.requests_cancelled_total += 1
    state.outbox.append(Cancelled(task_id))


def close_transfers(state: EngineState) -> None:
    """Wait for every copy and give up every transfer and their memory: before the context is freed. Nothing of it is
    inherited."""
    if state.background is not None:
        state.background.close()
    for slot in state.slots:
        slot.drop_file()
    state.disk.close()  # whose thread has memory of transfers
    if state.prompt_files is not None:
        state.prompt_files.close()
    for slot in state.slots:
        slot.transfer.close()
    state.memory.close()


def _release(state: EngineState, slot: Slot) -> None:
    job = slot.active_job
    holds_cells = slot.holds_cells
    if job.encoding is not None:
        job.encoding.cancel()  # one that has begun ends by itself, and nobody looks at it
    slot.drop_file()
    slot.transfer.drop()  # waits for its copy
    slot.copy = None
    slot.last_seen = _as_idle(slot_snapshot(slot, state.clock()))
    slot.state.move(SlotPhase.IDLE)
    if not holds_cells:
        slot.tokens.clear()  # they were in the parked state only
        shared_prompt.leave(slot)
    elif job.task.parent is not None:
        state.pool.clear(slot)  # as llama-server: the parent's slot keeps the prompt, that is enough
    for other in state.slots:
        if slot in other.children:
            other.children.remove(slot)
    slot.children = []
    slot.job = None
    slot.last_used_s = state.clock()
    state.pool.forget_refusal()
    _count_prediction(state, job)
    job.task.close()


def _as_idle(seen: SlotSnapshot) -> SlotSnapshot:
    """How `/slots` shows the job after its end: as in llama-server its parameters stay and its progress does not."""
    return SlotSnapshot(
        seen.id,
        seen.n_ctx,
        is_processing=False,
        speculates=seen.speculates,
        id_task=seen.id_task,
        params_json=seen.params_json,
        parked_ms=seen.parked_ms,
        n_preempted=seen.n_preempted,
    )


def _count_prediction(state: EngineState, job: Job) -> None:
    stats = job.task.stats()
    if stats.n_gen > 0:
        state.counters.count_predicted(stats.n_gen, stats.n_gen_steps, stats.t_gen_us / 1e6)
    if stats.n_draft_tokens > 0:
        state.counters.count_drafts(
            stats.n_draft_tokens,
            stats.n_draft_accepted,
            stats.n_draft_verif_steps,
            job.task.n_accepted_per_pos(),
        )
