"""Images of prompts: asked for ahead of their turn, and decoded, each as one step of its slot. Engine thread.

An image is encoded on a thread of its own (`encoder.py`) while others decode. Its slot waits for that with its cells,
may be parked meanwhile, and takes the step in a pass after it. The plan has counted the image's cells; it is never cut.
Half a minute or so of a sound is an image here.
"""

from __future__ import annotations

import logging

from pyggml_server.engine.batch.build import report_progress, start_prompt
from pyggml_server.engine.batch.decode import STATUS_DONE, STATUS_NO_ROOM, free_cells
from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import recompute
from pyggml_server.engine.slots.images import next_image
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.native.runtime import PyggmlError, Row
from pyggml_server.planner.plan import Plan

log = logging.getLogger(__name__)

_FAILED = "failed to process mtmd chunk"  # llama-server's words


def take_image_steps(state: EngineState, plan: Plan) -> bool:
    """Decode the image of every slot that is at one, if it is encoded and the plan lets it run. Whether any was."""
    if state.encoder is None:
        return False
    waiting = [slot for slot in state.busy() if slot.has_prompt_left and slot.active_job.images]
    waiting.sort(key=lambda slot: slot.active_job.order)
    return sum(_take_step(state, slot, plan) for slot in waiting) > 0


def _take_step(state: EngineState, slot: Slot, plan: Plan) -> bool:
    if not _is_ready(state, slot):
        return False
    if slot.image_step is None or slot.id in plan.held_prompts:
        return False
    if slot.phase is SlotPhase.STARTED and not start_prompt(state, slot):
        return False
    image = slot.image_step  # starting may have found that less could be kept than was hoped for
    return image is not None and _is_ready(state, slot) and _decode(state, slot, image)


def _is_ready(state: EngineState, slot: Slot) -> bool:
    """Whether the next image of its prompt is encoded; if nobody has asked for it, this does. Where that failed the job
    ends, and it is not."""
    job = slot.active_job
    media, image = job.task.media, next_image(job.images, slot.n_prompt_done)
    if media is None or image is None:
        return False
    asked, error = job.encoding, None
    if asked is not None:
        if not asked.done():
            return False
        job.encoding, error = None, asked.exception()
    if error is not None:
        endings.fail(state, slot, f"{_FAILED}: {error}")
        return False
    if media.is_encoded(image):
        return True
    assert state.encoder is not None
    job.encoding = state.encoder.start(media, image)
    return False


def _decode(state: EngineState, slot: Slot, image: int) -> bool:
    job = slot.active_job
    run = job.images[image]
    started_s = state.clock()
    n_prompt = 0 if job.n_decoded else run.n_tokens
    row = Row(job.task, -1, n_prompt, run.end, slot.n_positions(run.start) + run.n_pos)
    try:
        status = state.runtime.decode_image(row, image, slot.n_positions(run.start))
        while status == STATUS_NO_ROOM and free_cells(state):
            status = state.runtime.decode_image(row, image, slot.n_positions(run.start))
    except PyggmlError as error:
        endings.fail_and_clear(state, slot, f"{_FAILED}: {error}")
        return False
    if status != STATUS_DONE:
        _note_failure(state, slot, status, run.n_tokens)
        return False
    now_s = state.clock()
    slot.tokens += job.to_process[run.start : run.end]
    slot.last_decoded_pass = state.n_passes
    state.pool.note_decoded()
    recompute.note_decoded(slot, now_s)
    state.counters.tally.n_tokens_max = max(state.counters.tally.n_tokens_max, len(slot.tokens))
    if n_prompt:
        state.counters.count_prompt(n_prompt, now_s - started_s)
        job.n_prompt_processed += n_prompt
        report_progress(state, slot)
    return True


def _note_failure(state: EngineState, slot: Slot, status: int, n_tokens: int) -> None:
    """Nobody else is touched. With the planner the pool is believed: the next pass makes room, or lets somebody go."""
    if status == STATUS_NO_ROOM and state.policy.is_enabled:
        state.pool.note_refusal(n_tokens)
    else:
        log.error("slot %d: decoding an image or a sound of %d tokens: status %d", slot.id, n_tokens, status)
        endings.fail_and_clear(state, slot, _FAILED)
