"""Guessing ahead (speculative decoding): which slot may guess how much in this pass. Engine thread.

After the plan, which counted these cells, and before the batch, which verifies the guesses. Guesses are llama.cpp's own
(`Runtime.draft`); a slot that guesses nothing decodes its one token as ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.planner.plan import Plan

# As llama-server: a context shift needs one position beyond the next token's.
_N_SPARE_POSITIONS = 2


def longest_draft(state: EngineState, slot: Slot) -> int:
    """The most tokens that the slot may guess: as many as its context and its request still have room for."""
    job = slot.active_job
    n_tokens = min(state.runtime.n_draft_max, slot.n_ctx - len(slot.tokens) - _N_SPARE_POSITIONS)
    n_left = job.task.n_predict - job.n_decoded
    if job.task.n_predict != -1 and n_left > 0:
        n_tokens = min(n_tokens, n_left - 1)
    return max(0, n_tokens)


def draft(state: EngineState, slots: Sequence[Slot], plan: Plan) -> list[list[int]]:
    """What each of these generating slots guesses, within the plan and (all together) within one batch."""
    if not state.runtime.speculates or not slots:
        return [[] for _ in slots]
    n_left = state.runtime.n_batch - len(slots)
    limits: list[int] = []
    for slot in slots:
        n_longest = longest_draft(state, slot)
        n_tokens = min(n_longest, plan.draft_limits.get(slot.id, n_longest), n_left)
        limits.append(n_tokens)
        n_left -= n_tokens
    return state.runtime.draft([slot.active_job.task for slot in slots], limits)
