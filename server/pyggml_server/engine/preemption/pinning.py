"""Pinned memory ahead of the parks that may come, by what the running slots would need. Engine thread.

Between two decodes, so that no park has to wait for its memory. `transfers/park_memory.py` does the pinning.
"""

from __future__ import annotations

from pyggml_server.engine.lifecycle.engine_state import EngineState

# A budget that holds so many times what is estimated holds what will be measured.
AMPLE_FACTOR = 2


def budget_is_ample(state: EngineState) -> bool:
    """Whether the budget holds the states of all running slots, by far. Then no park asks how large a state is, which
    would walk the cells of each slot while all wait."""
    if state.sizes.cell_bytes <= 0:
        return False
    running = [len(slot.tokens) for slot in state.slots if slot.job is not None and not slot.transfer.state_bytes]
    n_bytes = state.sizes.of(sum(running), len(running))
    return state.ram_held_bytes() + AMPLE_FACTOR * n_bytes <= state.ram_limit_bytes


def largest_running_bytes(state: EngineState) -> int:
    """The largest state that the next park may have to save, by estimate."""
    return state.sizes.of(max(_running_cells(state), default=0))


def _running_cells(state: EngineState) -> list[int]:
    """What the running slots hold, or will once their prompts are in."""
    running = [slot for slot in state.busy() if not slot.state.is_preempted and not slot.transfer.state_bytes]
    return [max(len(slot.tokens), len(slot.active_job.to_process)) for slot in running]


def keep_memory_ahead(state: EngineState) -> None:
    """Between two decodes: have pinned memory ready for parks of the running slots. Blocks for one piece of it at
    most."""
    for slot in state.slots:
        if slot.transfer.state_bytes > 0:
            state.sizes.learn(len(slot.tokens), slot.transfer.state_bytes)
    running = _running_cells(state)
    all_bytes = state.sizes.of(min(sum(running), state.pool.n_cells), len(running))
    state.memory.keep_ahead(state.sizes.of(max(running, default=0)), all_bytes)
