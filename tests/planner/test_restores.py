"""Rule 6 (restores and new prompts), rule 7 (rotation) and rule 8 (budget)."""

from __future__ import annotations

import pytest
from pyggml_server.planner import Plan, Policy, decide
from pyggml_server.planner.plan import FailContext, GiveBackBuffer, HoldPrompt, Park, Reason, RefuseRotation, Restore
from pyggml_server.planner.policy import VictimPolicy
from pyggml_server.planner.view import GroupView, SlotPhase

from tests.planner.views import generating, idle, leaving, only, orders, parked, prompting, started, view_of

POLICY = Policy()
ROTATING = Policy(rotate_s=30.0)


# --- restores


def test_the_head_is_admitted_when_it_fits_with_every_step_and_eight_more_of_each() -> None:
    """600 + 300 + 2 steps + 16 steps ahead = 918."""
    slots = (generating(0, 600), parked(1, 300))
    assert only(decide(view_of(*slots, n_cells=918), POLICY)) == Restore(1, Reason.HEAD_OF_LINE)
    assert decide(view_of(*slots, n_cells=917), POLICY) is Plan.EMPTY


def test_nobody_passes_a_head_that_does_not_fit() -> None:
    slots = (generating(0, 600), parked(1, 500, at_s=1.0), parked(2, 10, at_s=2.0))
    assert decide(view_of(*slots), POLICY) is Plan.EMPTY


def test_the_line_is_ordered_by_park_time_not_by_slot() -> None:
    slots = (generating(0, 100), parked(1, 400, at_s=9.0), parked(2, 400, at_s=3.0))
    assert orders(decide(view_of(*slots), POLICY)) == [("Restore", 2), ("Restore", 1)]


def test_back_to_back_restores_do_not_park_somebody_at_once() -> None:
    """Both fit by their cells alone; with the steps ahead of the one just admitted, the second does not."""
    slots = (generating(0, 400), parked(1, 290, at_s=1.0), parked(2, 290, at_s=2.0))
    assert orders(decide(view_of(*slots), POLICY)) == [("Restore", 1)]


def test_a_restoring_slot_counts_with_its_next_step_and_the_steps_ahead() -> None:
    returning = generating(0, 600, phase=SlotPhase.RESTORING, has_transfer_in_flight=True)
    assert decide(view_of(returning, parked(1, 383)), POLICY) is Plan.EMPTY
    assert orders(decide(view_of(returning, parked(1, 382)), POLICY)) == [("Restore", 1)]


def test_a_lone_resident_too_large_for_the_margin_still_resumes() -> None:
    assert orders(decide(view_of(parked(0, 999)), POLICY)) == [("Restore", 0)]


def test_a_lone_resident_too_large_for_its_draft_resumes_without_it() -> None:
    assert orders(decide(view_of(parked(0, 998, n_step_cells=5)), POLICY)) == [("Restore", 0), ("LimitDraft", 0)]


def test_a_parked_sequence_that_cannot_fit_fails_with_the_context_error_and_the_next_goes_on() -> None:
    plan = decide(view_of(parked(0, 1000, at_s=1.0), parked(1, 500, at_s=2.0)), POLICY)
    assert plan.actions == (FailContext(0, Reason.CANNOT_FIT_ALONE), Restore(1, Reason.HEAD_OF_LINE))


def test_a_head_whose_copy_has_not_landed_is_not_restored_and_not_passed() -> None:
    slots = (generating(0, 10), leaving(1, 100, at_s=1.0), parked(2, 10, at_s=2.0))
    assert decide(view_of(*slots), POLICY) is Plan.EMPTY


def test_a_cached_prompt_is_given_up_for_a_head_only_when_that_lets_it_in() -> None:
    for n_cells, expected in ((300, [("DropIdlePrompt", 2), ("Restore", 1)]), (500, [])):
        slots = (generating(0, 500), parked(1, n_cells), idle(2, 250))
        assert orders(decide(view_of(*slots), POLICY)) == expected


def test_a_started_prompt_and_a_parked_head_do_not_wait_for_each_other() -> None:
    """The prompt waits behind the head and its prefix is in the head's way: the prefix goes."""
    slots = (started(0, n_left=300, n_cells=600, n_kept=600), parked(1, 500))
    assert orders(decide(view_of(*slots), POLICY)) == [("TrimStarted", 0), ("Restore", 1), ("HoldPrompt", 0)]


