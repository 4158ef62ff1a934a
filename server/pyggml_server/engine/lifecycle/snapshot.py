"""The frozen picture that `/slots` and `/metrics` read, taken after each pass. Engine thread; changes no slot."""

from __future__ import annotations

from dataclasses import replace

from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.published import SlotSnapshot, Snapshot


def take_snapshot(state: EngineState, n_deferred: int, time_started_s: float) -> Snapshot:
    """Slots, totals and gauges as they stand."""
    now_s = state.clock()
    held_bytes, files = state.ram_held_bytes(), state.prompt_files
    _count_files(state)
    counters = state.counters.publish(
        requests_processing=sum(1 for _ in state.busy()),
        requests_deferred=n_deferred,
        slots_held=sum(slot.active_job.is_held for slot in state.busy()),
        preempt_ram_bytes=held_bytes,
        preempt_disk_bytes=state.disk_held_bytes(),
        preempt_disk_limit_bytes=state.disk.limit_bytes,
        cache_disk_bytes=0 if files is None else files.held_bytes,
        cache_disk_limit_bytes=0 if files is None else files.limit_bytes,
        pinned_pool_bytes=state.memory.pinned_bytes,
        side_copies_bytes=0 if state.background is None else state.background.n_bytes,
        preempt_ram_limit_bytes=state.ram_limit_bytes if state.policy.is_enabled else 0,
        kv_cells=state.pool.n_cells,
        kv_cells_used=state.pool.n_cells_used(),
    )
    slots = tuple(slot_snapshot(slot, now_s) for slot in state.slots)
    return Snapshot(slots, counters, time_started_s, state.recorder.history)


def _count_files(state: EngineState) -> None:
    if state.prompt_files is not None:
        n_written, n_read = state.prompt_files.take_counts()
        state.counters.tally.cache_disk_written_total += n_written
        state.counters.tally.cache_disk_read_total += n_read


def slot_snapshot(slot: Slot, now_s: float) -> SlotSnapshot:
    """The slot at this moment; an idle one as its last job left it."""
    job = slot.job
    if job is None:
        last = slot.last_seen or SlotSnapshot(slot.id, slot.n_ctx, False, speculates=slot.speculates)
        return replace(last, n_prompt_tokens=len(slot.tokens), n_cells=len(slot.tokens))
    parked_s = job.parked_s + (now_s - slot.parked_at_s if slot.state.is_preempted else 0.0)
    return SlotSnapshot(
        id=slot.id,
        n_ctx=slot.n_ctx,
        is_processing=True,
        speculates=slot.speculates,
        id_task=job.task_id,
        params_json=job.task.params_json,
        n_prompt_tokens=len(slot.tokens),
        n_prompt_tokens_processed=job.n_prompt_processed,
        n_prompt_tokens_cache=job.n_kept,
        has_next_token=job.has_next_token,
        has_new_line=job.task.stats().has_new_line,
        n_remain=-1 if job.task.n_predict == -1 else job.task.n_predict - job.n_decoded,
        n_decoded=job.n_decoded,
        priority=job.priority,
        state=slot.phase.value,
        n_cells=len(slot.tokens) if slot.holds_cells else 0,
        is_preempted=slot.state.is_preempted,
        is_transferring=slot.copy is not None and slot.state.is_preempted,
        parked_bytes=slot.transfer.state_bytes or (slot.on_disk.file.n_bytes if slot.on_disk is not None else 0),
        parked_ms=parked_s * 1e3,
        n_preempted=job.n_parks,
        is_held=job.is_held,
        is_on_disk=slot.on_disk is not None and slot.on_disk.is_in_file,
        parked_at_s=slot.parked_at_s if slot.state.is_preempted else None,
    )
