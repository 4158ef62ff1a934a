"""Generation that runs ahead of Python. Engine thread.

Where all slots take the same next step, the native call that samples a batch issues the next one. Python hears of
the samples while the device computes. A slot's token list then has the token that is on the device: its cell is taken.
Whatever else is to be done (for a message, a plan with an action, a copy, a full context) ends the run first: `settle`
waits for the batch under way and hands its tokens out, and the next pass finds everything as after any step.
"""

from __future__ import annotations

from pyggml_server.engine.batch.build import Part, cut_batch
from pyggml_server.engine.batch.decode import STATUS_DONE, STATUS_NO_ROOM, fail_decode, take_samples
from pyggml_server.engine.lifecycle.engine_state import EngineState, Flight
from pyggml_server.engine.preemption import copies
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.planner.plan import Plan

# The token on the device, the one that it gives, and the position that a context shift needs.
_N_SPARE_POSITIONS = 3


def may_continue(state: EngineState, plan: Plan, *, has_line: bool) -> bool:
    """Whether every slot that runs decodes its next token, and nothing else is to be done. A slot whose image is being
    encoded does not run; a message comes when that has ended.

    has_line  a request waits for a slot: generation continues only while none is idle.
    """
    if not state.runs_ahead or plan.actions or state.runtime.speculates or copies.are_under_way(state):
        return False
    if has_line and any(slot.is_idle for slot in state.slots):
        return False
    running = [slot for slot in state.busy() if not (slot.phase is SlotPhase.PREEMPTED or slot.waits_for_encoder)]
    scales = {slot.active_job.task.adapters.at(len(slot.tokens)) for slot in running}
    is_one_batch = len(scales) == 1 and len(running) <= state.runtime.n_batch
    return is_one_batch and all(_just_generates(slot) for slot in running)


def _just_generates(slot: Slot) -> bool:
    has_room = len(slot.tokens) + _N_SPARE_POSITIONS < slot.n_ctx
    return slot.phase is SlotPhase.GENERATING and has_room and not slot.has_pending_shift


def begin(state: EngineState, parts: list[Part]) -> bool:
    """Issue this batch of generating slots and do not wait for it. False, and no change, where there is no room."""
    piece = cut_batch(parts, 0, state.runtime.n_batch)
    started_s = state.clock()
    if state.runtime.decode(piece.arrays, piece.rows) != STATUS_DONE:
        return False
    for part in parts:
        part.slot.tokens += part.tokens
    state.pool.note_decoded()
    state.flight = Flight([part.slot for part in parts], started_s)
    return True


def continue_run(state: EngineState) -> None:
    """Wait for the batch under way, have the next one issued, and hand the tokens out while the device computes."""
    _sample(state, goes_on=True)


def settle(state: EngineState) -> None:
    """Wait for the batch under way, if there is one, and hand its tokens out."""
    if state.flight is not None:
        _sample(state, goes_on=False)


def _sample(state: EngineState, *, goes_on: bool) -> None:
    flight, state.flight = state.flight, None
    assert flight is not None
    status, samples = state.runtime.sample(len(flight.slots), go_on=goes_on)
    ahead = [slot for slot, sample in zip(flight.slots, samples, strict=True) if sample.goes_on]
    parts = [Part(slot, [], is_prompt=False, samples=True) for slot in flight.slots]
    take_samples(state, parts, samples, flight.started_s)
    for slot in ahead:
        slot.tokens.append(slot.active_job.sampled)
    if ahead:
        state.flight = Flight(ahead, state.clock())
    elif status not in (STATUS_DONE, STATUS_NO_ROOM):  # without room the next pass makes some
        fail_decode(state, status)
