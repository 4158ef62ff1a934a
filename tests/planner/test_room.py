"""Rules 2 to 5: what is counted, when somebody is parked, and who."""

from __future__ import annotations

import pytest
from pyggml_server.planner import Plan, Policy, decide
from pyggml_server.planner.plan import (
    DropIdlePrompt,
    FailContext,
    LimitDraft,
    LimitPrompt,
    Park,
    Reason,
    RefusePark,
    TrimStarted,
    WaitForPark,
)
from pyggml_server.planner.policy import VictimPolicy
from pyggml_server.planner.view import GroupView, SlotPhase

from tests.planner.views import BATCH, generating, idle, leaving, only, orders, parked, prompting, started, view_of

POLICY = Policy()


def test_nothing_is_ordered_while_the_next_step_fits() -> None:
    assert decide(view_of(generating(0, 500), generating(1, 498)), POLICY) is Plan.EMPTY


def test_a_pool_one_cell_short_of_the_next_step_parks_one() -> None:
    plan = decide(view_of(generating(0, 500), generating(1, 499)), POLICY)
    assert only(plan) == Park(1, Reason.STEP_SHORT)
    assert plan.may_decode


def test_synchronous_copies_keep_no_lookahead_and_late_ones_keep_eight_steps() -> None:
    """900 used + 2 steps + 8 steps of each = 918: short in a pool of 917 only where cells come free late."""
    for frees_on_completion, expected in ((False, []), (True, [("Park", 1)])):
        slots = [generating(i, n, frees_on_completion=frees_on_completion) for i, n in ((0, 500), (1, 400))]
        assert orders(decide(view_of(*slots, n_cells=917), POLICY)) == expected
        assert decide(view_of(*slots, n_cells=918), POLICY) is Plan.EMPTY


def test_the_lookahead_counts_drafts() -> None:
    slots = [generating(i, 400, n_decode_step_cells=5, frees_on_completion=True) for i in range(2)]
    assert decide(view_of(*slots, n_cells=882), POLICY) is Plan.EMPTY
    assert only(decide(view_of(*slots, n_cells=881), POLICY)) == Park(1, Reason.LOOKAHEAD_SHORT)


def test_short_of_the_lookahead_only_carries_on_during_the_copy() -> None:
    plan = decide(
        view_of(generating(0, 500, frees_on_completion=True), generating(1, 490, frees_on_completion=True)), POLICY
    )
    assert plan.may_decode


def test_short_of_the_lookahead_issues_no_second_park_while_the_first_will_be_enough() -> None:
    slots = (
        generating(0, 500, frees_on_completion=True),
        leaving(1, 300),
        generating(2, 190, frees_on_completion=True),
    )
    assert decide(view_of(*slots), POLICY) is Plan.EMPTY


def test_short_of_the_step_waits_for_the_park_in_flight() -> None:
    plan = decide(view_of(generating(0, 600, frees_on_completion=True), leaving(1, 400)), POLICY)
    assert only(plan) == WaitForPark(1, Reason.STEP_SHORT)
    assert not plan.may_decode


def test_short_of_the_step_with_late_copies_parks_and_looks_again() -> None:
    slots = [generating(i, 500, frees_on_completion=True) for i in range(2)]
    plan = decide(view_of(*slots), POLICY)
    assert orders(plan) == [("Park", 1), ("WaitForPark", 1)]
    assert not plan.may_decode


def test_a_save_to_the_prompt_cache_that_will_free_cells_is_waited_for_too() -> None:
    saving = idle(1, 400, has_transfer_in_flight=True)
    assert only(decide(view_of(generating(0, 600), saving), POLICY)) == WaitForPark(1, Reason.STEP_SHORT)


def test_cells_of_leaving_and_returning_slots_are_counted() -> None:
    returning = generating(1, 300, phase=SlotPhase.RESTORING, has_transfer_in_flight=True)
    crowded = view_of(generating(0, 400), returning, leaving(2, 299))
    assert only(decide(crowded, POLICY)) == WaitForPark(2, Reason.STEP_SHORT)


@pytest.mark.parametrize(
    ("victim", "expected"), [(VictimPolicy.SMALLEST, 1), (VictimPolicy.YOUNGEST, 2), (VictimPolicy.OLDEST, 0)]
)
def test_the_victim_is_chosen_by_policy(victim: VictimPolicy, expected: int) -> None:
    slots = (generating(0, 350), generating(1, 310), generating(2, 340))
    assert only(decide(view_of(*slots), Policy(victim=victim))) == Park(expected, Reason.STEP_SHORT)