def test_a_slot_parked_in_this_plan_is_not_restored_by_it() -> None:
    plan = decide(view_of(generating(0, 50, n_tokens_since_park=8)), Policy(n_preempt_every=8))
    assert orders(plan) == [("Park", 0)]


def test_a_group_comes_back_as_one_or_not_at_all() -> None:
    family = [parked(i, 310, at_s=1.0, group_id=7) for i in (1, 2)]
    groups = (GroupView(7, 320, 0),)
    assert orders(decide(view_of(generating(0, 600), *family, groups=groups), POLICY)) == [
        ("Restore", 1),
        ("Restore", 2),
    ]
    assert decide(view_of(generating(0, 700), *family, groups=groups), POLICY) is Plan.EMPTY


# --- new prompts


def test_a_prompt_arriving_into_a_nearly_full_pool_parks_rather_than_ends_everything() -> None:
    slots = (generating(0, 300), generating(1, 310), generating(2, 320), started(3, n_left=200))
    plan = decide(view_of(*slots), POLICY)
    assert only(plan) == Park(0, Reason.PROMPT_SHORT, for_request=3)


def test_new_prompts_do_not_overtake_a_waiting_head() -> None:
    slots = (generating(0, 600), parked(1, 390), started(2, n_left=50))
    assert only(decide(view_of(*slots), POLICY)) == HoldPrompt(2, Reason.HEAD_WAITS)


def test_a_prompt_runs_with_a_head_that_would_still_be_admitted_after_the_whole_of_it() -> None:
    """The head's copy is in flight, so the prompt may go first; until it completes the head's cells count twice."""
    line = (generating(0, 100), leaving(1, 150, at_s=1.0))
    assert decide(view_of(*line, started(2, n_left=500)), POLICY) is Plan.EMPTY
    assert only(decide(view_of(*line, started(2, n_left=600)), POLICY)) == HoldPrompt(2, Reason.HEAD_WAITS)


def test_prompts_that_would_each_leave_the_head_its_room_do_not_take_it_together() -> None:
    """Batches of 64, so that their next chunks are a small part of what the prompts will take."""
    line = (generating(0, 100), leaving(1, 150, at_s=1.0))
    early, late = (started(i, n_left=300, n_step_cells=64) for i in (2, 3))
    assert decide(view_of(*line, late, n_batch_tokens=64), POLICY) is Plan.EMPTY
    for earlier in (early, prompting(2, 10, n_left=300, n_step_cells=64)):
        plan = decide(view_of(*line, earlier, late, n_batch_tokens=64), POLICY)
        assert only(plan) == HoldPrompt(3, Reason.HEAD_WAITS)


def test_a_short_prompt_passes_one_that_waits_for_the_last_resident() -> None:
    slots = (generating(0, 600), started(1, n_left=500), started(2, n_left=10))
    assert only(decide(view_of(*slots), POLICY)) == HoldPrompt(1, Reason.NOBODY_CAN_BE_PARKED)


def test_a_prompt_waits_behind_an_earlier_one_that_would_not_fit_with_it() -> None:
    """700 and 282 with nine steps of each fill the pool once the resident has left; one more does not fit."""
    line = (generating(0, 600), started(1, n_left=700))
    assert orders(decide(view_of(*line, started(2, n_left=282)), POLICY)) == [("HoldPrompt", 1)]
    assert orders(decide(view_of(*line, started(2, n_left=283)), POLICY)) == [("HoldPrompt", 1), ("HoldPrompt", 2)]


def test_all_who_passed_together_leave_the_earlier_prompt_its_room() -> None:
    line = (generating(0, 600), started(1, n_left=900))
    plan = decide(view_of(*line, *(started(i, n_left=30) for i in (2, 3, 4))), POLICY)
    assert plan.held_prompts == {1, 4}
    passed = (generating(2, 31), generating(3, 31))
    assert decide(view_of(*line, *passed, started(4, n_left=30)), POLICY).held_prompts == {1, 4}


def test_a_prompt_that_needs_the_steps_ahead_of_those_who_run_does_not_pass() -> None:
    """600 + 1 for its step and 8 ahead, and 9 of the prompt: the pool has room for 382 more."""
    line = (generating(0, 600), started(1, n_left=500))
    assert decide(view_of(*line, started(2, n_left=383)), POLICY).held_prompts == {1}
    assert decide(view_of(*line, started(2, n_left=384)), POLICY).held_prompts == {1, 2}


