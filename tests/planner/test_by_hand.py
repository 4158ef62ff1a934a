"""Rule 14: what is parked by hand stays out until it is called back."""

from __future__ import annotations

import pytest
from pyggml_server.planner import Plan, Policy, decide
from pyggml_server.planner.plan import Park, Reason, RefusePark, Restore
from pyggml_server.planner.view import GroupView

from tests.planner.model_engine import ModelEngine
from tests.planner.model_pool import Copies, Setup
from tests.planner.views import generating, idle, leaving, only, orders, parked, prompting, started, view_of

POLICY = Policy()


def test_a_running_chat_that_is_to_stay_out_is_parked_though_nothing_is_short() -> None:
    plan = decide(view_of(generating(0, 300), generating(1, 100, is_held=True)), POLICY)
    assert only(plan) == Park(1, Reason.BY_HAND)


def test_the_last_resident_is_parked_by_hand_and_a_prompt_in_the_middle_too() -> None:
    assert only(decide(view_of(prompting(0, 100, 200, is_held=True)), POLICY)) == Park(0, Reason.BY_HAND)


def test_who_is_in_the_middle_of_a_copy_is_parked_later() -> None:
    busy = generating(0, 100, is_held=True, has_transfer_in_flight=True)
    assert decide(view_of(busy), POLICY) is Plan.EMPTY


def test_a_whole_group_leaves_when_one_of_it_is_to_stay_out() -> None:
    members = [generating(i, 100, group_id=0, is_held=i == 1) for i in range(2)]
    grouped = view_of(*members, n_cells_used=150, groups=(GroupView(0, 150, 150),))
    assert orders(decide(grouped, POLICY)) == [("Park", 0), ("Park", 1)]


def test_a_budget_that_cannot_hold_it_refuses_once_and_nobody_else_is_parked_for_it() -> None:
    held = generating(1, 100, is_held=True)
    assert only(decide(view_of(generating(0, 30), held, ram_limit_bytes=50), POLICY)) == RefusePark(
        1, Reason.BUDGET_TOO_SMALL
    )


def test_one_that_must_be_computed_again_instead_is_in_line_before_new_prompts() -> None:
    held = generating(0, 100, is_held=True)
    back = prompting(1, 30, 20, has_run_since_restore=False)
    view = view_of(
        held, back, started(2, n_left=50), n_cells=200, n_cells_found=130, n_batch_tokens=40, ram_limit_bytes=0
    )
    plan = decide(view, POLICY)
    assert orders(plan) == [("RefusePark", 0), ("Recompute", 0), ("HoldPrompt", 2)]


def test_idle_buffers_make_room_for_it_first() -> None:
    held = generating(1, 100, is_held=True)
    plan = decide(view_of(held, idle(2, buffer_bytes=40), ram_limit_bytes=120), POLICY)
    assert orders(plan) == [("GiveBackBuffer", 2), ("Park", 1)]


def test_it_does_not_come_back_and_does_not_stand_in_the_way_of_others() -> None:
    view = view_of(parked(0, 400, at_s=1.0, is_held=True), parked(1, 300, at_s=2.0))
    assert only(decide(view, POLICY)) == Restore(1, Reason.HEAD_OF_LINE)
    new_prompt = view_of(generating(0, 300), parked(1, 690, at_s=1.0, is_held=True), started(2, n_left=400))
    assert decide(new_prompt, POLICY) is Plan.EMPTY


def test_it_has_no_turn() -> None:
    rotating = Policy(rotate_s=30.0)
    view = view_of(generating(0, 700), parked(1, 450, at_s=1.0, is_held=True))
    assert decide(view, rotating) is Plan.EMPTY


def test_on_its_way_out_it_stands_in_no_line_and_no_turn_is_given_meanwhile() -> None:
    view = view_of(leaving(0, 100, is_held=True), generating(1, 500), parked(2, 450, at_s=9.0))
    assert [slot.slot_id for slot in view.waiting()] == [2]
    assert decide(view, Policy(rotate_s=30.0)) is Plan.EMPTY


def test_a_prompt_does_not_wait_for_one_that_is_on_its_way_out() -> None:
    view = view_of(leaving(0, 600, is_held=True, frees_on_completion=False, n_cells_owned=0), started(1, n_left=600))
    assert decide(view, POLICY) is Plan.EMPTY


@pytest.mark.parametrize("copies", Copies)
def test_a_chat_that_is_called_back_comes_back_and_ends(copies: Copies) -> None:
    engine = ModelEngine(Setup(n_cells=200, n_slots=2, n_batch=64, copies=copies, n_passes_per_copy=2), POLICY)
    held, other = engine.submit(20, 40), engine.submit(20, 60)
    for _ in range(5):
        engine.step()
    slot = next(slot for slot in engine.slots if slot.request is held)
    engine.hold(slot)
    for _ in range(100):
        engine.step()
    assert other.endings == ["finished"]
    assert not held.endings
    engine.call_back(slot)
    engine.run_out(100)
    assert held.endings == ["finished"]
    assert held.n_parks == 1
