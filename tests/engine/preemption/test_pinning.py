"""How much memory the parks of those who run would take, by their cells."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyggml_server.engine import passes
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption.apply import Applier
from pyggml_server.engine.preemption.pinning import budget_is_ample, keep_memory_ahead
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.engine.transfers.park_memory import ParkMemory
from pyggml_server.engine.transfers.size_estimate import SizeEstimate
from pyggml_server.planner.plan import Park, Plan, Reason

from tests.engine.fakes import FakeTransfer, HeldTransfer, generating_state, held


class NotedMemory(ParkMemory):
    """Notes what it was asked to be ready for."""

    def keep_ahead(self, largest_bytes: int, all_bytes: int) -> None:
        self.asked = (largest_bytes, all_bytes)


def state_of(*n_tokens: int, **sizes: Any) -> tuple[EngineState, NotedMemory]:
    """Generating slots with so many tokens."""
    state = generating_state([HeldTransfer() for _ in n_tokens])
    for slot, n in zip(state.slots, n_tokens, strict=True):
        slot.tokens[:] = range(n)
    state.memory, state.sizes = (memory := NotedMemory()), SizeEstimate(**sizes)
    return state, memory


def test_everybody_who_runs_counts_with_the_cells_it_has_or_will_have() -> None:
    state, memory = state_of(10, 20, head_bytes=5, cell_bytes=2)
    state.slot(0).active_job.prompt = list(range(30))  # most of it is still to come
    keep_memory_ahead(state)
    assert memory.asked == (5 + 30 * 2, 2 * 5 + 50 * 2)


def test_nobody_takes_more_cells_than_the_pool_has() -> None:
    state, memory = state_of(40, 50, cell_bytes=1)
    assert state.pool.n_cells == 64
    keep_memory_ahead(state)
    assert memory.asked == (50, 64)


def test_who_is_parked_needs_no_more_and_corrects_the_estimate() -> None:
    state, memory = state_of(10, 20, cell_bytes=1)
    transfer = held(state, 0)
    transfer.state_bytes = 35
    state.slot(0).state.move(SlotPhase.PREEMPTING)
    keep_memory_ahead(state)
    assert memory.asked == (20 * 35 // 10, 20 * 35 // 10)
    transfer.state_bytes = 10
    keep_memory_ahead(state)
    assert memory.asked == (70, 70)  # a smaller one does not make it smaller again


def test_who_is_to_be_computed_again_holds_and_needs_nothing() -> None:
    state, memory = state_of(10, 20, cell_bytes=1)
    state.slot(0).state.move(SlotPhase.PREEMPTING)
    state.slot(0).state.move(SlotPhase.PREEMPTED)
    assert isinstance(state.slot(0).transfer, FakeTransfer)
    keep_memory_ahead(state)
    assert memory.asked == (20, 20)


def test_a_budget_is_ample_that_holds_twice_what_would_come_on_top_of_what_it_holds() -> None:
    state, _ = state_of(10, 20, head_bytes=5, cell_bytes=2)
    needed = 2 * (2 * 5 + 30 * 2)
    state.ram_limit_bytes = needed
    assert budget_is_ample(state)
    state.ram_limit_bytes = needed - 1
    assert not budget_is_ample(state)
    held(state, 0).buffer_bytes = held(state, 0).state_bytes = 35  # parked: what it holds counts once
    state.ram_limit_bytes = 35 + 2 * (5 + 20 * 2)
    assert budget_is_ample(state)
    state.ram_limit_bytes -= 1
    assert not budget_is_ample(state)


def test_no_budget_is_ample_for_states_of_unknown_size() -> None:
    state, _ = state_of(10)
    assert not budget_is_ample(state)


def test_no_states_size_is_asked_for_where_the_budget_is_ample(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def note(*_: object, with_sizes: bool = False) -> None:
        asked.append(with_sizes)

    parks = Plan((Park(0, Reason.FORCED),))
    plans = iter([parks, parks, Plan()])
    monkeypatch.setattr(passes, "observe", note)
    monkeypatch.setattr(passes, "decide", lambda *_: next(plans))
    state, _ = state_of(10, cell_bytes=1)
    for state.ram_limit_bytes in (1000, 10):
        passes._plan_pass(state, cast(Applier, CarriesNothingOut()))
    assert asked == [False, False, True]


class CarriesNothingOut:
    def carry_out(self, plan: Plan) -> None:
        assert plan.may_decode is not None
