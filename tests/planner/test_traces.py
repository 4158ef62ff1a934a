"""Fixed traces through the simulator: who finishes, who waits, how often somebody is parked."""

from __future__ import annotations

import pytest
from pyggml_server.planner import Policy
from pyggml_server.planner.policy import VictimPolicy

from tests.planner.model_engine import ModelEngine
from tests.planner.model_pool import Copies, Setup
from tests.planner.simulator import Arrival, chats, mixed, simulate

FOUR_CHATS = chats(4, n_prompt=150, n_generate=500)
SMALL_POOL = Setup(n_cells=1024, n_slots=4, n_batch=2048)


@pytest.mark.parametrize("copies", Copies)
@pytest.mark.parametrize("victim", VictimPolicy)
def test_four_chats_that_overflow_one_pool_all_finish(copies: Copies, victim: VictimPolicy) -> None:
    setup = Setup(n_cells=1024, n_slots=4, n_batch=2048, copies=copies)
    report = simulate(FOUR_CHATS, setup, Policy(victim=victim))
    assert report.n_finished == 4
    assert report.n_parks == report.n_restores >= 2


def test_chats_that_fit_are_never_parked() -> None:
    report = simulate(chats(4, 100, 150), SMALL_POOL, Policy())
    assert (report.n_finished, report.n_parks) == (4, 0)


def test_parks_stay_few_for_four_chats() -> None:
    assert simulate(FOUR_CHATS, SMALL_POOL, Policy()).n_parks <= 8


def test_one_more_chat_than_slots_waits_for_a_slot_and_finishes() -> None:
    assert simulate(chats(9, 150, 500), SMALL_POOL, Policy()).n_finished == 9


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("copies", Copies)
def test_mixed_traffic_all_finishes(copies: Copies, seed: int) -> None:
    setup = Setup(n_cells=300, n_slots=6, n_batch=64, copies=copies)
    report = simulate(mixed(60, n_longest=280, seed=seed), setup, Policy())
    assert report.n_finished == report.n_requests


@pytest.mark.parametrize("every", [1, 32])
def test_forced_parks_park_a_lone_chat_and_let_it_finish(every: int) -> None:
    report = simulate(chats(1, 50, 300), SMALL_POOL, Policy(n_preempt_every=every))
    assert report.n_finished == 1
    assert report.n_parks == report.n_restores == (300 - 1) // every


@pytest.mark.parametrize("copies", Copies)
@pytest.mark.parametrize("ram_limit", [0, 100, 400])
def test_a_budget_below_one_state_fails_nobody_and_computes_again(copies: Copies, ram_limit: int) -> None:
    setup = Setup(n_cells=1024, n_slots=4, n_batch=2048, ram_limit=ram_limit, copies=copies)
    engine = ModelEngine(setup, Policy())
    for _ in range(4):
        engine.submit(150, 500)
    engine.run_out(5000)
    assert [request.endings for request in engine.requests] == [["finished"]] * 4
    assert engine.counts["Recompute"] == engine.counts["Refill"] >= 2


def test_a_budget_for_one_still_finishes_two_chats_that_overflow() -> None:
    setup = Setup(n_cells=1024, n_slots=2, n_batch=2048, ram_limit=700, keeps_buffers=True)
    report = simulate(chats(2, 150, 600), setup, Policy())
    assert report.n_finished == 2


def test_a_prompt_that_arrives_in_a_full_pool_gets_its_turn_before_the_chats_end() -> None:
    trace = [*chats(3, 100, 800), Arrival(200, 150, 10)]
    report = simulate(trace, SMALL_POOL, Policy())
    assert report.n_finished == 4


def test_short_requests_do_not_delay_a_parked_long_chat_beyond_the_bound() -> None:
    """Rotation on: a parked chat waits at most two delays, however many short requests keep coming."""
    trace = [Arrival(0, 100, 250), Arrival(0, 100, 250), *(Arrival(5 * i, 30, 40) for i in range(60))]
    setup = Setup(n_cells=400, n_slots=4, n_batch=64)
    report = simulate(trace, setup, Policy(rotate_s=30.0))
    assert report.n_finished == report.n_requests
    assert report.longest_wait_passes <= 2 * 30.0 + 2


def test_rotation_bounds_a_wait_that_is_long_without_it() -> None:
    trace = chats(2, 100, 800)
    setup = Setup(n_cells=1024, n_slots=2, n_batch=2048)
    rotating = simulate(trace, setup, Policy(rotate_s=50.0))
    assert simulate(trace, setup, Policy()).longest_wait_passes > rotating.longest_wait_passes
    assert rotating.longest_wait_passes <= 2 * 50.0 + 2


def test_the_same_trace_gives_the_same_report() -> None:
    assert simulate(FOUR_CHATS, SMALL_POOL, Policy()) == simulate(FOUR_CHATS, SMALL_POOL, Policy())
