"""The way back in (rule 6): strictly head of the line by park time; nobody passes a head that does not fit."""

from __future__ import annotations

from pyggml_server.planner.disk import fetch
from pyggml_server.planner.plan import FailContext, LimitDraft, Reason, Refill, Restore
from pyggml_server.planner.plan_builder import PlanBuilder
from pyggml_server.planner.policy import Policy
from pyggml_server.planner.reclaim import reclaim_actions, reclaim_prefixes
from pyggml_server.planner.shortage import restore_shortage
from pyggml_server.planner.units import Unit, is_restorable, waiting_unit


def restore_line(builder: PlanBuilder, policy: Policy) -> None:
    """Restore from the head of the line on, until one does not fit or is not ready."""
    while (unit := ready_head(builder)) and admit(builder, policy, unit, Reason.HEAD_OF_LINE):
        pass


def ready_head(builder: PlanBuilder) -> Unit | None:
    """The head of the line, if its state lies whole on the host and this plan did not park it."""
    line = builder.ledger.line
    if not line:
        return None
    unit = waiting_unit(builder.ledger, line[0])
    if not is_restorable(unit) or any(builder.has_parked(slot) for slot in unit):
        return None
    return unit


def admit(builder: PlanBuilder, policy: Policy, unit: Unit, reason: Reason) -> bool:
    """Restore the unit if it may come in; True when the line has moved on (restored, or failed for good)."""
    ledger = builder.ledger
    n_short = restore_shortage(ledger, unit, policy).n_short
    if n_short > ledger.n_reclaimable_cells:
        if ledger.runners or ledger.parks_in_flight:
            return False  # somebody will end, or be parked
        return _admit_alone(builder, policy, unit, reason)
    if unit[0].is_on_disk:
        fetch(builder, unit[0], reason)
        return False
    builder.extend(reclaim_actions(ledger, n_short, reason))
    builder.extend(_returns(unit, reason))
    return True


def _admit_alone(builder: PlanBuilder, policy: Policy, unit: Unit, reason: Reason) -> bool:
    """Nothing runs and nothing will complete, so waiting would be for ever: clear the pool for it, or fail it."""
    ledger = builder.ledger
    if unit[0].is_on_disk:
        fetch(builder, unit[0], reason)
        return False
    builder.extend(reclaim_actions(ledger, restore_shortage(ledger, unit, policy).n_short, reason))
    builder.extend(reclaim_prefixes(ledger, restore_shortage(ledger, unit, policy).n_short, reason))
    n_short = restore_shortage(ledger, unit, policy).n_short
    n_draft = sum(_n_draft_cells(slot.n_prompt_left, slot.n_step_cells) for slot in unit)
    if n_short > n_draft:
        builder.extend(FailContext(slot.slot_id, Reason.CANNOT_FIT_ALONE) for slot in unit)
        return True
    builder.extend(_returns(unit, reason))
    if n_short > 0:
        builder.extend(LimitDraft(slot.slot_id, reason, 0) for slot in unit if not slot.needs_refill)
    return True


def _returns(unit: Unit, reason: Reason) -> list[Restore | Refill]:
    return [(Refill if slot.needs_refill else Restore)(slot.slot_id, reason) for slot in unit]


def _n_draft_cells(n_prompt_left: int, n_step_cells: int) -> int:
    return 0 if n_prompt_left else n_step_cells - 1