def test_nobody_passes_a_prompt_whose_turn_has_come_or_whose_room_is_being_made() -> None:
    waits = started(1, n_left=500, started_at_s=10.0)
    came_just_now = generating(0, 600, resident_since_s=90.0)
    short = started(2, n_left=10, started_at_s=95.0)
    assert decide(view_of(came_just_now, waits, short), ROTATING).held_prompts == {1, 2}
    in_flight = leaving(3, 300, parked_for_request=1)
    assert decide(view_of(generating(0, 400), in_flight, waits, short), POLICY).held_prompts == {1, 2}


def test_who_passed_leaves_as_soon_as_the_earlier_prompt_would_have_its_room() -> None:
    """The resident has ended. The one that passed is the only one left, and grew beyond what both can have."""
    passed = generating(2, 520, started_at_s=20.0)
    plan = decide(view_of(started(1, n_left=500, started_at_s=10.0), passed), POLICY)
    assert only(plan) == Park(2, Reason.PROMPT_SHORT, for_request=1)


def test_who_passed_does_not_make_another_less_than_the_last_resident() -> None:
    slots = (generating(0, 600), started(1, n_left=500), generating(2, 20))
    assert only(decide(view_of(*slots), POLICY)) == HoldPrompt(1, Reason.NOBODY_CAN_BE_PARKED)


def test_who_passed_leaves_before_those_who_were_there_whatever_the_policy() -> None:
    slots = (generating(0, 480), started(1, n_left=900), generating(2, 520))
    plan = decide(view_of(*slots), Policy(victim=VictimPolicy.OLDEST))
    assert orders(plan)[0] == ("Park", 2)


def test_a_prompt_that_only_the_last_resident_could_make_room_for_waits() -> None:
    plan = decide(view_of(generating(0, 700), started(1, n_left=400)), POLICY)
    assert only(plan) == HoldPrompt(1, Reason.NOBODY_CAN_BE_PARKED)


def test_nobody_is_parked_for_a_prompt_that_would_not_fit_as_a_whole_anyway() -> None:
    """Its first chunk would fit after one park, its 900 tokens never with a resident of 300."""
    slots = (generating(0, 300), generating(1, 300), started(2, n_left=900))
    assert only(decide(view_of(*slots), POLICY)) == HoldPrompt(2, Reason.NOBODY_CAN_BE_PARKED)


def test_a_prompt_for_which_somebody_was_parked_goes_before_him() -> None:
    slots = (generating(0, 600), parked(1, 200, parked_for_request=2), started(2, n_left=300))
    assert decide(view_of(*slots), POLICY) is Plan.EMPTY


def test_it_goes_before_an_earlier_one_that_got_its_slot_later_too() -> None:
    """That one waits for the parked one, who waits for this: nobody would ever go on."""
    slots = (started(0, n_left=9), parked(1, 800, parked_for_request=3), started(3, n_left=300))
    assert only(decide(view_of(*slots), POLICY)) == HoldPrompt(0, Reason.HEAD_WAITS)


def test_a_prompt_waits_for_the_late_park_that_makes_its_room_and_the_others_decode() -> None:
    slots = (generating(0, 300, frees_on_completion=True), generating(1, 600, frees_on_completion=True))
    plan = decide(view_of(*slots, started(2, n_left=200)), POLICY)
    assert plan.actions == (Park(0, Reason.PROMPT_SHORT, 2), HoldPrompt(2, Reason.PARK_IN_FLIGHT))
    assert plan.may_decode
    others = (leaving(0, 300, parked_for_request=2), generating(1, 601, frees_on_completion=True))
    assert only(decide(view_of(*others, started(2, n_left=200)), POLICY)) == HoldPrompt(2, Reason.PARK_IN_FLIGHT)


def test_with_nothing_running_the_first_prompt_gets_what_later_ones_hold() -> None:
    slots = (started(0, n_left=500), started(1, n_left=10, n_cells=600, n_kept=600))
    plan = decide(view_of(*slots), POLICY)
    assert orders(plan)[0] == ("TrimStarted", 1)
    assert 0 not in plan.held_prompts


# --- budget


