"""Idle slots' cached prompts, given up when a running slot needs their cells. Engine thread."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from pyggml_server.engine.background.jobs import Steps
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.slots.slot import Slot

log = logging.getLogger(__name__)


def drop_one(state: EngineState, why: str, *, for_slot: Slot | None = None) -> bool:
    """Give up the prompt that was unused for longest, but none that is being copied. False if there is none.

    `for_slot`: the slot whose job needs the cells. It may wait for others, so a slot that is to get a prompt keeps it.
    """
    idle = [slot for slot in _with_prompts(state, for_slot) if slot.background_job is None]
    if not state.policy.is_enabled or for_slot is not None:
        idle = [slot for slot in idle if slot.reserved_for is None]  # in llama-server that task runs by now
    if not state.runtime.is_unified or not idle:
        return False
    # without the planner the first one goes, as in llama-server
    slot = min(idle, key=lambda slot: slot.last_used_s) if state.policy.is_enabled else idle[0]
    drop(state, slot, why, level=logging.WARNING)
    return True


def drop(state: EngineState, slot: Slot, why: str, *, level: int = logging.INFO) -> None:
    """Give up what an idle slot holds."""
    log.log(level, "slot %d: dropping the cached prompt of %d tokens: %s", slot.id, len(slot.tokens), why)
    state.pool.clear(slot)


def drop_one_for_file(state: EngineState, slot: Slot) -> bool:
    """Give one up for a slot that is restored from a file. False if there is none, and without the planner, since
    llama-server gives up none."""
    return state.policy.is_enabled and drop_one(state, "a slot's file needs its cells", for_slot=slot)


def make_room(state: EngineState, slot: Slot, n_cells: int) -> Steps[None]:
    """Steps of a job: give prompts up until the slot finds so many cells in place of its own, or none is left.

    Those that are on their way to the prompt cache are waited for.
    """
    while state.policy.is_enabled and not state.pool.has_room(state.slots, n_cells, giving_up=slot):
        if drop_one_for_file(state, slot):
            continue
        leaving = [other for other in _with_prompts(state, slot) if _is_leaving(other)]
        if not leaving:
            return
        yield _Gone(leaving[0])


class _Gone:
    """The moment at which nothing needs what a slot holds, or its job waits for others and may hold it for long."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    def is_done(self) -> bool:
        job = self._slot.background_job
        return job is None or job.is_done() or not _is_leaving(self._slot)

    def wait(self) -> None:
        while not self.is_done() and self._slot.background_job is not None:
            self._slot.background_job.wait_for_step()


def _with_prompts(state: EngineState, for_slot: Slot | None) -> Iterator[Slot]:
    return (slot for slot in state.slots if slot.is_idle and slot.tokens and slot is not for_slot)


def _is_leaving(slot: Slot) -> bool:
    """Whether it is being saved, or will be when its turn comes. Not if a job may wait for the same memory."""
    job = slot.background_job
    return job is not None and slot.reserved_for is None and (job.can_be_dropped or not job.waits_in_line)
