"""How many cells are short, and of what (rules 2, 3 and 6). Arithmetic only: a result above 0 is a shortage."""

from __future__ import annotations

from collections.abc import Iterable

from pyggml_server.planner.policy import Policy
from pyggml_server.planner.units import Unit, n_return_cells
from pyggml_server.planner.view import SlotPhase, SlotView, View


def n_reserve_cells(view: View, slots: Iterable[SlotView]) -> int:
    """The next step of each of these slots. Prompt chunks share one batch, so together they take no more than that."""
    n_chunk_cells = n_other_cells = 0
    for slot in slots:
        if slot.n_prompt_left and not slot.is_media_step:
            n_chunk_cells += slot.n_step_cells
        else:
            n_other_cells += slot.n_step_cells
    return n_other_cells + min(n_chunk_cells, view.n_batch_tokens)


def n_lookahead_cells(slots: Iterable[SlotView], policy: Policy) -> int:
    """The decode steps ahead of each of these slots (a prompt's too: it generates once it is through)."""
    return policy.n_lookahead_steps * sum(slot.n_decode_step_cells for slot in slots)


def promised_prompts(view: View) -> list[SlotView]:
    """Started prompts for which somebody was parked: they go before those who made room for them."""
    paid_for = {slot.parked_for_request for slot in view.waiting()} - {None}
    return [slot for slot in view.started() if slot.request_order in paid_for]


def runners(view: View) -> list[SlotView]:
    """Slots that run, or are sure to: residents and promised prompts."""
    return [*view.residents(), *promised_prompts(view)]


def parks_in_flight(view: View) -> list[SlotView]:
    """Slots whose cells come free when a copy that is in flight completes, in the order in which they were issued."""
    leaving = (SlotPhase.PREEMPTING, SlotPhase.IDLE)  # IDLE: a save to the prompt cache
    slots = (s for s in view.slots if s.phase in leaving and s.has_transfer_in_flight and _brings_cells(s))
    return sorted(slots, key=lambda s: s.park_order)


def _brings_cells(slot: SlotView) -> bool:
    """Its own; or, even without any, those that it shares with others who leave."""
    return slot.n_cells_owned > 0 or (slot.group_id is not None and slot.frees_on_completion)


def n_step_short(view: View, extra: Iterable[SlotView] = ()) -> int:
    """Cells missing for the next step of every resident, and of the `extra` slots."""
    return view.n_cells_used + n_reserve_cells(view, [*view.residents(), *extra]) - view.n_cells_usable


def n_lookahead_short(view: View, policy: Policy) -> int:
    """Cells missing for the steps ahead, where parks free cells late; cells about to come free count as free."""
    late = [slot for slot in view.residents() if slot.frees_on_completion]
    if not late:
        return 0
    n_coming = sum(slot.n_cells_owned for slot in parks_in_flight(view))
    n_ahead = n_reserve_cells(view, runners(view)) + n_lookahead_cells(late, policy)
    return view.n_cells_used - n_coming + n_ahead - view.n_cells_usable


def n_restore_short(view: View, unit: Unit, policy: Policy) -> int:
    """Cells missing to admit a parked unit. The steps ahead are waived when it will have the pool to itself.

    Prompts on their way in count whole: a unit that comes in beside half a prompt would leave for the other half.
    """
    running = runners(view)
    after = [*running, *unit]
    n_next = sum(max(slot.n_step_cells, slot.n_prompt_left) for slot in after)
    n_ahead = n_lookahead_cells(after, policy) if running else 0
    return view.n_cells_used + n_return_cells(view, unit) + n_next + n_ahead - view.n_cells_usable