def test_a_park_that_the_budget_refuses_goes_to_the_next_victim() -> None:
    slots = (generating(0, 350), generating(1, 300, state_bytes=900), generating(2, 350))
    assert orders(decide(view_of(*slots, ram_limit_bytes=400), POLICY)) == [("RefusePark", 1), ("Park", 2)]


def test_two_sequences_are_parked_in_turn_under_a_budget_for_one() -> None:
    """The buffer that a restored slot kept is given back so that the other can be parked."""
    slots = (generating(0, 510, buffer_bytes=500), generating(1, 490))
    plan = decide(view_of(*slots, ram_limit_bytes=500), POLICY)
    assert plan.actions == (GiveBackBuffer(0, Reason.BUDGET_NEEDED), Park(1, Reason.STEP_SHORT))


def test_idle_buffers_go_largest_first_and_never_the_candidates_own() -> None:
    slots = (
        generating(0, 330, buffer_bytes=50),
        generating(1, 340, buffer_bytes=200),
        generating(2, 320, buffer_bytes=300),
        idle(3, buffer_bytes=100),
    )
    plan = decide(view_of(*slots, n_cells=992, ram_limit_bytes=650), POLICY)
    assert orders(plan) == [("GiveBackBuffer", 1), ("Park", 2)]


def test_a_buffer_that_holds_a_state_or_has_a_copy_in_flight_is_never_given_back() -> None:
    busy = generating(3, 10, phase=SlotPhase.RESTORING, has_transfer_in_flight=True, buffer_bytes=200)
    slots = (generating(0, 495), generating(1, 495), parked(2, 200), busy)
    plan = decide(view_of(*slots, ram_limit_bytes=500), POLICY)
    assert orders(plan)[:2] == [("RefusePark", 1), ("Recompute", 1)]
    assert not any(isinstance(action, GiveBackBuffer) for action in plan.actions)


def test_a_slot_is_charged_only_for_what_it_does_not_hold_yet() -> None:
    slots = (generating(0, 510), generating(1, 490, buffer_bytes=480))
    assert orders(decide(view_of(*slots, ram_limit_bytes=490), POLICY)) == [("Park", 1)]


def test_a_restored_slots_buffer_is_given_back_while_over_budget() -> None:
    slots = (generating(0, 100, buffer_bytes=300), generating(1, 100, buffer_bytes=200))
    assert only(decide(view_of(*slots, ram_limit_bytes=250), POLICY)) == GiveBackBuffer(0, Reason.OVER_BUDGET)


def test_a_buffer_taken_for_one_forced_park_is_charged_again_for_the_next() -> None:
    """The budget holds one of the two states; the first park takes the second slot's buffer, so the second waits."""
    slots = (generating(0, 70, n_tokens_since_park=7), generating(1, 80, n_tokens_since_park=7, buffer_bytes=75))
    plan = decide(view_of(*slots, ram_limit_bytes=120), Policy(n_preempt_every=7))
    assert orders(plan) == [("GiveBackBuffer", 1), ("Park", 0), ("RefusePark", 1)]


# --- rotation


def test_a_rotation_of_two_charges_a_buffer_that_its_own_first_park_takes() -> None:
    """Held: the head's 700 and 200 idle of slot 1. Slot 0 takes those 200, so slot 1 needs 250 more: 1200 in all."""
    residents = (generating(0, 250, resident_since_s=0.0), generating(1, 250, resident_since_s=1.0, buffer_bytes=200))
    slots = (*residents, generating(2, 250, resident_since_s=2.0), parked(3, 700, at_s=10.0))
    assert only(decide(view_of(*slots, ram_limit_bytes=1100), ROTATING)) == RefuseRotation(3, Reason.BUDGET_TOO_SMALL)
    assert orders(decide(view_of(*slots, ram_limit_bytes=1200), ROTATING))[-1] == ("Restore", 3)


def test_a_head_that_waited_longer_than_the_delay_gets_the_longest_residents_place() -> None:
    slots = (
        generating(0, 400, resident_since_s=5.0),
        generating(1, 500, resident_since_s=2.0),
        parked(2, 450, at_s=69.0),
    )
    plan = decide(view_of(*slots), ROTATING)
    assert plan.actions == (Park(1, Reason.ROTATION), Restore(2, Reason.ROTATION))
    assert decide(view_of(*slots), POLICY) is Plan.EMPTY


