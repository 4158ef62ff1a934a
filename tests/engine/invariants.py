"""What must hold between two passes of an engine: slots, pool, host memory and counters tell the same story."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyggml_server.engine.admission.dispatch import Dispatcher
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.loop import Engine
from pyggml_server.engine.slots.copy_in_flight import CopyStep
from pyggml_server.engine.slots.shared_prompt import n_owned_cells, n_promised_cells
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.engine.slots.state_on_disk import DiskStep

_BETWEEN_PASSES = frozenset(
    {
        SlotPhase.IDLE,
        SlotPhase.WAIT_OTHER,
        SlotPhase.STARTED,
        SlotPhase.PROCESSING_PROMPT,
        SlotPhase.GENERATING,
        SlotPhase.PREEMPTED,
    }
)
_PHASES_OF_COPIES = {
    CopyStep.PARK: frozenset({SlotPhase.PREEMPTING}),
    CopyStep.QUEUED: frozenset({SlotPhase.RESTORING}),
    CopyStep.PREFETCH: frozenset({SlotPhase.RESTORING}),
    CopyStep.RESTORE: frozenset({SlotPhase.RESTORING}),
    CopyStep.SCATTER: frozenset({SlotPhase.PROCESSING_PROMPT, SlotPhase.GENERATING}),
}


def broken_invariants(state: EngineState, dispatcher: Dispatcher) -> list[str]:
    """What does not hold, in words; for models with a plain cache."""
    broken = [text for slot in state.slots for text in _of_slot(state, slot)]
    n_held = sum(n_owned_cells(slot) for slot in state.slots)
    prompts = {id(slot.shared): slot.shared for slot in state.slots if slot.shared is not None and slot.counts_cells}
    n_held += sum(shared.n_cells for shared in prompts.values())
    n_used, n_promised = state.pool.n_cells_used(), n_promised_cells(state.slots)
    if n_used + n_promised != n_held:
        broken.append(f"the pool has {n_used} cells in use, {n_promised} are promised, the slots count {n_held}")
    if state.policy.is_enabled and n_used + n_promised > state.pool.n_cells:
        broken.append(f"{n_used} cells are in use and {n_promised} promised, of {state.pool.n_cells}")
    if state.policy.is_enabled and state.ram_held_bytes() > state.ram_limit_bytes:
        broken.append(f"{state.ram_held_bytes()} bytes are held, the budget is {state.ram_limit_bytes}")
    if state.disk_held_bytes() > state.disk.limit_bytes:
        broken.append(f"files hold {state.disk_held_bytes()} bytes, their budget is {state.disk.limit_bytes}")
    files = state.prompt_files
    if files is not None and files.held_bytes > files.limit_bytes:
        broken.append(f"files of prompts hold {files.held_bytes} bytes, their budget is {files.limit_bytes}")
    broken.extend(_of_memory(state))
    tally = state.counters.tally
    n_ended = tally.requests_finished_total + tally.requests_failed_total + tally.requests_cancelled_total
    n_known = n_ended + dispatcher.n_tasks + sum(1 for _ in state.busy())
    if n_known != state.n_requests:
        broken.append(f"{state.n_requests} requests came, {n_known} have ended, run or wait")
    return broken


def _of_memory(state: EngineState) -> Iterator[str]:
    n_pinned, n_taken = state.memory.pinned_bytes, sum(slot.transfer.pinned_bytes for slot in state.slots)
    if n_pinned > state.ram_limit_bytes:
        yield f"{n_pinned} bytes are pinned, the budget is {state.ram_limit_bytes}"
    n_left = state.disk.abandoned.ram_bytes - state.disk.abandoned.buffer_bytes  # the disk's thread gives it back
    pool = state.memory._pool
    if pool is not None and not n_taken <= pool.held_bytes <= n_taken + n_left:
        yield f"the pinned pool has {pool.held_bytes} bytes taken, the slots have {n_taken}, the disk {n_left}"
    if any(slot.is_idle and slot.transfer.buffer_bytes for slot in state.slots):
        yield "an idle slot holds memory for parks"


def _of_slot(state: EngineState, slot: Slot) -> Iterator[str]:
    name = f"slot {slot.id} ({slot.phase.name})"
    has_state = (
        slot.phase is SlotPhase.PREEMPTED and not (slot.job and slot.job.needs_refill)
    ) or slot.copy is not None
    n_expected = slot.n_positions(len(slot.tokens)) if slot.holds_cells else 0
    ends_in_image = any(
        run.end == len(slot.tokens) for run in slot.images
    )  # with M-RoPE its cells are all at its start
    n_owned = state.runtime.context.seq_n_cells(slot.id, owned_only=True)
    if slot.copy is None and n_owned != n_owned_cells(slot):
        yield f"{name} owns {n_owned} cells, its books say {n_owned_cells(slot)}"
    for context, pool in zip(state.runtime.contexts(), ("pool", "draft's pool"), strict=False):
        last = context.seq_pos_max(slot.id)
        n_in_pool = 0 if last is None else last + 1
        came_from_file = pool != "pool" and n_in_pool == 0 and slot.is_idle  # which has nothing of a draft's
        if n_in_pool != n_expected and not came_from_file and not ends_in_image:
            yield f"{name}: the {pool} has {n_in_pool} positions, its token list says {n_expected}"
    if slot.phase not in (_BETWEEN_PASSES if slot.copy is None else _PHASES_OF_COPIES[slot.copy.step]):
        yield f"{name} is between two passes, copy in flight: {slot.copy}"
    if (slot.job is None) != slot.is_idle:
        yield f"{name}: job {slot.job is not None}"
    is_in_file_only = slot.on_disk is not None and slot.on_disk.step is DiskStep.STORED
    if (has_state and not is_in_file_only) != (slot.transfer.state_bytes > 0):
        yield f"{name} holds {slot.transfer.state_bytes} bytes of state"
    if len(slot.tokens) > slot.n_ctx:
        yield f"{name} has {len(slot.tokens)} tokens, its context is {slot.n_ctx}"
    if slot.phase is SlotPhase.PROCESSING_PROMPT:
        prompt = slot.active_job.to_process
        if len(slot.tokens) >= len(prompt) or slot.tokens != prompt[: len(slot.tokens)]:
            yield f"{name}: its {len(slot.tokens)} tokens are not the beginning of its prompt of {len(prompt)}"


@contextmanager
def broken_after_passes(patch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Check every engine after each of its passes; the list gets what did not hold first."""
    broken: list[str] = []
    publish = Engine._publish

    def check_and_publish(engine: Engine, state: EngineState, dispatcher: Dispatcher) -> None:
        if not broken:
            broken.extend(f"pass {state.n_passes}: {text}" for text in broken_invariants(state, dispatcher))
        publish(engine, state, dispatcher)

    patch.setattr(Engine, "_publish", check_and_publish)
    yield broken


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail at the end if anything did not hold after a pass, or a pass failed."""
    with monkeypatch.context() as patch, broken_after_passes(patch) as broken:
        yield
    failed = [record.getMessage() for record in caplog.records if record.exc_info]
    assert not broken, broken
    assert not failed, failed
