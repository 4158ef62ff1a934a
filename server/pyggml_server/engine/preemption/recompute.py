"""Chats that leave the pool without their state and compute it again: what host memory cannot hold. Engine thread.

The tokens stay with the slot while it stands in line. When its turn comes they go through the model once more, as a
prompt does, and the chat continues with the token that it had sampled. Its text may differ from there on. The
planner orders it, `apply` logs and counts it.
"""

from __future__ import annotations

from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.slots import shared_prompt
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.slots.slot_states import SlotPhase


def drop(state: EngineState, slot: Slot) -> None:
    """Give the slot's cells back; its tokens are what it takes to come back, but the last one of a prompt."""
    if slot.phase is SlotPhase.PROCESSING_PROMPT:
        slot.tokens = slot.active_job.prompt[:-1]
    slot.state.move(SlotPhase.PREEMPTING)
    slot.state.move(SlotPhase.PREEMPTED)
    slot.active_job.needs_refill = True
    state.pool.release_cells(slot)
    shared_prompt.leave(slot)


def lose_state(slot: Slot) -> None:
    """The parked slot's state is gone; its tokens are what it takes to come back, as after `drop`."""
    if slot.state.former is SlotPhase.PROCESSING_PROMPT:
        slot.tokens = slot.active_job.to_process[:-1]
    slot.active_job.needs_refill = True
    shared_prompt.leave(slot)


def refill(slot: Slot) -> None:
    """Begin to compute the tokens again. A prompt that had given no token yet begins anew."""
    job = slot.active_job
    if job.n_decoded:
        job.refill = slot.tokens
    else:
        job.refill = job.prompt
        job.n_kept = job.n_prompt_processed = 0
        job.task.start(slot.id, slot.n_ctx, 0)
    slot.tokens = []
    job.needs_refill = job.has_run_since_restore = False
    slot.state.move(SlotPhase.PROCESSING_PROMPT)


def note_decoded(slot: Slot, now_s: float) -> None:
    """The slot's new tokens are in its list. A refill that is through: it is back, its turn begins."""
    job = slot.active_job
    if job.refill is not None and len(slot.tokens) < len(job.refill):
        return
    job.has_run_since_restore = True
    if job.refill is not None:
        slot.resident_since_s = now_s
    if job.refill is not None and job.n_decoded:
        slot.state.move(SlotPhase.DONE_PROMPT)
        slot.state.move(SlotPhase.GENERATING)
    job.refill = None
