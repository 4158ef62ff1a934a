"""Rule 11: the pool refused what should have fitted. It is believed, and only who cannot fit even so fails."""

from __future__ import annotations

import pytest
from pyggml_server.planner import Plan, Policy, decide
from pyggml_server.planner.plan import FailContext, HoldPrompt, Park, Reason, WaitForPark
from pyggml_server.planner.policy import VictimPolicy

from tests.planner.model_engine import ModelEngine
from tests.planner.model_pool import Copies, Setup
from tests.planner.views import generating, only, orders, parked, prompting, started, view_of

POLICY = Policy()


def test_a_pool_that_refused_one_more_cell_parks_the_smallest() -> None:
    slots = (generating(0, 300), generating(1, 200), generating(2, 250))
    assert decide(view_of(*slots), POLICY) is Plan.EMPTY
    assert only(decide(view_of(*slots, n_cells_found=750), POLICY)) == Park(1, Reason.STEP_SHORT)
    oldest = Policy(victim=VictimPolicy.OLDEST)
    assert only(decide(view_of(*slots, n_cells_found=750), oldest)) == Park(0, Reason.STEP_SHORT)


def test_where_cells_come_free_late_the_park_is_waited_for() -> None:
    slots = (generating(0, 300, frees_on_completion=True), generating(1, 200, frees_on_completion=True))
    plan = decide(view_of(*slots, n_cells_found=500), POLICY)
    assert plan.actions == (Park(1, Reason.STEP_SHORT), WaitForPark(1, Reason.STEP_SHORT))


def test_a_draft_is_given_up_whole_or_in_part_before_its_request_fails() -> None:
    """The group of one token and its draft is never cut by the batch: the plan says how long the draft may be."""
    plan = decide(view_of(generating(0, 300, n_step_cells=5), n_cells_found=303), POLICY)
    assert plan.draft_limits == {0: 2}
    plan = decide(view_of(generating(0, 300, n_step_cells=5), n_cells_found=301), POLICY)
    assert plan.draft_limits == {0: 0}


@pytest.mark.parametrize("copies", Copies)
@pytest.mark.parametrize("n_draft", [0, 4])
def test_last_resort_with_and_without_drafts(n_draft: int, copies: Copies) -> None:
    """A pool that has 20 cells fewer than it says: four chats that would overflow it anyway all finish."""
    engine = ModelEngine(Setup(n_cells=200, n_cells_missing=20, copies=copies), Policy())
    for _ in range(4):
        engine.submit(20, 60, n_draft)
    engine.run_out(3000)
    assert [request.endings for request in engine.requests] == [["finished"]] * 4
    assert engine.counts["Park"] >= 1


def test_only_the_request_that_cannot_fit_fails_and_only_when_nobody_can_be_parked() -> None:
    alone = view_of(generating(0, 300), n_cells_found=300)
    assert only(decide(alone, POLICY)) == FailContext(0, Reason.NOBODY_CAN_BE_PARKED)
    back_just_now = [generating(i, 150, has_run_since_restore=False) for i in range(2)]
    plan = decide(view_of(*back_just_now, n_cells_found=300), POLICY)
    assert only(plan) == FailContext(1, Reason.NOBODY_CAN_BE_PARKED)


def test_a_prompt_that_came_in_gets_shorter_chunks_down_to_what_was_found() -> None:
    slots = (generating(0, 300, has_pending_shift=True), prompting(1, 100, n_left=50, has_run_since_restore=False))
    plan = decide(view_of(*slots, n_cells_found=411), POLICY)
    assert plan.prompt_limits == {1: 10}


def test_nobody_is_brought_back_into_a_pool_that_is_full_by_its_own_word() -> None:
    slots = (generating(0, 300), parked(1, 200))
    assert orders(decide(view_of(*slots), POLICY)) == [("Restore", 1)]
    assert decide(view_of(*slots, n_cells_found=480), POLICY) is Plan.EMPTY


def test_what_was_found_fails_nobody_who_waits_and_is_forgotten_when_nobody_runs() -> None:
    slots = (generating(0, 100), parked(1, 700), started(2, n_left=600))
    plan = decide(view_of(*slots, n_cells_found=300), POLICY)
    assert only(plan) == HoldPrompt(2, Reason.HEAD_WAITS)
    assert orders(decide(view_of(parked(1, 700), n_cells_found=300), POLICY)) == [("Restore", 1)]
