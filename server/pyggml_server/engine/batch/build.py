"""What goes into the next decode: one token and a draft per generating slot, then prompt chunks up to n_batch.

Engine thread.

All slots of a batch agree on whether they embed, since a decode gives logits or embeddings, and on the scales of the
LoRA adapters, which are the context's. Where several such groups wait, the slot that has waited longest decides.

Building a batch starts prompts (their slot is cut to the kept prefix) but changes no token list and ends no prompt: a
slot's tokens grow, and its phase follows them, when they are decoded. A batch that is given up leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pyggml_server.engine.batch.speculative import draft
from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.slots.images import next_image
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.messages import Began, Token
from pyggml_server.native.adapters import Scales
from pyggml_server.native.runtime import BatchArrays, Row
from pyggml_server.planner.plan import Plan


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive tokens of one slot. `is_prompt`: of its prompt; `samples`: the last one's logits give a token.

    n_draft  how many of the tokens, at the end, are guesses. All their logits are wanted, and they are never cut apart.
    """

    slot: Slot
    tokens: list[int]
    is_prompt: bool
    samples: bool
    n_draft: int = 0

    def without_draft(self) -> Part:
        """The same with the guesses left out."""
        return replace(self, tokens=self.tokens[: len(self.tokens) - self.n_draft], n_draft=0)


@dataclass(frozen=True, slots=True)
class Slice:
    """Part of a batch as one native call takes it: arrays, rows, and how many tokens each slot gains."""

    arrays: BatchArrays
    rows: list[Row]
    parts: list[Part]


def build_batch(state: EngineState, plan: Plan) -> list[Part]:
    """The parts of this pass's batch, at most n_batch tokens together."""
    for members in _groups(state, plan):
        parts = _parts_of(state, plan, members)
        if parts:
            return parts
    return []


def _groups(state: EngineState, plan: Plan) -> list[list[Slot]]:
    """The slots that may run, by what a batch must agree on; first the group whose slot has waited longest."""
    groups: dict[tuple[bool, Scales], list[Slot]] = {}
    runnable = (slot for slot in state.busy() if slot.id not in plan.held_prompts and _takes_tokens(state, slot))
    for slot in sorted(runnable, key=lambda slot: slot.last_decoded_pass):
        groups.setdefault(_group_of(slot), []).append(slot)
    return list(groups.values())


def _takes_tokens(state: EngineState, slot: Slot) -> bool:
    """Whether its next step is one of tokens. A slot whose image was decoded in this pass has taken its step."""
    if slot.has_prompt_left:
        return slot.image_step is None and slot.last_decoded_pass < state.n_passes
    return slot.phase is SlotPhase.GENERATING


def _group_of(slot: Slot) -> tuple[bool, Scales]:
    task = slot.active_job.task
    return task.embeds, task.adapters.at(slot.n_prompt_done)


def _parts_of(state: EngineState, plan: Plan, members: list[Slot]) -> list[Part]:
    n_left = state.runtime.n_batch
    # more generating slots than fit one batch take turns
    generating = [slot for slot in members if slot.phase is SlotPhase.GENERATING][:n_left]
    parts = [
        Part(slot, [slot.active_job.sampled, *guesses], is_prompt=False, samples=True, n_draft=len(guesses))
        for slot, guesses in zip(generating, draft(state, generating, plan), strict=True)
    ]
    n_left -= sum(len(part.tokens) for part in parts)
    if parts and not state.runtime.batches_continuously:
        return parts
    prompts = [slot for slot in members if slot.has_prompt_left]
    for slot in sorted(prompts, key=lambda slot: slot.active_job.order):
        if n_left <= 0:
            break
        n_max = min(n_left, plan.prompt_limits.get(slot.id, n_left))
        if slot.active_job.task.is_whole and n_max < _n_up_to_image(slot):
            continue  # its prompt, or what is of it between two images, goes into one batch or waits for the next
        group = _group_of(slot)
        if slot.phase is SlotPhase.STARTED and not start_prompt(state, slot):
            continue
        if _group_of(slot) != group or slot.image_step is not None:
            continue  # fewer tokens could be kept than was hoped for, and those have other scales, or are an image
        part = _prompt_part(slot, _n_together(state, slot, n_max))
        state.pool.checkpoints.make_before(slot, len(part.tokens))
        parts.append(part)
        n_left -= len(part.tokens)
    return parts


def _n_up_to_image(slot: Slot) -> int:
    """How many of its next prompt tokens are text."""
    job, n_done = slot.active_job, slot.n_prompt_done
    image = next_image(job.images, n_done)
    return (job.n_prompt if image is None else job.images[image].start) - n_done


