"""Parked states on their way to files and back. Engine thread; never blocks.

    no file -> WRITING -> STORED -> READING -> no file

A state leaves host memory when all of it is in the file, and the file goes when all of it is back. If it cannot be
written, it stays in host memory. If it cannot be read, its chat is computed again. A chat that ends meanwhile does not
wait: file and memory are the disk's until its thread has let go of them.
"""

from __future__ import annotations

import logging

from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import recompute
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.slots.state_on_disk import DiskStep, StateOnDisk
from pyggml_server.engine.transfers.transfer import TransferRefusedError

log = logging.getLogger(__name__)


def begin_spill(state: EngineState, slot: Slot, reason: str) -> None:
    """Have the slot's state written."""
    parts = slot.transfer.parts()
    file = state.disk.new_file([part.nbytes for part in parts])
    task = state.disk.run(file.write, parts)
    slot.on_disk = StateOnDisk(state.disk, file, DiskStep.WRITING, state.clock(), task)
    log.info("slot %d: writing %d bytes to a file (%s)", slot.id, file.n_bytes, reason)


def begin_fetch(state: EngineState, slot: Slot) -> None:
    """Take host memory for the slot's state and have it read. Without memory it is tried again in a later pass."""
    stored = _of(slot)
    try:
        parts = slot.transfer.blank(stored.file.sizes_bytes)
    except TransferRefusedError as error:
        log.debug("slot %d: not read in this pass: %s", slot.id, error)
        return
    task = state.disk.run(stored.file.read, parts)
    slot.on_disk = StateOnDisk(state.disk, stored.file, DiskStep.READING, state.clock(), task)


def poll(state: EngineState) -> None:
    """At the top of a pass: take note of what was written or read. Never blocks."""
    state.disk.poll()
    for slot in state.slots:
        if slot.on_disk is not None and slot.on_disk.task is not None and slot.on_disk.task.is_done():
            _complete(state, slot)


def are_under_way(state: EngineState) -> bool:
    """Whether a file is written or read."""
    return any(slot.on_disk is not None and slot.on_disk.is_under_way for slot in state.slots)


def forget(state: EngineState, slot: Slot, why: str) -> None:
    """The file is given up, and the chat computed again."""
    slot.drop_file()
    recompute.lose_state(slot)
    state.counters.tally.recomputes_total += 1
    log.warning(
        "slot %d: the state of task %d is lost and will be computed again: %s", slot.id, slot.active_job.task_id, why
    )


def _complete(state: EngineState, slot: Slot) -> None:
    on_disk = _of(slot)
    assert on_disk.task is not None
    error = on_disk.task.wait()
    tally, took_s = state.counters.tally, state.clock() - on_disk.since_s
    slot.on_disk = StateOnDisk(state.disk, on_disk.file, DiskStep.STORED, state.clock())
    if on_disk.step is DiskStep.WRITING and error is not None:
        slot.drop_file()
        state.disk.pause(state.clock(), error)
    elif on_disk.step is DiskStep.WRITING:
        slot.transfer.drop()
        tally.spills_total += 1
        tally.spilled_bytes_total += on_disk.file.n_bytes
        log.info("slot %d: its state is in a file after %.1f ms", slot.id, took_s * 1e3)
    elif error is not None:
        slot.transfer.drop()
        forget(state, slot, str(error))
    else:
        slot.drop_file()
        slot.active_job.was_on_disk = True
        tally.fetches_total += 1
        log.info("slot %d: its state is back in host memory after %.1f ms", slot.id, took_s * 1e3)


def _of(slot: Slot) -> StateOnDisk:
    if slot.on_disk is None:
        raise RuntimeError(f"slot {slot.id} is {slot.phase.name} and has no file")
    return slot.on_disk
