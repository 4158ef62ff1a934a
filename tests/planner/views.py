"""Short ways to write a `View` in a test: a pool of 1000 cells, batches of 512, one byte of state per cell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyggml_server.planner.plan import Action, Plan
from pyggml_server.planner.view import SlotPhase, SlotView, View

POOL = 1000
BATCH = 512


def generating(slot_id: int, n_cells: int, **changes: Any) -> SlotView:
    slot = SlotView(
        slot_id,
        SlotPhase.GENERATING,
        n_cells=n_cells,
        n_cells_owned=n_cells,
        n_step_cells=1,
        request_order=slot_id,
        state_bytes=n_cells,
        n_tokens_since_park=10,
    )
    return replace(slot, **changes)


def prompting(slot_id: int, n_cells: int, n_left: int, **changes: Any) -> SlotView:
    slot = generating(slot_id, n_cells, n_prompt_left=n_left)
    return replace(slot, **{"phase": SlotPhase.PROCESSING_PROMPT, "n_step_cells": min(n_left, BATCH), **changes})


def started(slot_id: int, n_left: int, n_cells: int = 0, n_kept: int = 0, **changes: Any) -> SlotView:
    slot = prompting(slot_id, n_cells, n_left, n_kept_cells=n_kept, state_bytes=0)
    return replace(slot, **{"phase": SlotPhase.STARTED, **changes})


def parked(slot_id: int, n_cells: int, at_s: float = 0.0, **changes: Any) -> SlotView:
    slot = generating(slot_id, n_cells, parked_at_s=at_s, park_order=slot_id, buffer_bytes=n_cells)
    return replace(slot, **{"phase": SlotPhase.PREEMPTED, "n_cells_owned": 0, **changes})


def leaving(slot_id: int, n_cells: int, at_s: float = 0.0, **changes: Any) -> SlotView:
    """A park whose copy is in flight and that still holds its cells."""
    slot = parked(slot_id, n_cells, at_s, n_cells_owned=n_cells, has_transfer_in_flight=True, frees_on_completion=True)
    return replace(slot, **{"phase": SlotPhase.PREEMPTING, **changes})


def idle(slot_id: int, n_cells: int = 0, **changes: Any) -> SlotView:
    return replace(SlotView(slot_id, SlotPhase.IDLE, n_cells=n_cells, n_cells_owned=n_cells), **changes)


def view_of(*slots: SlotView, **changes: Any) -> View:
    """A view whose used and held figures are the sums over these slots."""
    view = View(
        now_s=100.0,
        n_cells=POOL,
        n_cells_used=sum(slot.n_cells_owned for slot in slots),
        slots=slots,
        n_batch_tokens=BATCH,
        ram_held_bytes=sum(slot.buffer_bytes for slot in slots),
    )
    return replace(view, **changes)


def orders(plan: Plan) -> list[tuple[str, int]]:
    """What a plan orders, without the reasons: (action, slot)."""
    return [(type(action).__name__, action.slot_id) for action in plan.actions]


def only(plan: Plan) -> Action:
    """The one action of a plan that has one."""
    (action,) = plan.actions
    return action
