"""Parks that no shortage asks for: by hand (rule 14), and after every so many tokens, for tests.

The last resident may leave too. A budget that refuses such a park is no reason to park another: nothing is short.
"""

from __future__ import annotations

from pyggml_server.planner.budget import give_backs_for_park
from pyggml_server.planner.plan import Park, Reason
from pyggml_server.planner.plan_builder import PlanBuilder
from pyggml_server.planner.policy import Policy
from pyggml_server.planner.units import Unit, is_parkable, resident_units
from pyggml_server.planner.victims import refusal
from pyggml_server.planner.view import SlotPhase


def park_as_ordered(builder: PlanBuilder, policy: Policy) -> None:
    """Park every unit of which a slot is to stay out, or has generated its quota."""
    ledger = builder.ledger
    if policy.n_preempt_every <= 0 and not any(slot.is_held for slot in ledger.residents.values()):
        return
    for unit in resident_units(ledger):
        reason = _why(unit, policy)
        if reason is None or not is_parkable(ledger, unit):
            continue
        give_backs = give_backs_for_park(ledger, unit)
        if give_backs is None:
            builder.extend(refusal(unit))
        else:
            builder.extend([*give_backs, *(Park(slot.slot_id, reason) for slot in unit)])


def _why(unit: Unit, policy: Policy) -> Reason | None:
    if any(slot.is_held for slot in unit):
        return Reason.BY_HAND
    n_most = policy.n_preempt_every
    if n_most > 0 and any(s.phase is SlotPhase.GENERATING and s.n_tokens_since_park >= n_most for s in unit):
        return Reason.FORCED
    return None
