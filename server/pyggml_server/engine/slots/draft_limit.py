"""How far a slot may guess ahead (speculative decoding). The planner counts these cells, the batch fills them."""

from __future__ import annotations

from pyggml_server.engine.slots.slot import Slot

# As llama-server: a context shift needs one position beyond the next token's.
_N_SPARE_POSITIONS = 2


def longest_draft(slot: Slot, n_draft_max: int) -> int:
    """The most tokens that the slot may guess: as many as its context and its request still have room for."""
    job = slot.active_job
    n_tokens = min(n_draft_max, slot.n_ctx - len(slot.tokens) - _N_SPARE_POSITIONS)
    n_left = job.task.n_predict - job.n_decoded
    if job.task.n_predict != -1 and n_left > 0:
        n_tokens = min(n_tokens, n_left - 1)
    return max(0, n_tokens)