def test_between_two_of_one_size_the_younger_leaves() -> None:
    assert orders(decide(view_of(generating(0, 500), generating(1, 500)), POLICY)) == [("Park", 1)]


def test_a_victim_owns_at_least_the_cells_that_are_missing() -> None:
    slots = (generating(0, 600), generating(1, 100), prompting(2, 250, n_left=300))
    assert orders(decide(view_of(*slots), POLICY)) == [("Park", 0)]  # 252 short: 1 is smaller, 2 just too small


def test_shared_cells_do_not_count_as_owned() -> None:
    slots = (generating(0, 500), generating(1, 300, n_cells_owned=0), generating(2, 400))
    crowded = view_of(*slots, n_cells_used=1000)
    assert orders(decide(crowded, POLICY)) == [("Park", 2)]


def test_a_slot_with_a_copy_in_flight_is_no_victim() -> None:
    returning = generating(1, 100, phase=SlotPhase.RESTORING, has_transfer_in_flight=True)
    assert orders(decide(view_of(generating(0, 500), returning, generating(2, 400)), POLICY)) == [("Park", 2)]


def test_a_slot_with_an_unapplied_shift_is_not_parked() -> None:
    slots = (generating(0, 600), generating(1, 400, has_pending_shift=True))
    assert orders(decide(view_of(*slots), POLICY)) == [("Park", 0)]


def test_a_restored_slot_that_has_not_run_yet_is_not_parked_again() -> None:
    slots = (generating(0, 600), generating(1, 400, has_run_since_restore=False))
    assert orders(decide(view_of(*slots), POLICY)) == [("Park", 0)]


def test_a_slot_whose_park_was_refused_gives_way_to_the_next_victim() -> None:
    slots = (generating(0, 400), generating(1, 300), generating(2, 300))
    assert orders(decide(view_of(*slots, refused_parks=frozenset({2})), POLICY)) == [("Park", 1)]


def test_the_last_resident_is_not_parked_but_decodes_without_its_draft() -> None:
    lone = generating(0, 997, n_step_cells=5)
    assert only(decide(view_of(lone), POLICY)) == LimitDraft(0, Reason.NOBODY_CAN_BE_PARKED, 2)


def test_when_no_single_victim_is_enough_the_fewest_are_parked() -> None:
    slots = (
        generating(0, 400),
        generating(1, 100),
        generating(2, 260),
        prompting(3, 200, n_left=690, n_step_cells=690, is_media_step=True, has_run_since_restore=False),
    )
    assert orders(decide(view_of(*slots), POLICY)) == [("Park", 0), ("Park", 2)]  # 653 short, then 252, then 1


def test_a_prompt_whose_own_chunk_is_the_shortage_leaves_when_nobody_else_covers_it() -> None:
    slots = (generating(0, 300), generating(1, 300), prompting(2, 50, n_left=900, n_step_cells=900, is_media_step=True))
    assert orders(decide(view_of(*slots), POLICY)) == [("Park", 2)]


def test_idle_cached_prompts_go_before_anybody_is_parked_the_oldest_first() -> None:
    slots = (generating(0, 500), idle(1, 200, last_used_s=9.0), idle(2, 100, last_used_s=5.0), generating(3, 200))
    assert only(decide(view_of(*slots), POLICY)) == DropIdlePrompt(2, Reason.STEP_SHORT)


def test_a_started_slot_is_counted_with_what_it_holds_and_trimmed_to_what_it_keeps() -> None:
    slots = (generating(0, 400), generating(1, 100), started(2, n_left=10, n_cells=500, n_kept=300))
    assert orders(decide(view_of(*slots), POLICY)) == [("TrimStarted", 2)]
    assert decide(view_of(*slots), POLICY).actions[0] == TrimStarted(2, Reason.STEP_SHORT, 300)


def test_a_waiting_prompt_gives_up_its_prefix_before_a_resident_fails() -> None:
    slots = (generating(0, 600), started(1, n_left=200, n_cells=400, n_kept=400))
    plan = decide(view_of(*slots), POLICY)
    assert plan.actions[0] == TrimStarted(1, Reason.STEP_SHORT, 0)
    assert plan.held_prompts == {1}
    assert not any(isinstance(action, FailContext) for action in plan.actions)


def test_chunks_that_share_a_batch_are_not_counted_twice() -> None:
    slots = (prompting(0, 200, n_left=600), prompting(1, 200, n_left=600))
    assert decide(view_of(*slots, n_cells=400 + BATCH), POLICY) is Plan.EMPTY


