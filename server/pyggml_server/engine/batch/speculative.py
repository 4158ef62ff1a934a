"""Guessing ahead (speculative decoding): which slot may guess how much in this pass. Engine thread.

After the plan, which counted these cells, and before the batch, which verifies the guesses. Guesses are llama.cpp's own
(`Runtime.draft`); a slot that guesses nothing decodes its one token as ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.slots.draft_limit import longest_draft
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.planner.plan import Plan


def draft(state: EngineState, slots: Sequence[Slot], plan: Plan) -> list[list[int]]:
    """What each of these generating slots guesses, within the plan and (all together) within one batch."""
    if not state.runtime.speculates or not slots:
        return [[] for _ in slots]
    n_left = state.runtime.n_batch - len(slots)
    limits: list[int] = []
    for slot in slots:
        n_longest = longest_draft(slot, state.runtime.n_draft_max)
        n_tokens = min(n_longest, plan.draft_limits.get(slot.id, n_longest), n_left)
        limits.append(n_tokens)
        n_left -= n_tokens
    return state.runtime.draft([slot.active_job.task for slot in slots], limits)
