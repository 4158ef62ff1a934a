"""From a prompt to the answers that share it (n > 1): the children take over where their parent's prompt ends."""

from __future__ import annotations

from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.slots import shared_prompt
from pyggml_server.engine.slots.slot import SharedPrompt, Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.messages import Began


def hand_over(state: EngineState, parent: Slot) -> None:
    """The parent's prompt is in its cells: the children that waited for it share them and continue on their own."""
    children, parent.children = parent.children, []
    if not children:
        return
    for slot in children:
        job = slot.active_job
        state.pool.copy(parent, slot)
        job.n_kept, job.n_prompt_processed = parent.active_job.n_kept, parent.active_job.n_prompt_processed
        slot.resident_since_s = state.clock()
        slot.state.move(SlotPhase.DONE_PROMPT)
        slot.state.move(SlotPhase.GENERATING)
        if job.task.is_streamed:
            state.outbox.append(Began(job.task_id))
    shared_prompt.leave(parent)
    shared = SharedPrompt(len(parent.tokens), [parent, *children], state.runtime.can_cut_prompts)
    for slot in shared.holders:
        slot.shared = shared
        slot.active_job.has_siblings = True
