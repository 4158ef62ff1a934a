"""One pass of the engine: complete copies, place tasks, pin a piece of memory, plan, decode: images, then tokens.

Engine thread.
"""

from __future__ import annotations

from pyggml_server.engine.admission.dispatch import Dispatcher
from pyggml_server.engine.batch import run_ahead
from pyggml_server.engine.batch.build import build_batch
from pyggml_server.engine.batch.context_shift import shift_full_slots
from pyggml_server.engine.batch.decode import run_batch
from pyggml_server.engine.batch.image_steps import take_image_steps
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import copies, waits
from pyggml_server.engine.preemption.apply import Applier
from pyggml_server.engine.preemption.observe import observe
from pyggml_server.engine.preemption.pinning import budget_is_ample, keep_memory_ahead
from pyggml_server.planner.decide import decide
from pyggml_server.planner.plan import Plan


def run_pass(state: EngineState, dispatcher: Dispatcher, applier: Applier) -> bool:
    """Whether anything was decoded."""
    state.n_passes += 1
    if state.flight is not None:
        _pass_in_flight(state, dispatcher)
        return True
    copies.poll(state)
    dispatcher.place()
    if not state.is_busy():
        state.memory.rest()
        if state.background is not None:
            state.background.rest()
        return False
    keep_memory_ahead(state)
    shift_full_slots(state)
    plan = _plan_pass(state, applier)
    waits.before_shift(state)
    has_decoded = take_image_steps(state, plan)
    parts = build_batch(state, plan)
    waits.before_shift(state)  # building a batch may find one
    if parts:
        may_run_ahead = run_ahead.may_continue(state, plan, has_line=not dispatcher.is_empty)
        if not (may_run_ahead and run_ahead.begin(state, parts)):
            run_batch(state, parts)
    else:
        copies.advance_overlapped(state)
    return has_decoded or bool(parts)


def _pass_in_flight(state: EngineState, dispatcher: Dispatcher) -> None:
    """A batch is under way. Its tokens are in their cells, so the plan is the next step's; one with an action is thrown
    away, since the pass after this one makes it again."""
    keep_memory_ahead(state)
    plan = decide(observe(state), state.policy)
    if not dispatcher.is_time_up and run_ahead.may_continue(state, plan, has_line=not dispatcher.is_empty):
        run_ahead.continue_run(state)
    else:
        run_ahead.settle(state)


def _plan_pass(state: EngineState, applier: Applier) -> Plan:
    """Decide and apply until the plan allows a batch and every park that it ordered was made."""
    refused: frozenset[int] = frozenset()
    while True:
        plan = decide(observe(state, refused), state.policy)
        if plan.has_parks and not budget_is_ample(state):
            plan = decide(observe(state, refused, with_sizes=True), state.policy)
        slot_id = applier.carry_out(plan)
        if slot_id is not None:
            refused |= {slot_id}
        elif plan.may_decode:
            return plan
