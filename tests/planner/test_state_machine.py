"""Random traces through the model engine: requests come, go away and shift, parks are refused, buffers turn out to be
pageable, copies complete late, chats are parked and called back by hand.

Each rule ends in a pass of the loop or several; the engine raises `InvariantError` the moment something does not hold,
and at the end every request must have ended once, in a bounded number of passes.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from pyggml_server.planner import Policy
from pyggml_server.planner.policy import VictimPolicy
from pyggml_server.planner.view import SlotPhase

from tests.planner.model_engine import ModelEngine
from tests.planner.model_pool import Copies, Setup
from tests.planner.trace_count import note_trace

setups = st.builds(
    Setup,
    n_cells=st.integers(20, 100),
    n_slots=st.integers(2, 5),
    n_batch=st.sampled_from([4, 16, 128]),
    copies=st.sampled_from(Copies),
    n_passes_per_copy=st.integers(1, 6),
    ram_limit=st.sampled_from([None, None, 0, 20, 60, 150]),
    keeps_buffers=st.booleans(),
    keeps_prompts=st.booleans(),
    kept_share=st.sampled_from([0.0, 0.5, 1.0]),
    disk_limit=st.sampled_from([0, 0, 30, 200]),
    n_passes_per_file=st.integers(1, 8),
    n_cells_missing=st.sampled_from([0, 0, 0, 1, 7]),
)
policies = st.builds(
    Policy,
    victim=st.sampled_from(VictimPolicy),
    n_lookahead_steps=st.sampled_from([0, 2, 8]),
    rotate_s=st.sampled_from([0.0, 0.0, 5.0, 20.0]),
    n_preempt_every=st.sampled_from([0, 0, 0, 1, 7]),
    age_s=st.sampled_from([0.0, 15.0]),
)


HOLDABLE = frozenset(
    {
        SlotPhase.PROCESSING_PROMPT,
        SlotPhase.GENERATING,
        SlotPhase.PREEMPTING,
        SlotPhase.PREEMPTED,
        SlotPhase.RESTORING,
    }
)


class RandomTraces(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.engine = ModelEngine(Setup(), Policy())

    @initialize(setup=setups, policy=policies)
    def load_a_model(self, setup: Setup, policy: Policy) -> None:
        self.engine = ModelEngine(setup, policy)

    @rule(
        n_prompt=st.integers(1, 60),
        n_generate=st.integers(1, 60),
        n_draft=st.sampled_from([0, 0, 4]),
        n_requests=st.integers(1, 4),
        n=st.sampled_from([1, 1, 2, 3]),
        priority=st.sampled_from([0, 0, 0, 1, -2]),
    )
    def requests_come(
        self, n_prompt: int, n_generate: int, n_draft: int, n_requests: int, n: int, priority: int
    ) -> None:
        for _ in range(n_requests):
            self.engine.submit(n_prompt, n_generate, n_draft, n, priority)
        self.engine.step()

    @rule(
        long=st.integers(3, 7),
        n_short=st.integers(1, 3),
        n_passes=st.integers(1, 3),
        family=st.integers(3, 8),
        n=st.integers(2, 4),
        behind=st.integers(3, 8),
    )
    def a_family_waits_for_slots_and_is_passed(
        self, long: int, n_short: int, n_passes: int, family: int, n: int, behind: int
    ) -> None:
        """Prompts are in tenths of the pool: who comes behind the family needs somebody to leave."""
        tenth = self.engine.setup.n_cells // 10
        self.engine.submit(long * tenth, 3 * tenth)
        for i in range(n_short):
            self.engine.submit(2 + i, 3 + 2 * i)
        self.time_passes(n_passes)
        self.engine.submit(family * tenth, 2, n=n)
        self.engine.submit(behind * tenth, 9)
        self.engine.step()

    @rule(n_passes=st.integers(1, 20))
    def time_passes(self, n_passes: int) -> None:
        for _ in range(n_passes):
            self.engine.step()

    @precondition(lambda self: not self.engine.is_done)
    @rule(which=st.integers(0, 1000))
    def a_client_goes_away(self, which: int) -> None:
        live = [request for request in self.engine.requests if not request.endings]
        self.engine.cancel(live[which % len(live)])
        self.engine.step()

    @rule(which=st.integers(0, 4))
    def a_park_will_be_refused(self, which: int) -> None:
        self.engine.refusals.add(which % len(self.engine.slots))

    @rule(which=st.integers(0, 4))
    def a_buffer_turns_out_to_be_pageable(self, which: int) -> None:
        self.engine.pageable.add(which % len(self.engine.slots))

    @rule(which=st.integers(0, 4))
    def a_file_will_fail(self, which: int) -> None:
        self.engine.file_failures.add(which % len(self.engine.slots))

    @rule(which=st.integers(0, 4))
    def a_slot_shifts(self, which: int) -> None:
        slot = self.engine.slots[which % len(self.engine.slots)]
        if slot.phase is SlotPhase.GENERATING:
            slot.has_pending_shift = True
        self.engine.step()

    @precondition(lambda self: any(slot.phase in HOLDABLE for slot in self.engine.slots))
    @rule(which=st.integers(0, 4))
    def somebody_is_parked_by_hand(self, which: int) -> None:
        slots = [slot for slot in self.engine.slots if slot.phase in HOLDABLE]
        self.engine.hold(slots[which % len(slots)])
        self.engine.step()

    @precondition(lambda self: any(slot.is_held for slot in self.engine.slots))
    @rule(which=st.integers(0, 4))
    def somebody_is_called_back(self, which: int) -> None:
        held = [slot for slot in self.engine.slots if slot.is_held]
        self.engine.call_back(held[which % len(held)])
        self.engine.step()

    def teardown(self) -> None:
        for slot in self.engine.slots:
            if slot.is_held:
                self.engine.call_back(slot)
        n_tokens = sum(request.n_prompt + request.n_generate for request in self.engine.requests)
        self.engine.run_out(n_passes_max=100 + 20 * n_tokens)
        note_trace(self.engine.n_passes)


TestRandomTraces = RandomTraces.TestCase


def test_families_wait_in_line_for_several_slots_and_are_passed_there() -> None:
    """In a few of the traces; else the others would show nothing of it."""
    n_passed: list[int] = []

    class Counted(RandomTraces):
        def teardown(self) -> None:
            super().teardown()
            n_passed.append(len(self.engine.families_passed))

    few = settings(max_examples=20, stateful_step_count=10, deadline=None, derandomize=True, database=None)
    run_state_machine_as_test(Counted, settings=few)
    assert sum(n > 0 for n in n_passed) >= 3