def test_a_chunk_is_cut_only_when_nobody_can_be_parked() -> None:
    slots = (generating(0, 600, has_pending_shift=True), prompting(1, 200, n_left=300, has_run_since_restore=False))
    plan = decide(view_of(*slots), POLICY)
    assert only(plan) == LimitPrompt(1, Reason.NOBODY_CAN_BE_PARKED, 199)
    assert plan.prompt_limits == {1: 199}


def test_a_media_chunk_is_held_rather_than_cut() -> None:
    slots = (
        generating(0, 600, has_pending_shift=True),
        prompting(1, 200, n_left=300, is_media_step=True, has_run_since_restore=False),
    )
    assert orders(decide(view_of(*slots), POLICY)) == [("HoldPrompt", 1)]


def test_when_nobody_can_be_parked_only_the_request_that_cannot_fit_fails() -> None:
    """All three came back just now: none may leave before it has a token."""
    slots = [generating(i, n, has_run_since_restore=False) for i, n in enumerate((400, 300, 300))]
    assert only(decide(view_of(*slots), POLICY)) == FailContext(2, Reason.NOBODY_CAN_BE_PARKED)


def test_two_prompts_that_cannot_move_cost_one_of_them_not_both() -> None:
    slots = [prompting(i, 500, n_left=100, has_run_since_restore=False) for i in range(2)]
    plan = decide(view_of(*slots), POLICY)
    assert [order for order in orders(plan) if order[0] == "FailContext"] == [("FailContext", 1)]


def test_a_request_larger_than_the_pool_fails_whatever_it_is_doing() -> None:
    for misfit in (started(0, 1001), prompting(0, 600, n_left=401), parked(0, 1000), generating(0, 1000)):
        assert FailContext(0, Reason.CANNOT_FIT_ALONE) in decide(view_of(misfit), POLICY).actions


def test_forced_parks_come_after_every_n_tokens_the_last_resident_included() -> None:
    policy = Policy(n_preempt_every=32)
    assert only(decide(view_of(generating(0, 50, n_tokens_since_park=32)), policy)) == Park(0, Reason.FORCED)
    assert decide(view_of(generating(0, 50, n_tokens_since_park=31)), policy) is Plan.EMPTY


def test_a_forced_park_that_the_budget_refuses_parks_nobody_else() -> None:
    slots = (generating(0, 50, n_tokens_since_park=32), generating(1, 10))
    plan = decide(view_of(*slots, ram_limit_bytes=20), Policy(n_preempt_every=32))
    assert only(plan) == RefusePark(0, Reason.BUDGET_TOO_SMALL)


def test_parent_and_children_that_share_cells_are_parked_as_one() -> None:
    family = [generating(i, 310, n_cells_owned=10, group_id=7) for i in (1, 2)]
    crowded = view_of(generating(0, 680), *family, n_cells_used=1000, groups=(GroupView(7, 320, 320),))
    assert orders(decide(crowded, POLICY)) == [("Park", 1), ("Park", 2)]


def test_of_a_group_the_member_whose_copy_frees_cells_late_is_waited_for() -> None:
    """The first member copies synchronously, since a buffer of its slot was pageable once."""
    family = [generating(i, 310, n_cells_owned=10, group_id=7, frees_on_completion=i == 2) for i in (1, 2)]
    crowded = view_of(generating(0, 680), *family, n_cells_used=1000, groups=(GroupView(7, 320, 320),))
    assert orders(decide(crowded, POLICY)) == [("Park", 1), ("Park", 2), ("WaitForPark", 2)]


def test_what_a_group_shares_is_not_free_before_the_last_of_its_copies_is_completed() -> None:
    """Both are forced out, the first one late: the head, which would fit without the 310 shared cells, has to wait."""
    changes = {"group_id": 7, "n_tokens_since_park": 9}
    late = generating(1, 310, n_cells_owned=0, frees_on_completion=True, **changes)
    family = (late, generating(2, 310, n_cells_owned=0, **changes))
    crowded = view_of(*family, parked(3, 800), n_cells_used=310, groups=(GroupView(7, 310, 310),))
    assert orders(decide(crowded, Policy(n_preempt_every=9))) == [("Park", 1), ("Park", 2)]


def test_a_group_with_one_member_that_cannot_leave_stays() -> None:
    family = [generating(i, 310, n_cells_owned=10, group_id=7, has_pending_shift=i == 2) for i in (1, 2)]
    crowded = view_of(generating(0, 680), *family, n_cells_used=1000, groups=(GroupView(7, 320, 320),))
    assert orders(decide(crowded, POLICY)) == [("Park", 0)]
