"""Rule 15: parked states in files."""

from __future__ import annotations

from typing import Any

import pytest
from pyggml_server.planner import Plan, Policy, SlotView, View, decide
from pyggml_server.planner.plan import Fetch, Forget, Reason, Spill

from tests.planner.model_engine import ModelEngine
from tests.planner.model_pool import Copies, Setup
from tests.planner.views import generating, only, orders, parked, started, view_of

POLICY = Policy()


def on_disk(slot_id: int, n_cells: int, **changes: Any) -> SlotView:
    return parked(slot_id, n_cells, buffer_bytes=0, is_on_disk=True, **changes)


def with_disk(*slots: SlotView, **changes: Any) -> View:
    """Host memory for 500 bytes, files for 2,000, and a next park of 200."""
    numbers = {"ram_limit_bytes": 500, "disk_limit_bytes": 2000, "ahead_bytes": 200}
    held = sum(slot.state_bytes for slot in slots if slot.is_on_disk)
    return view_of(*slots, **{**numbers, "disk_held_bytes": held, **changes})


def test_a_state_is_written_when_the_next_park_would_find_no_host_memory() -> None:
    assert only(decide(with_disk(generating(0, 700), parked(1, 400)), POLICY)) == Spill(1, Reason.NEXT_PARK)
    assert decide(with_disk(generating(0, 700), parked(1, 400), ahead_bytes=100), POLICY) is Plan.EMPTY
    assert decide(with_disk(generating(0, 700), parked(1, 400), disk_limit_bytes=0), POLICY) is Plan.EMPTY
    assert decide(with_disk(generating(0, 700), parked(1, 400), ram_limit_bytes=None), POLICY) is Plan.EMPTY


def test_the_one_that_comes_back_last_is_written_and_whoever_is_kept_out_before_it() -> None:
    line = [generating(0, 850), parked(1, 200, at_s=1.0, state_bytes=200), parked(2, 300, at_s=2.0)]
    assert orders(decide(with_disk(*line), POLICY)) == [("Spill", 2)]
    assert orders(decide(with_disk(*line, parked(3, 100, at_s=0.0, is_held=True)), POLICY)) == [("Spill", 3)]


def test_one_file_at_a_time_and_nobody_twice() -> None:
    busy = parked(1, 200, at_s=1.0, has_transfer_in_flight=True)
    assert decide(with_disk(generating(0, 700), busy, parked(2, 300, at_s=2.0)), POLICY) is Plan.EMPTY
    assert decide(with_disk(generating(0, 700), parked(1, 400, was_on_disk=True)), POLICY) is Plan.EMPTY


def test_while_the_disk_is_busy_with_what_nobody_wants_it_gets_no_other_order() -> None:
    assert decide(with_disk(generating(0, 700), parked(1, 400), is_disk_busy=True), POLICY) is Plan.EMPTY
    kept = parked(2, 300, at_s=2.0, was_on_disk=True)
    view = with_disk(generating(0, 300), on_disk(1, 400, at_s=1.0), kept, is_disk_busy=True)
    assert decide(view, POLICY) is Plan.EMPTY  # its end gives host memory back: nobody is computed again


def test_what_the_disk_cannot_hold_stays_and_so_do_answers_that_share_a_prompt() -> None:
    full = with_disk(generating(0, 700), parked(1, 400), disk_held_bytes=1700)
    assert decide(full, POLICY) is Plan.EMPTY
    smaller = with_disk(generating(0, 850), parked(1, 200, at_s=1.0), parked(2, 299, at_s=2.0), disk_held_bytes=1750)
    assert orders(decide(smaller, POLICY)) == [("Spill", 1)]


def test_a_head_that_fits_is_read_first_and_restored_once_it_is_in_host_memory() -> None:
    assert only(decide(with_disk(generating(0, 300), on_disk(1, 400)), POLICY)) == Fetch(1, Reason.HEAD_OF_LINE)
    reading = on_disk(1, 400, has_transfer_in_flight=True)
    assert decide(with_disk(generating(0, 300), reading), POLICY) is Plan.EMPTY
    back = parked(1, 400, was_on_disk=True)
    assert orders(decide(with_disk(generating(0, 300), back), POLICY)) == [("Restore", 1)]


def test_a_head_that_does_not_fit_is_not_read() -> None:
    assert decide(with_disk(generating(0, 700), on_disk(1, 400)), POLICY) is Plan.EMPTY


def test_a_prompt_does_not_pass_a_head_that_is_read() -> None:
    view = with_disk(generating(0, 300), on_disk(1, 400, has_transfer_in_flight=True), started(2, n_left=300))
    assert orders(decide(view, POLICY)) == [("HoldPrompt", 2)]


def test_where_host_memory_is_full_another_state_makes_room_for_the_one_that_is_read() -> None:
    view = with_disk(generating(0, 300), on_disk(1, 400, at_s=1.0), parked(2, 300, at_s=2.0), ahead_bytes=0)
    assert only(decide(view, POLICY)) == Spill(2, Reason.HEAD_OF_LINE)


def test_a_head_that_host_memory_cannot_take_back_is_computed_again_if_nothing_will_make_room() -> None:
    kept = parked(2, 300, at_s=2.0, was_on_disk=True)
    view = with_disk(generating(0, 300), on_disk(1, 400, at_s=1.0), kept)
    assert only(decide(view, POLICY)) == Forget(1, Reason.BUDGET_TOO_SMALL)
    in_flight = parked(3, 100, at_s=3.0, has_transfer_in_flight=True)
    assert decide(with_disk(generating(0, 300), on_disk(1, 400, at_s=1.0), kept, in_flight), POLICY) is Plan.EMPTY


def test_a_turn_is_not_refused_while_a_file_is_about_to_make_room() -> None:
    rotating = Policy(rotate_s=30.0)
    slots = [generating(0, 400), generating(1, 400), parked(2, 250, at_s=1.0), parked(3, 245, at_s=2.0)]
    assert orders(decide(with_disk(*slots), rotating)) == [("Spill", 3)]
    assert orders(decide(with_disk(*slots, disk_limit_bytes=0), rotating)) == [("RefuseRotation", 2)]


@pytest.mark.parametrize("copies", Copies)
def test_chats_take_turns_through_files_where_host_memory_holds_one_state(copies: Copies) -> None:
    """Four chats, a pool for two: nobody is computed again, all end."""
    setup = Setup(n_cells=200, n_slots=4, n_batch=64, copies=copies, ram_limit=110, disk_limit=1000)
    engine = ModelEngine(setup, Policy(rotate_s=20.0))
    chats = [engine.submit(30, 60) for _ in range(4)]
    engine.run_out(5000)
    assert [chat.endings for chat in chats] == [["finished"]] * 4
    assert engine.counts["Fetch"] > 0
    assert engine.counts.get("Recompute", 0) == 0
    assert engine.disk_held == 0
