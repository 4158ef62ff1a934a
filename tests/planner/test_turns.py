"""Rule 7 where a prompt without cells waits: one line with the parked, in the order in which they began to wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyggml_server.planner import Plan, Policy, decide
from pyggml_server.planner.plan import HoldPrompt, Park, Reason, Recompute, Refill, RefuseRotation, Restore, TrimStarted
from pyggml_server.planner.view import SlotView

from tests.planner.model_pool import Copies, Setup
from tests.planner.simulator import Arrival, simulate
from tests.planner.views import generating, only, orders, parked, started, view_of

ROTATING = Policy(rotate_s=30.0)
LONG_AGO, JUST_NOW = 10.0, 90.0  # the view's clock is at 100


def waits(slot_id: int, n_left: int, since_s: float, **changes: object) -> SlotView:
    return replace(started(slot_id, n_left, started_at_s=since_s), **changes)  # type: ignore[arg-type]


def test_the_last_resident_leaves_for_a_prompt_that_waited_longer_than_the_delay() -> None:
    plan = decide(view_of(generating(0, 700), waits(1, 400, since_s=LONG_AGO)), ROTATING)
    assert only(plan) == Park(0, Reason.ROTATION, for_request=1)


@pytest.mark.parametrize(("since_s", "policy"), [(70.0, ROTATING), (LONG_AGO, Policy())])
def test_a_prompt_waits_on_until_the_delay_is_over_and_for_ever_without_rotation(
    since_s: float, policy: Policy
) -> None:
    plan = decide(view_of(generating(0, 700), waits(1, 400, since_s)), policy)
    assert only(plan) == HoldPrompt(1, Reason.NOBODY_CAN_BE_PARKED)


def test_a_resident_keeps_its_place_for_one_delay_before_a_prompt_too() -> None:
    plan = decide(view_of(generating(0, 700, resident_since_s=71.0), waits(1, 400, since_s=LONG_AGO)), ROTATING)
    assert only(plan) == HoldPrompt(1, Reason.NOBODY_CAN_BE_PARKED)


def test_a_prompt_that_fits_needs_no_turn() -> None:
    assert decide(view_of(generating(0, 500), waits(1, 400, since_s=LONG_AGO)), ROTATING) is Plan.EMPTY


def test_a_prompt_that_waits_longer_than_the_head_starts_before_it_and_the_head_stays_out() -> None:
    """400 + 500 fit and so would 400 + 300 + 16; not all three."""
    slots = (generating(0, 400), waits(1, 500, since_s=LONG_AGO), parked(2, 300, at_s=JUST_NOW))
    assert decide(view_of(*slots), ROTATING) is Plan.EMPTY
    younger = (slots[0], waits(1, 500, since_s=95.0), slots[2])
    assert orders(decide(view_of(*younger), ROTATING)) == [("Restore", 2), ("Park", 0)]


def test_a_head_that_waits_longer_than_the_prompt_keeps_its_turn_and_the_prompt_follows() -> None:
    """The prompt fits with the head; the resident that leaves for both begins to wait after it."""
    slots = (generating(0, 700), waits(1, 400, since_s=20.0), parked(2, 450, at_s=LONG_AGO))
    plan = decide(view_of(*slots), ROTATING)
    assert plan.actions == (Park(0, Reason.ROTATION), Restore(2, Reason.ROTATION))


def test_two_whose_turn_has_come_both_get_it_the_one_that_waits_longer_first() -> None:
    slots = (generating(0, 400), waits(1, 500, since_s=LONG_AGO), parked(2, 300, at_s=20.0))
    plan = decide(view_of(*slots), ROTATING)
    assert plan.actions == (Park(0, Reason.ROTATION), Restore(2, Reason.ROTATION))
    assert plan.held_prompts == frozenset()


def test_small_heads_do_not_keep_taking_the_room_of_a_prompt_whose_turn_has_come() -> None:
    """The head would fit at once; the older prompt needs both residents to leave, and one of them came just now."""
    residents = (generating(0, 300, resident_since_s=JUST_NOW), generating(1, 300, resident_since_s=0.0))
    slots = (*residents, waits(2, 900, since_s=LONG_AGO), parked(3, 100, at_s=20.0))
    assert only(decide(view_of(*slots), ROTATING)) == HoldPrompt(2, Reason.NOBODY_CAN_BE_PARKED)


def test_a_budget_that_cannot_hold_both_says_so_once_and_the_line_goes_on() -> None:
    slots = (generating(0, 700), waits(1, 400, since_s=LONG_AGO), parked(2, 200, at_s=20.0))
    plan = decide(view_of(*slots, ram_limit_bytes=850), ROTATING)
    assert plan.actions[0] == RefuseRotation(1, Reason.BUDGET_TOO_SMALL)
    told = (slots[0], replace(slots[1], is_rotation_refusal_known=True), slots[2])
    assert orders(decide(view_of(*told, ram_limit_bytes=850), ROTATING))[0] == ("Restore", 2)


def test_a_resident_whose_park_was_refused_does_not_hold_the_parked_up() -> None:
    slots = (generating(0, 700), waits(1, 400, since_s=LONG_AGO), parked(2, 200, at_s=20.0))
    plan = decide(view_of(*slots, refused_parks=frozenset({0})), ROTATING)
    assert orders(plan)[0] == ("Restore", 2)


def test_with_late_copies_the_prompt_waits_for_the_cells_and_needs_no_second_promise() -> None:
    resident = generating(0, 700, frees_on_completion=True)
    plan = decide(view_of(resident, waits(1, 400, since_s=LONG_AGO)), ROTATING)
    assert plan.actions == (Park(0, Reason.ROTATION, 1), HoldPrompt(1, Reason.PARK_IN_FLIGHT))
    completed = parked(0, 700, at_s=99.0, parked_for_request=1)
    assert decide(view_of(completed, waits(1, 400, since_s=LONG_AGO)), ROTATING) is Plan.EMPTY


def test_a_prefix_that_a_waiting_prompt_holds_does_not_keep_the_head_from_its_turn() -> None:
    """Resident, prefix and head are 700 + 250 + 800: without the prefix the head fits once the resident has left."""
    slots = (generating(0, 700), waits(1, 10, since_s=50.0, n_cells=250, n_kept_cells=250, n_cells_owned=250))
    plan = decide(view_of(*slots, parked(2, 800, at_s=LONG_AGO)), ROTATING)
    assert plan.actions[:3] == (
        Park(0, Reason.ROTATION),
        TrimStarted(1, Reason.ROTATION, 0),
        Restore(2, Reason.ROTATION),
    )


@pytest.mark.parametrize("copies", Copies)
def test_an_endless_chat_does_not_keep_a_prompt_out_for_ever(copies: Copies) -> None:
    """It runs for 550 passes more: with a turn the prompt begins after one delay, without when the chat has ended."""
    trace = [Arrival(0, 100, 850), Arrival(300, 620, 20)]
    setup = Setup(n_cells=1000, n_slots=2, n_batch=1024, copies=copies)
    assert simulate(trace, setup, Policy(rotate_s=50.0)).longest_first_token_passes <= 50 + 1 + 2 * 3
    assert simulate(trace, setup, Policy()).longest_first_token_passes > 500


def test_who_no_budget_could_hold_leaves_without_its_state_for_a_prompt_whose_turn_has_come() -> None:
    slots = (generating(0, 700), waits(1, 400, since_s=LONG_AGO))
    assert only(decide(view_of(*slots, ram_limit_bytes=699), ROTATING)) == Recompute(0, Reason.ROTATION)
    assert only(decide(view_of(*slots, ram_limit_bytes=700), ROTATING)) == Park(0, Reason.ROTATION, for_request=1)


def test_who_no_budget_could_hold_leaves_without_its_state_for_a_head_whose_turn_has_come() -> None:
    head = parked(1, 450, at_s=LONG_AGO, needs_refill=True, buffer_bytes=0)
    plan = decide(view_of(generating(0, 700), head, ram_limit_bytes=300), ROTATING)
    assert plan.actions == (Recompute(0, Reason.ROTATION), Refill(1, Reason.ROTATION))


def test_of_those_who_leave_for_one_turn_each_that_the_budget_can_hold_keeps_its_state() -> None:
    residents = [generating(i, n, resident_since_s=float(i), frees_on_completion=True) for i, n in ((0, 500), (1, 300))]
    plan = decide(view_of(*residents, waits(2, 900, since_s=LONG_AGO), ram_limit_bytes=400), ROTATING)
    assert plan.actions == (Recompute(0, Reason.ROTATION), Park(1, Reason.ROTATION, for_request=2))


@pytest.mark.parametrize("copies", Copies)
def test_an_endless_chat_that_no_budget_could_hold_does_not_keep_a_prompt_out_for_ever(copies: Copies) -> None:
    """As without a limit: the prompt begins after one delay. The chat pays for it by being computed again."""
    trace = [Arrival(0, 100, 850), Arrival(300, 620, 20)]
    setup = Setup(n_cells=1000, n_slots=2, n_batch=1024, copies=copies, ram_limit=10)
    report = simulate(trace, setup, Policy(rotate_s=50.0))
    assert report.longest_first_token_passes <= 50 + 2
    assert (report.n_finished, report.n_recomputes) == (2, 1)


@pytest.mark.parametrize("n_batch", [16, 1024])
def test_endless_chats_that_no_budget_could_hold_take_turns_of_a_whole_delay(n_batch: int) -> None:
    """A turn begins when all is computed again: however long that takes, each of the chats runs for a delay or more."""
    trace = [Arrival(0, 300, 400), Arrival(0, 300, 400)]
    setup = Setup(n_cells=800, n_slots=2, n_batch=n_batch, ram_limit=10)
    report = simulate(trace, setup, Policy(rotate_s=50.0))
    n_refill_passes = 700 // n_batch + 1
    assert report.n_finished == 2
    assert report.longest_wait_passes <= 2 * (50 + n_refill_passes) + 2
    assert report.n_recomputes <= 2 * 400 // 50 + 1


def test_chats_that_take_turns_with_each_other_do_not_keep_a_prompt_out() -> None:
    """Two long chats swap places every 50 passes; the prompt fits with neither of them and comes in between."""
    trace = [Arrival(0, 300, 600), Arrival(0, 300, 600), Arrival(300, 600, 20)]
    report = simulate(trace, Setup(n_cells=1000, n_slots=3, n_batch=512), Policy(rotate_s=50.0))
    assert report.n_finished == 3
    assert report.longest_first_token_passes <= 2 * 50 + 2
