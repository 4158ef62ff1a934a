"""Decodes a batch, in as many native calls as the pool needs, and hands its tokens out. Engine thread."""

from __future__ import annotations

import logging

from pyggml_server.engine.batch.build import Part, Slice, cut_batch, report_progress
from pyggml_server.engine.batch.hand_over import hand_over
from pyggml_server.engine.idle_slots import idle_prompts
from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import copies, recompute, waits
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.messages import Token
from pyggml_server.native.runtime import Sample, StopType

log = logging.getLogger(__name__)

STATUS_DONE = 0
STATUS_NO_ROOM = 1
_FULL = "the pool is full"
_ERRORS = {-1: "Invalid input batch.", 2: "Decoding was aborted."}


def run_batch(state: EngineState, parts: list[Part]) -> None:
    """Decode all parts. Where the pool has no room after all: idle prompts go first, then a park that is under way is
    waited for, then drafts are left out (a batch that holds one is never cut), then the batch gets narrower, and when
    nothing narrower fits it is given up, see `_no_room_at_all`."""
    n_all = sum(len(part.tokens) for part in parts)
    n_done = 0
    n_width = state.runtime.n_batch
    while n_done < n_all:
        piece = cut_batch(parts, n_done, n_width)
        status = _decode(state, piece)
        if status == STATUS_DONE:
            n_done += len(piece.arrays.token)
            n_width = state.runtime.n_batch
        elif status != STATUS_NO_ROOM:
            fail_decode(state, status)
            return
        elif free_cells(state):
            continue
        elif any(part.n_draft for part in parts):
            parts = _without_drafts(parts)
            n_all = sum(len(part.tokens) for part in parts)
        else:
            n_width = _narrower(piece, n_width)
            if n_width == 0:
                _no_room_at_all(state, piece)
                return
            log.warning("no room in the KV cache for %d tokens, trying %d", len(piece.arrays.token), n_width)


def _narrower(piece: Slice, n_width: int) -> int:
    """Half the width, or 0 where a prompt must stay in one batch."""
    return 0 if any(part.slot.active_job.task.is_whole for part in piece.parts) else n_width // 2


def _decode(state: EngineState, piece: Slice) -> int:
    started_s = state.clock()
    status, samples = state.runtime.step(piece.arrays, piece.rows, lambda: copies.advance_overlapped(state))
    if status != STATUS_DONE:
        return status
    take_samples(state, piece.parts, samples, started_s, sum(row.n_prompt_tokens for row in piece.rows))
    return status


def take_samples(
    state: EngineState, parts: list[Part], samples: list[Sample], started_s: float, n_prompt: int = 0
) -> None:
    """A batch was decoded and sampled: count it, move its slots on, and hand their tokens out."""
    now_s = state.clock()
    if any(slot.copy is not None for slot in state.slots):
        state.last_copy_at_s = now_s
    tally = state.counters.tally
    tally.n_decode_total += 1
    tally.n_busy_slots_total += sum(1 for _ in state.busy())
    if n_prompt:
        state.counters.count_prompt(n_prompt, now_s - started_s)
    for slot in state.slots:
        slot.has_pending_shift = False  # applied by the decode, for every sequence of the context
    state.pool.note_decoded()
    for part, sample in zip(parts, samples, strict=True):
        if part.slot.job is not None:  # else it ended with its parent, just now
            _advance(state, part, sample, now_s)


def fail_decode(state: EngineState, status: int) -> None:
    """A decode failed for another reason than a full pool: every job with cells in it ends."""
    endings.fail_residents(state, _ERRORS.get(status, "Compute error."))


def _advance(state: EngineState, part: Part, sample: Sample, now_s: float) -> None:
    slot = part.slot
    job = slot.active_job
    slot.tokens += _gained(part, sample)
    slot.last_decoded_pass = state.n_passes
    recompute.note_decoded(slot, now_s)
    state.counters.tally.n_tokens_max = max(state.counters.tally.n_tokens_max, len(slot.tokens))
    if part.is_prompt and not job.n_decoded:
        job.n_prompt_processed += len(part.tokens)
        is_reported = part.samples and sample.error is None  # in its events, before the first token
        if not is_reported and not report_progress(state, slot):
            return
    if not part.samples:
        return
    if part.is_prompt:
        slot.state.move(SlotPhase.DONE_PROMPT)
        slot.state.move(SlotPhase.GENERATING)
        hand_over(state, slot)
    if sample.events:
        state.outbox.append(Token(job.task_id, sample.events))
    if sample.stop is StopType.EMBEDDED:
        endings.finish(state, slot)
        state.pool.clear(slot)  # a prompt that was embedded is never continued
        return
    if sample.error is not None:
        end = endings.fail_and_clear if part.n_draft else endings.fail  # its wrong guesses are still in their cells
        end(state, slot, f"got exception: {sample.error}", sample.error_type)
    elif sample.tokens:
        _take_tokens(state, slot, sample, now_s)
    elif sample.stop is not StopType.NONE:  # no token was wanted
        endings.finish(state, slot)


def _gained(part: Part, sample: Sample) -> list[int]:
    """What the slot holds more than before. Of a draft, what was right; nothing, if it has to be verified again."""
    if not part.n_draft:
        return part.tokens
    return [part.tokens[0], *sample.tokens[:-1]] if sample.tokens else []


def _without_drafts(parts: list[Part]) -> list[Part]:
    for part in parts:
        if part.n_draft:
            part.slot.active_job.task.drop_draft()
    return [part.without_draft() for part in parts]


def _take_tokens(state: EngineState, slot: Slot, sample: Sample, now_s: float) -> None:
    job = slot.active_job
    job.sampled = sample.tokens[-1]
    job.n_decoded += len(sample.tokens)
    job.n_tokens_since_park += len(sample.tokens)
    if job.last_token_at_s is not None:
        gap_s = now_s - job.last_token_at_s
        state.counters.count_gap(gap_s, is_survivors=state.last_copy_at_s >= job.last_token_at_s)
        state.recorder.count_gap(now_s, gap_s)
    job.last_token_at_s = now_s
    if sample.stop is not StopType.NONE:
        job.has_next_token = False
        endings.finish(state, slot)


def free_cells(state: EngineState) -> bool:
    """Take cells from slots that do not run. False if running slots hold all cells. Without the planner, an idle slot
    whose prompt is on its way to the prompt cache gives up its cells first: llama-server has freed them by then."""
    if state.policy.is_enabled:
        return idle_prompts.drop_one(state, _FULL) or waits.for_room(state)
    return waits.for_room(state) or idle_prompts.drop_one(state, _FULL)


def _no_room_at_all(state: EngineState, piece: Slice) -> None:
    """No narrower batch fits. Without the planner all requests end, as in llama-server. With it none ends yet: every
    slot's tokens are those in its cells, and the planner of the next pass believes the pool. It parks a chat and
    waits for the park; if none can be parked, it ends the one that cannot fit."""
    if state.policy.is_enabled:
        state.pool.note_refusal(len(piece.arrays.token))
    else:
        endings.fail_all(state, endings.POOL_EXCEEDED)
