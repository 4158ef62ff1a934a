"""Room for the next step of those who run (rules 2 to 5), from the cheapest way to the dearest.

1. leftovers and idle cached prompts; 2. wait for a park that is under way; 3. park; and, when nobody can be parked
(nor once the last part of a restore has ended, which is waited for):
4. decode without drafts; 5. waiting prompts give up the prefix they hold; 6. members of a group leave it and are parked
one by one; 7. a chat that host memory cannot hold leaves without its state, to be computed again; 8. shorter prompt
chunks, the latest request first; 9. the latest request fails, and only as many as it takes.

Why chunks are cut only after parking: what does not fit now will not fit in the next pass either, since everybody who
runs grows. A cut chunk would only put the park off, with a prompt in the pool that helps nobody until it is whole.
"""

from __future__ import annotations

from pyggml_server.planner.choice import Leaving
from pyggml_server.planner.ledger import Ledger
from pyggml_server.planner.plan import FailContext, HoldPrompt, LimitDraft, LimitPrompt, Reason, WaitForPark
from pyggml_server.planner.plan_builder import PlanBuilder
from pyggml_server.planner.policy import Policy
from pyggml_server.planner.reclaim import reclaim_actions, reclaim_prefixes
from pyggml_server.planner.shortage import lookahead_shortage, step_shortage
from pyggml_server.planner.victims import Terms, choose_victims, frees_late, leave_actions, refusals
from pyggml_server.planner.view import PARKABLE_PHASES, SlotPhase

#: On which terms residents leave once drafts and prefixes are given up, from the cheapest to the dearest.
_LAST_RESORTS = (
    Terms(),
    Terms(splits_groups=True),
    Terms(may_drop=True),
    Terms(may_drop=True, splits_groups=True),
)


def make_room_for_step(builder: PlanBuilder, policy: Policy) -> bool:
    """See that the next step fits. False: a copy must complete first, and the plan ends here."""
    ledger = builder.ledger
    if n_step_short(ledger) <= 0:
        return True
    builder.extend(reclaim_actions(ledger, n_step_short(ledger), Reason.STEP_SHORT))
    if n_step_short(ledger) <= 0:
        return True
    if in_flight := ledger.parks_in_flight:
        builder.add(WaitForPark(in_flight[0].slot_id, Reason.STEP_SHORT))
        return False
    victims = choose_victims(ledger, policy, step_shortage(ledger))
    if victims is None and (scatter := _scattering(ledger)) is not None:
        builder.add(WaitForPark(scatter, Reason.STEP_SHORT))
        return False
    builder.extend(refusals(ledger, policy, step_shortage(ledger)))
    if victims is None:
        _drop_drafts(builder)
        builder.extend(reclaim_prefixes(ledger, n_step_short(ledger), Reason.STEP_SHORT))
        victims = _last_to_leave(ledger, policy)
    if victims is None:
        _cut_chunks(builder)
        _fail_latest(builder)
        return True
    return _leave_for_step(builder, victims)


def make_room_ahead(builder: PlanBuilder, policy: Policy) -> None:
    """Where parks free cells late: keep the steps ahead clear, by at most one park a pass, and carry on."""
    ledger = builder.ledger
    n_short = lookahead_shortage(ledger, policy).n_short
    if n_short <= 0:
        return
    builder.extend(reclaim_actions(ledger, n_short, Reason.LOOKAHEAD_SHORT))
    shortage = lookahead_shortage(ledger, policy)
    if builder.has_parks or shortage.n_short <= 0:
        return
    builder.extend(refusals(ledger, policy, shortage))
    for leaving in (choose_victims(ledger, policy, shortage) or ())[:1]:
        builder.extend(leave_actions(ledger, leaving, Reason.LOOKAHEAD_SHORT))


def n_step_short(ledger: Ledger) -> int:
    """Cells missing for the next step of every resident."""
    return step_shortage(ledger).n_short


def _scattering(ledger: Ledger) -> int | None:
    """A slot that runs already while the last part of its restore is copied. That holds host memory for less than a
    step: nobody is computed again for it."""
    runs = (slot for slot in ledger.residents.values() if slot.phase in PARKABLE_PHASES)
    return next((slot.slot_id for slot in runs if slot.has_transfer_in_flight), None)


def _last_to_leave(ledger: Ledger, policy: Policy) -> list[Leaving] | None:
    for terms in _LAST_RESORTS:
        victims = choose_victims(ledger, policy, step_shortage(ledger), terms)
        if victims is not None:
            return victims
    return None


def _leave_for_step(builder: PlanBuilder, victims: list[Leaving]) -> bool:
    for leaving in victims:
        builder.extend(leave_actions(builder.ledger, leaving, Reason.STEP_SHORT))
        if frees_late(leaving):
            late = next(slot.slot_id for slot in leaving.candidate.unit if slot.frees_on_completion)
            builder.add(WaitForPark(late, Reason.STEP_SHORT))
            return False
    return True


def _drop_drafts(builder: PlanBuilder) -> None:
    for slot in list(builder.ledger.residents.values()):
        n_short = n_step_short(builder.ledger)
        if n_short <= 0:
            return
        if slot.phase is SlotPhase.GENERATING and slot.n_step_cells > 1:
            n_draft = max(0, slot.n_step_cells - 1 - n_short)
            builder.add(LimitDraft(slot.slot_id, Reason.NOBODY_CAN_BE_PARKED, n_draft))


def _cut_chunks(builder: PlanBuilder) -> None:
    prompts = [slot for slot in builder.ledger.residents.values() if slot.phase is SlotPhase.PROCESSING_PROMPT]
    for slot in sorted(prompts, key=builder.ledger.latest, reverse=True):
        if n_step_short(builder.ledger) <= 0:
            return
        n_tokens = 0 if slot.is_media_step else max(0, slot.n_step_cells - _n_chunk_cells_over(builder.ledger))
        if n_tokens:
            builder.add(LimitPrompt(slot.slot_id, Reason.NOBODY_CAN_BE_PARKED, n_tokens))
        else:
            builder.add(HoldPrompt(slot.slot_id, Reason.NOBODY_CAN_BE_PARKED))


def _n_chunk_cells_over(ledger: Ledger) -> int:
    """By how much the chunks must shrink: the shortage, and what they ask beyond the batch that they share."""
    return n_step_short(ledger) + max(0, ledger.n_chunk_cells - ledger.n_batch_tokens)


def _fail_latest(builder: PlanBuilder) -> None:
    """One at a time: the others go on with what it gave back, in this pass or (prompts held above) in the next."""
    has_failed = False
    while n_step_short(builder.ledger) > 0 or (_is_stuck(builder.ledger) and not has_failed):
        failing = [slot for slot in builder.ledger.residents.values() if not slot.has_transfer_in_flight]
        if not failing:
            return
        latest = max(failing, key=builder.ledger.latest)
        builder.add(FailContext(latest.slot_id, Reason.NOBODY_CAN_BE_PARKED))
        has_failed = True


def _is_stuck(ledger: Ledger) -> bool:
    """Whether everybody who runs was told to hold still, with no copy under way that would change that."""
    residents = ledger.residents.values()
    return bool(residents) and not any(slot.n_step_cells or slot.has_transfer_in_flight for slot in residents)