def _n_together(state: EngineState, slot: Slot, n_max: int) -> int:
    """How many of the prompt's next tokens one batch may take: up to a checkpoint, an image, or where other scales
    begin."""
    images, n_done = slot.active_job.images, len(slot.tokens)
    image = next_image(images, n_done)
    if image is not None:
        n_max = min(n_max, images[image].start - n_done)
    n_max = slot.active_job.task.adapters.n_until_change(len(slot.tokens), n_max)
    return min(n_max, state.pool.checkpoints.n_tokens_until_break(slot))


def _prompt_part(slot: Slot, n_max: int) -> Part:
    job = slot.active_job
    n_done = len(slot.tokens)
    tokens = job.to_process[n_done : n_done + n_max]
    is_last = n_done + len(tokens) == len(job.to_process)
    return Part(slot, tokens, is_prompt=True, samples=is_last and not job.n_decoded)


def start_prompt(state: EngineState, slot: Slot) -> bool:
    """False when the job has ended instead, which must not affect the others in the batch."""
    job = slot.active_job
    job.n_kept = state.pool.cut(slot, job.n_kept)
    slot.images = job.images
    job.task.start(slot.id, slot.n_ctx, job.n_kept)
    slot.state.move(SlotPhase.PROCESSING_PROMPT)
    slot.resident_since_s = state.clock()
    state.counters.tally.prompt_tokens_cached_total += job.n_kept
    if job.task.is_streamed:
        state.outbox.append(Began(job.task_id))
    return report_progress(state, slot)


def report_progress(state: EngineState, slot: Slot) -> bool:
    """Tell a stream that wants to know how much of its prompt is in the cache. False when that ended the job."""
    job = slot.active_job
    if not (job.task.is_streamed and job.task.returns_progress):
        return True
    try:
        events = job.task.progress_event(len(slot.tokens))
    except Exception as error:
        endings.fail(state, slot, f"got exception: {error}")
        return False
    state.outbox.append(Token(job.task_id, events))
    return True


def cut_batch(parts: list[Part], n_from: int, n_tokens: int) -> Slice:
    """Tokens [n_from, n_from + n_tokens) of the batch, as far as it goes. Only a batch without drafts may be cut."""
    columns = _Columns()
    n_before = 0
    for part in parts:
        first = max(0, n_from - n_before)
        last = min(len(part.tokens), n_from + n_tokens - n_before)
        n_before += len(part.tokens)
        if first < last:
            columns.add(part, first, last)
    return columns.to_slice()


class _Columns:
    """A slice in the making."""

    def __init__(self) -> None:
        self._token: list[int] = []
        self._pos: list[int] = []
        self._seq_id: list[int] = []
        self._output: list[int] = []
        self._rows: list[Row] = []
        self._parts: list[Part] = []

    def add(self, part: Part, first: int, last: int) -> None:
        """Tokens [first, last) of the part."""
        slot, task = part.slot, part.slot.active_job.task
        chunk = part.tokens[first:last]
        samples = part.samples and last == len(part.tokens)
        n_done = len(slot.tokens)
        pos = slot.n_positions(n_done)
        self._token += chunk
        self._pos += range(pos, pos + len(chunk))
        self._seq_id += [slot.id] * len(chunk)
        self._output += [int(task.embeds)] * len(chunk)
        i_sampled = len(self._token) - 1 - part.n_draft if samples else -1
        if samples:
            self._output[i_sampled:] = [1] * (1 + part.n_draft)
        n_prompt = len(chunk) if part.is_prompt and not slot.active_job.n_decoded else 0
        n_past = n_done + len(chunk) - part.n_draft
        n_pos = pos + len(chunk) - part.n_draft
        self._rows.append(Row(task, i_sampled, n_prompt, n_past, n_pos, part.n_draft))
        self._parts.append(replace(part, tokens=chunk, samples=samples))
        if part.is_prompt and samples:
            for child in slot.children:  # each samples its own first token from its parent's last row
                self._rows.append(Row(child.active_job.task, i_sampled, 0, n_past, n_pos, parent=task))
                self._parts.append(Part(child, [], is_prompt=False, samples=True))

    def to_slice(self) -> Slice:
        arrays = BatchArrays(
            np.array(self._token, dtype=np.int32),
            np.array(self._pos, dtype=np.int32),
            np.array(self._seq_id, dtype=np.int32),
            np.array(self._output, dtype=np.int8),
        )
        return Slice(arrays, self._rows, self._parts)
