"""While turns are given nobody waits for ever, whoever passes whom: parked chats and prompts without cells.

In front of the last one in line are all other slots. Each of them comes in once, keeps its place for one delay, and
takes the copies of those who leave for it, and its own, and the pass that finds its turn over: a pass is a second here.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from pyggml_server.planner import Policy
from pyggml_server.planner.policy import VictimPolicy

from tests.planner.model_engine import ModelEngine
from tests.planner.model_pool import Copies, Setup
from tests.planner.trace_count import note_trace

arrivals = st.lists(
    st.tuples(
        st.integers(0, 30),  # passes since the one before
        st.one_of(st.integers(1, 12), st.integers(30, 90)),  # prompt: short ones may pass long ones
        st.integers(1, 80),
        st.sampled_from([1, 1, 1, 2, 3]),
    ),
    min_size=2,
    max_size=14,
)
setups = st.builds(
    Setup,
    n_cells=st.integers(90, 200),
    n_slots=st.integers(2, 6),
    n_batch=st.just(256),
    copies=st.sampled_from(Copies),
    n_passes_per_copy=st.integers(1, 4),
)


# A family that has to leave whole for a head that needs the pool to itself.
ALONE_IN_THE_POOL = [
    *((1, 30, 1, 1), (0, 3, 1, 1), (2, 3, 1, 1), (0, 1, 1, 1), (0, 1, 1, 1), (0, 1, 1, 1), (0, 1, 1, 1)),
    *((0, 2, 1, 2), (0, 1, 1, 1), (0, 1, 22, 2), (0, 1, 54, 2), (7, 1, 7, 3), (0, 59, 68, 1)),
]


@example(
    setup=Setup(n_cells=94, n_slots=3, n_batch=256, copies=Copies.LATE, n_passes_per_copy=3),
    trace=ALONE_IN_THE_POOL,
    rotate_s=5,
    victim=VictimPolicy.OLDEST,
)
@given(setup=setups, trace=arrivals, rotate_s=st.sampled_from([5, 20]), victim=st.sampled_from(VictimPolicy))
def test_a_wait_is_bounded_by_a_turn_of_each_of_the_others(
    setup: Setup, trace: list[tuple[int, int, int, int]], rotate_s: int, victim: VictimPolicy
) -> None:
    engine = ModelEngine(setup, Policy(victim=victim, rotate_s=float(rotate_s)))
    for n_passes, n_prompt, n_generate, n in trace:
        for _ in range(n_passes):
            engine.step()
        engine.submit(n_prompt, n_generate, n=n)
    engine.run_out(100 + 20 * sum(n * (n_prompt + n_generate) for _, n_prompt, n_generate, n in trace))
    n_slots = setup.n_slots
    bound_s = n_slots * (rotate_s + n_slots * setup.n_passes_per_copy + 1) + rotate_s
    assert engine.longest_wait_s <= bound_s
    assert engine.longest_start_wait_s <= bound_s
    note_trace(engine.n_passes)