def test_a_head_that_waited_just_the_delay_waits_on() -> None:
    assert decide(view_of(generating(0, 700), parked(1, 450, at_s=70.0)), ROTATING) is Plan.EMPTY


def test_a_resident_keeps_its_place_for_one_delay() -> None:
    slots = (generating(0, 700, resident_since_s=71.0), parked(1, 450, at_s=10.0))
    assert decide(view_of(*slots), ROTATING) is Plan.EMPTY


def test_the_last_resident_may_be_rotated_out_since_the_head_takes_its_place() -> None:
    plan = decide(view_of(generating(0, 700), parked(1, 450, at_s=10.0)), ROTATING)
    assert orders(plan) == [("Park", 0), ("Restore", 1)]


def test_as_few_residents_leave_as_a_large_head_needs() -> None:
    slots = [generating(i, 250, resident_since_s=float(i)) for i in range(3)]
    plan = decide(view_of(*slots, parked(3, 700, at_s=10.0)), ROTATING)
    assert orders(plan) == [("Park", 0), ("Park", 1), ("Restore", 3)]


def test_a_resident_whose_leaving_is_not_needed_for_a_turn_stays() -> None:
    """The one that has been in the longest does not make the room; the next one does, without it."""
    slots = (generating(0, 50, resident_since_s=0.0), generating(1, 600, resident_since_s=1.0))
    plan = decide(view_of(*slots, parked(2, 500, at_s=10.0)), ROTATING)
    assert plan.actions == (Park(1, Reason.ROTATION), Restore(2, Reason.ROTATION))


def test_of_the_longest_residents_the_fewest_cells_leave_that_make_the_room() -> None:
    sizes = (100, 300, 200, 300)
    slots = [generating(i, n_cells, resident_since_s=float(i)) for i, n_cells in enumerate(sizes)]
    plan = decide(view_of(*slots, parked(4, 500, at_s=10.0)), ROTATING)
    assert orders(plan) == [("Park", 1), ("Park", 2), ("Restore", 4)]


@pytest.mark.parametrize("ram_limit_bytes", [550, 750])
def test_a_resident_that_host_memory_cannot_hold_gives_way_in_a_rotation_to_the_next(ram_limit_bytes: int) -> None:
    """Rule 8 before rule 7: of 550 bytes no park of 600 is possible, of 750 none with the head's 200."""
    slots = (generating(0, 600, resident_since_s=0.0), generating(1, 300, resident_since_s=5.0))
    plan = decide(view_of(*slots, parked(2, 200, at_s=10.0), ram_limit_bytes=ram_limit_bytes), ROTATING)
    assert plan.actions == (Park(1, Reason.ROTATION), Restore(2, Reason.ROTATION))


def test_no_rotation_while_a_park_is_in_flight() -> None:
    slots = (generating(0, 500, frees_on_completion=True), parked(1, 450, at_s=10.0), leaving(2, 200, at_s=99.0))
    assert decide(view_of(*slots), ROTATING) is Plan.EMPTY


def test_a_late_rotation_parks_one_and_leaves_the_restore_to_the_pass_that_sees_it_land() -> None:
    slots = [generating(i, 250, resident_since_s=float(i), frees_on_completion=True) for i in range(3)]
    plan = decide(view_of(*slots, parked(3, 700, at_s=10.0)), ROTATING)
    assert only(plan) == Park(0, Reason.ROTATION)


def test_a_budget_for_two_rotates_and_a_budget_for_one_says_so_once_per_park() -> None:
    slots = (generating(0, 700), parked(1, 450, at_s=10.0))
    assert orders(decide(view_of(*slots, ram_limit_bytes=1150), ROTATING)) == [("Park", 0), ("Restore", 1)]
    small = view_of(*slots, ram_limit_bytes=1149)
    assert only(decide(small, ROTATING)) == RefuseRotation(1, Reason.BUDGET_TOO_SMALL)
    told = view_of(slots[0], parked(1, 450, at_s=10.0, is_rotation_refusal_known=True), ram_limit_bytes=1149)
    assert decide(told, ROTATING) is Plan.EMPTY


def test_a_rotated_out_prompt_is_an_ordinary_victim() -> None:
    plan = decide(view_of(prompting(0, 600, n_left=100), parked(1, 450, at_s=10.0)), ROTATING)
    assert orders(plan) == [("Park", 0), ("Restore", 1)]
