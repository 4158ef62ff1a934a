"""Context shift (--context-shift): a full slot drops its middle tokens and continues. Engine thread."""

from __future__ import annotations

import logging

from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import waits
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.slots.slot_states import SlotPhase

log = logging.getLogger(__name__)


def shift_full_slots(state: EngineState) -> None:
    """Shift every generating slot whose next token would not fit its context."""
    if not state.runtime.shifts_context:
        return
    for slot in state.slots:
        if slot.phase is SlotPhase.GENERATING and len(slot.tokens) + 1 >= slot.n_ctx:
            if slot.active_job.has_siblings:
                endings.fail(state, slot, "context shift cannot be used for shared prompt")
            else:
                waits.for_slot(state, slot)  # it may have come back just now
                _shift(state, slot)


def _shift(state: EngineState, slot: Slot) -> None:
    job = slot.active_job
    n_keep = job.n_prompt if job.task.n_keep < 0 else job.task.n_keep
    n_keep = min(n_keep + int(state.runtime.adds_bos), slot.n_ctx - 4)
    n_left = len(slot.tokens) - n_keep
    n_discard = min(max(job.task.n_discard or n_left // 2, 0), max(0, n_left - 1))
    log.warning(
        "slot %d: context shift, keeping %d of %d tokens, dropping %d", slot.id, n_keep, len(slot.tokens), n_discard
    )
    state.pool.shift(slot, n_keep, n_discard)
    job.task.note_shift(n_keep, n_discard)
