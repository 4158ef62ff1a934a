"""Rule 13: who is of a better class runs first, inside a class all is as without classes, and no class starves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyggml_server.planner import Plan, Policy, SlotPhase, SlotView, View, decide
from pyggml_server.planner.plan import FailContext, HoldPrompt, Park, Reason, Restore
from pyggml_server.planner.policy import VictimPolicy

from tests.planner.model_engine import ModelEngine
from tests.planner.model_pool import Copies, Setup
from tests.planner.views import generating, only, orders, parked, prompting, started, view_of

POLICY = Policy()
ROTATING = Policy(rotate_s=30.0)
AGEING = Policy(rotate_s=30.0, age_s=60.0)


# --- victims


@pytest.mark.parametrize("victim", VictimPolicy)
def test_the_lowest_class_is_parked_first_whatever_the_policy(victim: VictimPolicy) -> None:
    slots = (generating(0, 300), generating(1, 400, priority=1), generating(2, 300))
    assert only(decide(view_of(*slots), Policy(victim=victim))) == Park(1, Reason.STEP_SHORT)


def test_a_better_class_is_asked_only_where_the_lower_ones_are_not_enough() -> None:
    chunk = prompting(0, 100, n_left=400, has_run_since_restore=False)
    slots = (chunk, generating(1, 300), generating(2, 350), generating(3, 150, priority=1))
    assert orders(decide(view_of(*slots), POLICY)) == [("Park", 2)]  # 303 short: one is enough, and 150 are not
    wide = (chunk, generating(1, 200), generating(2, 200), generating(3, 400, priority=1))
    assert orders(decide(view_of(*wide), POLICY)) == [("Park", 3)]


def test_the_latest_of_the_lowest_class_fails_first_where_somebody_has_to() -> None:
    slots = [generating(i, 250, has_run_since_restore=False, priority=int(i == 1)) for i in range(4)]
    assert only(decide(view_of(*slots), POLICY)) == FailContext(1, Reason.NOBODY_CAN_BE_PARKED)


# --- prompts


def test_a_prompt_parks_the_last_resident_of_a_lower_class_and_none_of_a_better_one() -> None:
    lower = view_of(generating(0, 700, priority=1), started(1, n_left=400))
    assert only(decide(lower, POLICY)) == Park(0, Reason.PROMPT_SHORT, for_request=1)
    better = view_of(generating(0, 300), generating(1, 400), started(2, n_left=400, priority=1))
    assert only(decide(better, POLICY)) == HoldPrompt(2, Reason.NOBODY_CAN_BE_PARKED)


def test_prompts_start_by_class_and_then_by_arrival() -> None:
    prompts = (started(1, 500, priority=1), started(2, 500), started(3, 500))
    assert decide(view_of(generating(0, 480), *prompts, n_batch_tokens=2000), POLICY).held_prompts == {1, 3}


def test_a_prompt_goes_before_a_parked_chat_of_a_lower_class() -> None:
    slots = (generating(0, 600), parked(1, 350, priority=1), started(2, n_left=370))
    assert decide(view_of(*slots), POLICY) is Plan.EMPTY


def test_a_prompt_of_a_lower_class_waits_for_a_parked_chat_that_it_would_keep_out() -> None:
    slots = (generating(0, 600), parked(1, 390), started(2, n_left=50, priority=1))
    assert only(decide(view_of(*slots), POLICY)) == HoldPrompt(2, Reason.HEAD_WAITS)


# --- the line


def test_the_line_is_ordered_by_class_and_then_by_park_time() -> None:
    line = (parked(1, 400, at_s=1.0, priority=1), parked(2, 400, at_s=9.0), parked(3, 400, at_s=5.0))
    assert orders(decide(view_of(generating(0, 100), *line), POLICY)) == [("Restore", 3), ("Restore", 2)]


def test_a_head_gets_the_place_of_a_lower_class_at_once_and_of_its_own_after_the_delay() -> None:
    for priority, expected in ((1, [("Park", 0), ("Restore", 1)]), (0, []), (-1, [])):
        slots = (generating(0, 700, resident_since_s=95.0, priority=priority), parked(1, 450, at_s=90.0))
        assert orders(decide(view_of(*slots), ROTATING)) == expected


def test_turns_are_given_inside_a_class_and_never_at_the_cost_of_a_better_one() -> None:
    slots = (generating(0, 700), parked(1, 450, at_s=1.0, priority=1))
    assert decide(view_of(*slots), ROTATING) is Plan.EMPTY


# --- ageing


def test_one_that_waited_long_enough_counts_as_of_the_best_class() -> None:
    aged = parked(1, 450, at_s=10.0, priority=1)
    plan = decide(view_of(generating(0, 700), aged), AGEING)
    assert plan.actions == (Park(0, Reason.ROTATION), Restore(1, Reason.ROTATION))


def test_one_that_came_in_by_its_age_keeps_its_place_for_a_turn() -> None:
    came_in = generating(0, 700, parked_at_s=10.0, resident_since_s=80.0, priority=1)
    waiting = parked(1, 450, at_s=75.0)
    assert decide(view_of(came_in, waiting), AGEING) is Plan.EMPTY
    later = view_of(replace(came_in, resident_since_s=70.0), waiting)
    assert orders(decide(later, AGEING)) == [("Park", 0), ("Restore", 1)]


@pytest.mark.parametrize("copies", Copies)
def test_no_class_starves_under_an_endless_stream_of_a_better_one(copies: Copies) -> None:
    """Interactive requests fill the pool for 1,000 passes; the batch request gets a turn of 20 every 60 or so."""

    def n_generated_of_batch(age_s: float) -> int:
        policy = Policy(rotate_s=20.0, age_s=age_s)
        engine = ModelEngine(Setup(n_cells=300, n_slots=6, n_batch=64, copies=copies, n_passes_per_copy=2), policy)
        batch = engine.submit(30, 250, priority=1)
        for n_pass in range(1000):
            if n_pass % 10 == 0:
                engine.submit(60, 60)
            engine.step()
        return batch.n_generated

    assert n_generated_of_batch(age_s=40.0) > 3 * n_generated_of_batch(age_s=0.0) + 50


# --- properties

sizes = st.integers(1, 400)


@st.composite
def pools(draw: st.DrawFn) -> list[SlotView]:
    slots: list[SlotView] = []
    for slot_id in range(draw(st.integers(2, 5))):
        n_cells, priority = draw(sizes), draw(st.integers(-1, 1))
        at_s = float(draw(st.integers(0, 99)))
        kind = draw(st.sampled_from(["generating", "generating", "parked", "started"]))
        if kind == "parked":
            slots.append(parked(slot_id, n_cells, at_s=at_s, priority=priority))
        elif kind == "started":
            slots.append(started(slot_id, n_cells, started_at_s=at_s, priority=priority))
        else:
            slots.append(generating(slot_id, n_cells, resident_since_s=at_s, priority=priority))
    return slots


policies = st.builds(Policy, victim=st.sampled_from(VictimPolicy), rotate_s=st.sampled_from([0.0, 30.0]))


def pool_of(slots: list[SlotView], n_free: int) -> View:
    n_resident = sum(slot.n_cells + slot.n_step_cells for slot in slots if slot.phase is SlotPhase.GENERATING)
    return view_of(*slots, n_cells=max(n_resident, *(slot.n_alone_cells for slot in slots)) + n_free)


@given(slots=pools(), n_free=st.integers(0, 500), policy=policies, priority=st.integers(-5, 5))
def test_inside_one_class_all_is_as_without_classes(
    slots: list[SlotView], n_free: int, policy: Policy, priority: int
) -> None:
    without = [replace(slot, priority=0) for slot in slots]
    alike = [replace(slot, priority=priority) for slot in slots]
    assert decide(pool_of(alike, n_free), policy) == decide(pool_of(without, n_free), policy)


@given(slots=pools(), n_free=st.integers(0, 500), policy=policies)
def test_nobody_of_a_lower_class_stays_while_one_waits_that_would_fit_in_their_place(
    slots: list[SlotView], n_free: int, policy: Policy
) -> None:
    """A pass takes one step at most. Where it parks nobody, the one of the best class that waits would not fit even if
    all of lower classes left."""
    view = pool_of(slots, n_free)
    plan = decide(view, policy)
    back = {action.slot_id for action in plan.actions if isinstance(action, Restore)}
    starts = {s.slot_id for s in slots if s.phase is SlotPhase.STARTED} - plan.held_prompts
    running = [s for s in slots if s.phase is SlotPhase.GENERATING or s.slot_id in back | starts]
    waiting = [slot for slot in slots if slot not in running]
    best = min((slot.priority for slot in waiting), default=0)
    firsts = [slot for slot in waiting if slot.priority == best]
    lower = [slot for slot in running if slot.phase is SlotPhase.GENERATING and slot.priority > best]
    if not plan.has_parks and len(firsts) == 1 and lower:  # of several the order inside the class decides
        staying = [slot for slot in running if slot not in lower]
        n_next = sum(s.n_cells + max(s.n_step_cells, s.n_prompt_left) + 8 for s in [*staying, *firsts])
        assert n_next > view.n_cells, (plan.actions, firsts)


@given(slots=pools(), n_free=st.integers(0, 500), policy=policies)
def test_nobody_is_parked_for_one_of_a_lower_class(slots: list[SlotView], n_free: int, policy: Policy) -> None:
    plan = decide(pool_of(slots, n_free), policy)
    by_order = {slot.request_order: slot for slot in slots}
    for action in plan.actions:
        if isinstance(action, Park) and action.for_request is not None:
            assert by_order[action.slot_id].priority >= by_order[action.for_request].priority
        if isinstance(action, Park) and action.reason is Reason.ROTATION and action.for_request is None:
            back = [a.slot_id for a in plan.actions if isinstance(a, Restore)]
            assert any(by_order[slot_id].priority <= by_order[action.slot_id].priority for slot_id in back)
