"""Room for the next step of those who run (rules 2 to 5), from the cheapest way to the dearest.

1. leftovers and idle cached prompts; 2. wait for a park that is under way; 3. park; and, when nobody can be parked
(nor once the last part of a restore has ended, which is waited for):
4. decode without drafts; 5. waiting prompts give up the prefix they hold; 6. who does not fit the host memory leaves
without its state, to be computed again; 7. shorter prompt chunks, the latest request first; 8. the latest request
fails, and only as many as it takes.

Why chunks are cut only after parking: what does not fit now will not fit in the next pass either, since everybody who
runs grows. A cut chunk would only put the park off, with a prompt in the pool that helps nobody until it is whole.
"""

from __future__ import annotations

from pyggml_server.planner.margins import n_lookahead_short, n_step_short, parks_in_flight
from pyggml_server.planner.plan import FailContext, HoldPrompt, LimitDraft, LimitPrompt, Park, Reason, WaitForPark
from pyggml_server.planner.plan_builder import PlanBuilder
from pyggml_server.planner.policy import Policy
from pyggml_server.planner.reclaim import reclaim_actions, reclaim_prefixes
from pyggml_server.planner.units import Unit
from pyggml_server.planner.victims import choose_victims, leave_actions, next_victim, park_actions, refusals
from pyggml_server.planner.view import PARKABLE_PHASES, SlotPhase, View


def make_room_for_step(builder: PlanBuilder, policy: Policy) -> bool:
    """See that the next step fits. False: a copy must complete first, and the plan ends here."""
    builder.extend(reclaim_actions(builder.view, n_step_short(builder.view), Reason.STEP_SHORT))
    if n_step_short(builder.view) <= 0:
        return True
    if in_flight := parks_in_flight(builder.view):
        builder.add(WaitForPark(in_flight[0].slot_id, Reason.STEP_SHORT))
        return False
    victims = choose_victims(builder.view, policy, n_step_short)
    if victims is None and (scatter := _scattering(builder.view)) is not None:
        builder.add(WaitForPark(scatter, Reason.STEP_SHORT))
        return False
    builder.extend(refusals(builder.view, policy, n_step_short))
    if victims is None:
        _drop_drafts(builder)
        builder.extend(reclaim_prefixes(builder.view, n_step_short(builder.view), Reason.STEP_SHORT))
        victims = choose_victims(builder.view, policy, n_step_short, may_drop=True)
    if victims is None:
        _cut_chunks(builder)
        _fail_latest(builder)
        return True
    return _leave_for_step(builder, victims)


def _scattering(view: View) -> int | None:
    """Who runs already beside the last part of its restore. That holds host memory for less than a step: nobody is
    computed again for it."""
    runs = (slot for slot in view.slots if slot.phase in PARKABLE_PHASES)
    return next((slot.slot_id for slot in runs if slot.has_transfer_in_flight), None)


def make_room_ahead(builder: PlanBuilder, policy: Policy) -> None:
    """Where parks free cells late: keep the steps ahead clear, by at most one park a pass, and carry on."""
    short = n_lookahead_short(builder.view, policy)
    builder.extend(reclaim_actions(builder.view, short, Reason.LOOKAHEAD_SHORT))
    if builder.has_parks or n_lookahead_short(builder.view, policy) <= 0:
        return

    def short_of(view: View) -> int:
        return n_lookahead_short(view, policy)

    builder.extend(refusals(builder.view, policy, short_of))
    unit = next_victim(builder.view, policy, short_of)
    if unit is not None:
        builder.extend(park_actions(builder.view, unit, Reason.LOOKAHEAD_SHORT) or ())


def _leave_for_step(builder: PlanBuilder, victims: list[Unit]) -> bool:
    for unit in victims:
        orders = leave_actions(builder.view, unit, Reason.STEP_SHORT)
        builder.extend(orders)
        late = [slot.slot_id for slot in unit if slot.frees_on_completion]
        if late and any(isinstance(order, Park) for order in orders):
            builder.add(WaitForPark(late[0], Reason.STEP_SHORT))
            return False
    return True


def _drop_drafts(builder: PlanBuilder) -> None:
    for slot in builder.view.residents():
        if n_step_short(builder.view) <= 0:
            return
        if slot.phase is SlotPhase.GENERATING and slot.n_step_cells > 1:
            n_draft = max(0, slot.n_step_cells - 1 - n_step_short(builder.view))
            builder.add(LimitDraft(slot.slot_id, Reason.NOBODY_CAN_BE_PARKED, n_draft))


def _cut_chunks(builder: PlanBuilder) -> None:
    prompts = [slot for slot in builder.view.residents() if slot.phase is SlotPhase.PROCESSING_PROMPT]
    for slot in sorted(prompts, key=lambda slot: -slot.request_order):
        if n_step_short(builder.view) <= 0:
            return
        n_tokens = 0 if slot.is_media_step else max(0, slot.n_step_cells - _n_chunk_cells_over(builder))
        if n_tokens:
            builder.add(LimitPrompt(slot.slot_id, Reason.NOBODY_CAN_BE_PARKED, n_tokens))
        else:
            builder.add(HoldPrompt(slot.slot_id, Reason.NOBODY_CAN_BE_PARKED))


def _n_chunk_cells_over(builder: PlanBuilder) -> int:
    """By how much the chunks must shrink: the shortage, and what they ask beyond the batch that they share."""
    chunks = [s.n_step_cells for s in builder.view.residents() if s.n_prompt_left and not s.is_media_step]
    return n_step_short(builder.view) + max(0, sum(chunks) - builder.view.n_batch_tokens)


def _fail_latest(builder: PlanBuilder) -> None:
    """One at a time: the others go on with what it gave back, in this pass or (prompts held above) in the next."""
    has_failed = False
    while n_step_short(builder.view) > 0 or (_is_stuck(builder) and not has_failed):
        failing = [slot for slot in builder.view.residents() if not slot.has_transfer_in_flight]
        if not failing:
            return
        latest = max(failing, key=lambda slot: slot.request_order)
        builder.add(FailContext(latest.slot_id, Reason.NOBODY_CAN_BE_PARKED))
        has_failed = True


def _is_stuck(builder: PlanBuilder) -> bool:
    """Whether everybody who runs was told to hold still, with no copy under way that would change that."""
    residents = list(builder.view.residents())
    return bool(residents) and not any(slot.n_step_cells or slot.has_transfer_in_flight for slot in residents)
