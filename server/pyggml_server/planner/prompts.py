"""New prompts (rules 2 and 6): who among the started slots gets cells in this pass. First come, first served.

* A prompt for which somebody was parked goes first (its promise), and so does one whose turn has come (`rotation.py`);
  else, while a parked head waits, a prompt gets cells only if the head would still be admitted once the *whole* prompt
  is in: a chunk that fits is no excuse for the rest.
* A prompt that does not fit parks residents, by the victim rules, if that makes room for the whole of it. If not -- the
  last resident is in its way, or host memory is -- it waits in STARTED, later prompts wait behind it; residents end, so
  it gets its room. Its chunk is not cut to what is left: half a prompt in a full pool would be parked next.
* With nothing running it gets all there is: cached prompts, and the prefixes that later prompts hold.
"""

from __future__ import annotations

from dataclasses import replace

from pyggml_server.planner.effects import n_trimmed_cells
from pyggml_server.planner.margins import n_restore_short, n_step_short, parks_in_flight, promised_prompts
from pyggml_server.planner.plan import HoldPrompt, Reason
from pyggml_server.planner.plan_builder import PlanBuilder
from pyggml_server.planner.policy import Policy
from pyggml_server.planner.reclaim import n_reclaimable_cells, reclaim_actions, reclaim_prefixes
from pyggml_server.planner.rotation import has_turn
from pyggml_server.planner.units import Unit, waiting_unit
from pyggml_server.planner.victims import choose_victims, frees_late, park_actions, refusals
from pyggml_server.planner.view import RESIDENT_PHASES, SlotPhase, SlotView, View


def admit_prompts(builder: PlanBuilder, policy: Policy) -> None:
    """Start each prompt that may take its chunk, in order of arrival; hold the rest.

    One for which somebody was parked is before all others: one that arrived earlier and got its slot later (it waited
    for several) would wait for the parked one, and that for this.
    """
    is_blocked = False
    promised = promised_prompts(builder.view)
    for started in [*promised, *(slot for slot in builder.view.started() if slot not in promised)]:
        slot = builder.view.slot(started.slot_id)  # earlier prompts may have trimmed it
        why = Reason.BEHIND_PROMPT if is_blocked else _why_not(builder, policy, slot)
        if why is None:
            builder.start(builder.view.slot(slot.slot_id))
        else:
            builder.add(HoldPrompt(slot.slot_id, why))
            is_blocked = True


def _why_not(builder: PlanBuilder, policy: Policy, slot: SlotView) -> Reason | None:
    """Make room for the prompt's chunk. None when it may run; else why it must wait."""
    if not _head_agrees(builder.view, policy, slot):
        return Reason.HEAD_WAITS
    n_short = n_step_short(builder.view, [slot])
    if n_short <= n_reclaimable_cells(builder.view):
        builder.extend(reclaim_actions(builder.view, n_short, Reason.PROMPT_SHORT))
        return None
    if parks_in_flight(builder.view):
        return Reason.PARK_IN_FLIGHT
    if not any(builder.view.residents()):
        return _clear_pool(builder, slot)
    return _park_for(builder, policy, slot)


def _head_agrees(view: View, policy: Policy, slot: SlotView) -> bool:
    """Whether nobody waits, or it is this prompt's turn, or the head would still be admitted afterwards."""
    line = view.waiting()
    if not line or slot in promised_prompts(view) or has_turn(view, policy, slot):
        return True
    later = _once_prompts_are_in(view, slot)
    return n_restore_short(later, waiting_unit(view, line[0]), policy) <= n_reclaimable_cells(later)


def _once_prompts_are_in(view: View, started: SlotView) -> View:
    """The view once this prompt is in, and those that run already: each may leave the head its room, but not all."""
    n_used = view.n_cells_used - n_trimmed_cells(started, started.n_kept_cells)
    slots: list[SlotView] = []
    for slot in view.slots:
        if slot.slot_id == started.slot_id or (slot.phase in RESIDENT_PHASES and slot.n_prompt_left):
            n_used += slot.n_prompt_left
            n_step = slot.n_decode_step_cells
            slots.append(replace(slot, phase=SlotPhase.GENERATING, n_prompt_left=0, n_step_cells=n_step))
        else:
            slots.append(slot)
    return replace(view, slots=tuple(slots), n_cells_used=n_used)


def _clear_pool(builder: PlanBuilder, slot: SlotView) -> Reason | None:
    builder.extend(reclaim_actions(builder.view, n_step_short(builder.view, [slot]), Reason.PROMPT_SHORT))
    slot = builder.view.slot(slot.slot_id)
    n_short = n_step_short(builder.view, [slot])
    builder.extend(reclaim_prefixes(builder.view, n_short, Reason.PROMPT_SHORT, keep_slot=slot.slot_id))
    return None if n_step_short(builder.view, [slot]) <= 0 else Reason.NOBODY_CAN_BE_PARKED


def _park_for(builder: PlanBuilder, policy: Policy, slot: SlotView) -> Reason | None:
    """Park residents for it, if that makes room for the whole prompt."""
    n_spare = n_reclaimable_cells(builder.view)
    whole = replace(slot, n_step_cells=slot.n_prompt_left, is_media_step=True)  # uncut, and beyond one batch

    def victims(want: SlotView, n_to_spare: int = 0) -> list[Unit] | None:
        return choose_victims(
            builder.view, policy, lambda view: n_step_short(view, [want]) - n_to_spare, builder.newcomers
        )

    if victims(whole, n_spare) is None:
        builder.extend(
            refusals(builder.view, policy, lambda view: n_step_short(view, [whole]) - n_spare, builder.newcomers)
        )
        return Reason.NOBODY_CAN_BE_PARKED
    builder.extend(reclaim_actions(builder.view, n_step_short(builder.view, [slot]), Reason.PROMPT_SHORT))
    slot = builder.view.slot(slot.slot_id)
    leaving = victims(slot)
    if leaving is None:  # the budget may hold this many states in one order and not in another
        return Reason.NOBODY_CAN_BE_PARKED
    is_late = False
    for unit in leaving:
        orders = park_actions(builder.view, unit, Reason.PROMPT_SHORT, for_request=slot.request_order) or []
        builder.extend(orders)
        is_late = is_late or frees_late(unit)
    return Reason.PARK_IN_FLIGHT if is_late else None
