"""Rule 8 beyond the budget: who cannot be kept in host memory leaves without its state and is computed again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyggml_server.planner import Plan, Policy, decide
from pyggml_server.planner.plan import Park, Reason, Recompute, Refill, RefusePark, Restore, WaitForPark
from pyggml_server.planner.view import GroupView, SlotView

from tests.planner.views import generating, only, orders, parked, prompting, started, view_of

POLICY = Policy()
TOLD = {"is_park_refusal_known": True}


def dropped(slot_id: int, n_cells: int, at_s: float = 0.0, **changes: object) -> SlotView:
    slot = parked(slot_id, n_cells, at_s, needs_refill=True, buffer_bytes=0, state_bytes=0)
    return replace(slot, **changes)  # type: ignore[arg-type]


def test_a_chat_that_the_budget_cannot_hold_is_dropped_and_the_refusal_is_counted() -> None:
    slots = (generating(0, 600), generating(1, 400))
    plan = decide(view_of(*slots, ram_limit_bytes=10), POLICY)
    assert plan.actions == (RefusePark(1, Reason.BUDGET_TOO_SMALL), Recompute(1, Reason.STEP_SHORT))
    assert plan.may_decode


def test_a_refusal_is_told_once_while_the_chat_stays() -> None:
    slots = (generating(0, 600), generating(1, 400, **TOLD))
    assert orders(decide(view_of(*slots, ram_limit_bytes=10), POLICY)) == [("Recompute", 1)]


def test_another_that_the_budget_can_hold_is_parked_before_anybody_is_dropped() -> None:
    slots = (generating(0, 600, state_bytes=300), generating(1, 400))
    plan = decide(view_of(*slots, ram_limit_bytes=300), POLICY)
    assert orders(plan) == [("RefusePark", 1), ("Park", 0)]


def test_nobody_is_dropped_where_a_set_of_parks_that_the_budget_holds_would_do() -> None:
    """350 cover the shortage and do not fit the budget, 200 fit it and leave no place for more; 150 and 120 do both."""
    slots = (generating(0, 200), generating(1, 150), generating(2, 120), prompting(3, 350, n_left=430))
    plan = decide(view_of(*slots, ram_limit_bytes=300), POLICY)
    assert orders(plan) == [("RefusePark", 3), ("Park", 1), ("Park", 2)]


def test_a_chat_whose_park_was_refused_in_this_pass_can_still_be_dropped() -> None:
    slots = (generating(0, 600), generating(1, 400))
    plan = decide(view_of(*slots, refused_parks=frozenset({0, 1})), POLICY)
    assert only(plan) == Recompute(1, Reason.STEP_SHORT)


def test_nobody_is_dropped_for_memory_that_the_last_part_of_a_restore_still_holds() -> None:
    coming_in = {"has_transfer_in_flight": True, "buffer_bytes": 600, "has_run_since_restore": False}
    slots = (generating(0, 600, **coming_in), generating(1, 400))
    plan = decide(view_of(*slots, ram_limit_bytes=700, ram_held_bytes=600), POLICY)
    assert plan.actions == (WaitForPark(0, Reason.STEP_SHORT),)
    completed = (generating(0, 600, has_run_since_restore=False), generating(1, 400))
    assert orders(decide(view_of(*completed, ram_limit_bytes=700, ram_held_bytes=0), POLICY)) == [("Park", 1)]


def test_drafts_and_the_prefixes_of_waiting_prompts_go_before_anybody_is_dropped() -> None:
    slots = (generating(0, 500, n_step_cells=5, **TOLD), generating(1, 400, **TOLD))
    crowded = view_of(*slots, started(2, 50, n_cells=98, n_kept=98), ram_limit_bytes=10)
    assert [order[0] for order in orders(decide(crowded, POLICY))][:2] == ["LimitDraft", "HoldPrompt"]


def test_some_are_parked_and_some_dropped_where_the_budget_holds_only_some() -> None:
    """1 and 2 must both leave for the chunk of 3; the budget holds one of them."""
    coming_in = prompting(3, 200, n_left=500, n_step_cells=500, is_media_step=True, has_run_since_restore=False)
    slots = (generating(0, 260, has_pending_shift=True), generating(1, 260, **TOLD), generating(2, 250), coming_in)
    plan = decide(view_of(*slots, ram_limit_bytes=270), POLICY)
    assert orders(plan) == [("Park", 1), ("Recompute", 2)]


def test_with_late_copies_the_one_that_is_parked_has_to_land_first() -> None:
    coming_in = prompting(3, 200, n_left=500, n_step_cells=500, is_media_step=True, has_run_since_restore=False)
    chats = (generating(1, 260, frees_on_completion=True, **TOLD), generating(2, 250, frees_on_completion=True))
    plan = decide(view_of(generating(0, 260, has_pending_shift=True), *chats, coming_in, ram_limit_bytes=270), POLICY)
    assert plan.actions == (Park(1, Reason.STEP_SHORT), WaitForPark(1, Reason.STEP_SHORT))


def test_the_last_resident_is_not_dropped() -> None:
    plan = decide(view_of(generating(0, 997, n_step_cells=5), ram_limit_bytes=0), POLICY)
    assert orders(plan) == [("LimitDraft", 0)]


@pytest.mark.parametrize("changes", [{"has_run_since_restore": False}, {"has_pending_shift": True}])
def test_who_came_back_without_a_token_or_has_a_shift_to_apply_is_not_dropped(changes: dict[str, bool]) -> None:
    slots = (generating(0, 600), replace(generating(1, 400), **changes))  # type: ignore[arg-type]
    plan = decide(view_of(*slots, ram_limit_bytes=10), POLICY)
    assert orders(plan)[-1] == ("Recompute", 0)


def test_a_dropped_chat_is_refilled_as_the_head_of_the_line_under_the_same_inequality() -> None:
    """600 + 300 + 2 steps + 16 steps ahead = 918, as for a restore."""
    slots = (generating(0, 600), dropped(1, 300))
    assert only(decide(view_of(*slots, n_cells=918), POLICY)) == Refill(1, Reason.HEAD_OF_LINE)
    assert decide(view_of(*slots, n_cells=917), POLICY) is Plan.EMPTY


def test_parked_and_dropped_chats_stand_in_one_line() -> None:
    slots = (generating(0, 100), dropped(1, 100, at_s=2.0), parked(2, 100, at_s=1.0))
    assert decide(view_of(*slots), POLICY).actions == (
        Restore(2, Reason.HEAD_OF_LINE),
        Refill(1, Reason.HEAD_OF_LINE),
    )


def test_the_next_in_line_does_not_take_the_room_of_a_refill_whose_first_chunk_alone_would_leave_it() -> None:
    slots = (generating(0, 100), dropped(1, 600, at_s=1.0), parked(2, 300, at_s=2.0))
    assert orders(decide(view_of(*slots, n_batch_tokens=64), POLICY)) == [("Refill", 1)]


def test_a_dropped_chat_that_fills_the_pool_comes_back_alone() -> None:
    assert orders(decide(view_of(dropped(0, 999)), POLICY)) == [("Refill", 0)]
    assert orders(decide(view_of(dropped(0, 1000)), POLICY)) == [("FailContext", 0)]


def test_a_long_refill_leaves_no_room_for_a_prompt_of_the_same_pass() -> None:
    """It would have no room for its draft; that must not make its chunk look like one token."""
    slots = (dropped(0, 997, n_step_cells=5), started(1, n_left=300))
    plan = decide(view_of(*slots, n_batch_tokens=2000), POLICY)
    assert orders(plan) == [("Refill", 0), ("HoldPrompt", 1)]


def test_a_buffer_kept_by_a_dropped_chat_is_given_back_for_a_park() -> None:
    slots = (generating(0, 500), generating(1, 500), dropped(2, 300, buffer_bytes=400))
    plan = decide(view_of(*slots, ram_limit_bytes=600), POLICY)
    assert orders(plan)[:2] == [("GiveBackBuffer", 2), ("Park", 1)]


def test_a_family_that_is_dropped_comes_back_one_by_one_each_with_all_of_its_tokens() -> None:
    family = [generating(i, 310, n_cells_owned=10, group_id=7, **TOLD) for i in (1, 2)]
    groups = (GroupView(7, 320, 320),)
    crowded = view_of(generating(0, 680), *family, n_cells_used=1000, groups=groups, ram_limit_bytes=0)
    assert orders(decide(crowded, POLICY)) == [("Recompute", 1), ("Recompute", 2)]


def test_a_turn_is_not_given_at_the_price_of_computing_somebody_again_whom_the_budget_could_hold() -> None:
    slots = (generating(0, 700), parked(1, 450, at_s=10.0))
    plan = decide(view_of(*slots, ram_limit_bytes=1149), Policy(rotate_s=30.0))
    assert [order[0] for order in orders(plan)] == ["RefuseRotation"]


def test_a_prompt_waits_rather_than_that_somebody_is_computed_again_for_it() -> None:
    slots = (generating(0, 300), generating(1, 350), started(2, n_left=400))
    plan = decide(view_of(*slots, ram_limit_bytes=10), POLICY)
    assert orders(plan) == [("RefusePark", 0), ("HoldPrompt", 2)]
