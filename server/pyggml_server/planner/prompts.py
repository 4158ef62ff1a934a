"""New prompts (rule 6): which of the started slots get cells in this pass. First come, first served.

* A prompt for which somebody was parked goes first (its promise), and so does one whose turn has come (`rotation.py`);
  else, while a parked head waits, a prompt gets cells only if the head would still be admitted once the *whole* prompt
  is in: a chunk that fits is no excuse for the rest.
* A prompt that does not fit parks residents, by the victim rules, if that makes room for the whole of it. If not, it
  waits in STARTED: the last resident is in its way, or host memory is. Residents end, so it gets its room. Its chunk is
  not cut to what is left: half a prompt in a full pool would be parked next.
* A later prompt passes one that waits only where it sets nobody back: it is let in as a parked chat would be, whole and
  with the steps ahead, and every prompt that it passes must still fit with all who passed, once the others have left.
  Whoever passed is the first to leave when the room is needed (`victims.Passers`), and keeps nobody from leaving.
* With nothing running a prompt gets all there is: cached prompts, and the prefixes that later prompts hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyggml_server.planner.ledger import Ledger
from pyggml_server.planner.plan import Reason
from pyggml_server.planner.plan_builder import PlanBuilder
from pyggml_server.planner.policy import Policy
from pyggml_server.planner.reclaim import reclaim_actions, reclaim_prefixes
from pyggml_server.planner.rotation import has_turn
from pyggml_server.planner.shortage import head_shortage_after_prompts, passing_shortage, step_shortage
from pyggml_server.planner.units import waiting_unit
from pyggml_server.planner.victims import Passers, Terms, choose_victims, frees_late, leave_actions, refusals
from pyggml_server.planner.view import SlotView


def admit_prompts(builder: PlanBuilder, policy: Policy, better_than: Sequence[SlotView] | None = None) -> None:
    """Start each prompt that may take its chunk, by class and in order of arrival; hold the rest.

    One for which somebody was parked is before all others: one that arrived earlier and got its slot later (it waited
    for several) would wait for the parked one, and that for this. With `better_than` only prompts of a better class
    than that slot are asked.
    """
    ledger = builder.ledger
    if better_than is not None and not (better_than and ledger.classes.are_many):
        return
    promised = ledger.promised
    for slot in [*promised, *(slot for slot in ledger.started if slot not in promised)]:
        if slot.slot_id in builder.held or (better_than and not ledger.classes.is_better(slot, better_than[0])):
            continue
        slot = ledger.slot(slot.slot_id)  # earlier prompts may have trimmed it
        held = list(builder.held.values())
        why = _why_not(builder, policy, slot) if _may_pass(ledger, policy, slot, held) else Reason.BEHIND_PROMPT
        if why is None:
            builder.start(ledger.slot(slot.slot_id))
        else:
            builder.hold(slot, why)


def _may_pass(ledger: Ledger, policy: Policy, slot: SlotView, held: list[tuple[SlotView, Reason]]) -> bool:
    """Whether nobody waits before it, or it sets none of them back."""
    if not held:
        return True
    if slot.n_prompt_left > ledger.n_free_cells + ledger.n_reclaimable_cells:
        return False  # quickly told, and true of most in a full pool
    if passing_shortage(ledger, slot, policy).n_short > 0:
        return False
    promised = ledger.promised
    for waiter, why in held:
        if why is Reason.PARK_IN_FLIGHT or waiter in promised or has_turn(ledger, policy, waiter):
            return False  # its room is being made, or will be as soon as that can be
    passers = Passers(ledger, [waiter for waiter, _ in held])
    n_passing = sum(_n_needed_cells(s, policy) for s in ledger.residents.values() if passers.has((s,)))
    n_most = max(_n_needed_cells(waiter, policy) for waiter, _ in held)
    return n_passing + _n_needed_cells(slot, policy) + n_most <= ledger.n_cells


def _n_needed_cells(slot: SlotView, policy: Policy) -> int:
    return slot.n_alone_cells + (1 + policy.n_lookahead_steps) * slot.n_decode_step_cells


def _why_not(builder: PlanBuilder, policy: Policy, slot: SlotView) -> Reason | None:
    """Make room for the prompt's chunk. None when it may run; else why it must wait."""
    ledger = builder.ledger
    if not _head_agrees(ledger, policy, slot):
        return Reason.HEAD_WAITS
    n_short = step_shortage(ledger, [slot]).n_short
    if n_short <= ledger.n_reclaimable_cells:
        builder.extend(reclaim_actions(ledger, n_short, Reason.PROMPT_SHORT))
        return None
    if ledger.parks_in_flight:
        return Reason.PARK_IN_FLIGHT
    if not ledger.residents:
        return _clear_pool(builder, slot)
    return _park_for(builder, policy, slot)


def _head_agrees(ledger: Ledger, policy: Policy, slot: SlotView) -> bool:
    """Whether nobody waits, or it is this prompt's turn, or the head would still be admitted afterwards."""
    line = ledger.line
    if not line or ledger.classes.is_better(slot, line[0]):
        return True
    if slot in ledger.promised or has_turn(ledger, policy, slot):
        return True
    head = waiting_unit(ledger, line[0])
    return head_shortage_after_prompts(ledger, head, slot, policy) <= ledger.n_reclaimable_cells


def _clear_pool(builder: PlanBuilder, slot: SlotView) -> Reason | None:
    ledger = builder.ledger
    builder.extend(reclaim_actions(ledger, step_shortage(ledger, [slot]).n_short, Reason.PROMPT_SHORT))
    slot = ledger.slot(slot.slot_id)
    n_short = step_shortage(ledger, [slot]).n_short
    builder.extend(reclaim_prefixes(ledger, n_short, Reason.PROMPT_SHORT, keep_slot=slot.slot_id))
    return None if step_shortage(ledger, [slot]).n_short <= 0 else Reason.NOBODY_CAN_BE_PARKED


def _park_for(builder: PlanBuilder, policy: Policy, slot: SlotView) -> Reason | None:
    """Park residents for it, if that makes room for the whole prompt."""
    ledger = builder.ledger
    terms = Terms(newcomers=builder.newcomers, waiter=slot)
    for_all_of_it = step_shortage(ledger, [slot.as_whole()], ledger.n_reclaimable_cells)
    if choose_victims(ledger, policy, for_all_of_it, terms) is None:
        builder.extend(refusals(ledger, policy, for_all_of_it, terms))
        return Reason.NOBODY_CAN_BE_PARKED
    builder.extend(reclaim_actions(ledger, step_shortage(ledger, [slot]).n_short, Reason.PROMPT_SHORT))
    slot = ledger.slot(slot.slot_id)
    leaving = choose_victims(ledger, policy, step_shortage(ledger, [slot]), replace(terms, waiter=slot))
    if leaving is None:  # the budget may hold this many states in one order and not in another
        return Reason.NOBODY_CAN_BE_PARKED
    for one in leaving:
        builder.extend(leave_actions(ledger, one, Reason.PROMPT_SHORT, for_request=slot.request_order))
    return Reason.PARK_IN_FLIGHT if any(map(frees_late, leaving)) else None
