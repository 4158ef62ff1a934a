"""Live slots to the planner's View. Reads, never changes. Engine thread."""

from __future__ import annotations

from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption.pinning import largest_running_bytes
from pyggml_server.engine.slots.draft_limit import longest_draft
from pyggml_server.engine.slots.images import next_image
from pyggml_server.engine.slots.shared_prompt import n_owned_cells, n_promised_cells, unit_of
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.planner.view import PARKABLE_PHASES, GroupView, SlotView, View


def observe(state: EngineState, refused_parks: frozenset[int] = frozenset(), *, with_sizes: bool = False) -> View:
    """The pool and its slots at this moment.

    Asking for the size of a state walks its cells, so residents' sizes are left at 0 unless they are asked for: they
    matter only to a plan with parks where the budget is not ample.
    """
    return View(
        now_s=state.clock(),
        n_cells=state.pool.n_cells,
        n_cells_used=state.pool.n_cells_used() + n_promised_cells(state.slots),
        slots=tuple(_slot_view(state, slot, with_sizes) for slot in state.slots),
        n_batch_tokens=state.runtime.n_batch,
        ram_limit_bytes=state.ram_limit_bytes,
        ram_held_bytes=state.ram_held_bytes(),
        ahead_bytes=largest_running_bytes(state) if state.disk.limit_bytes else 0,
        disk_limit_bytes=state.disk.usable_bytes(state.clock()),
        disk_held_bytes=state.disk_held_bytes(),
        is_disk_busy=bool(state.disk.abandoned),
        refused_parks=refused_parks,
        n_cells_found=state.pool.n_cells_found,
        groups=_groups(state),
    )


def _slot_view(state: EngineState, slot: Slot, with_sizes: bool) -> SlotView:
    job = slot.job
    phase = slot.phase
    n_tokens = len(slot.tokens)
    if job is None:
        return _idle_view(slot)
    n_prompt_left = _prompt_left(slot)
    image = slot.image_step if n_prompt_left else None
    return SlotView(
        slot_id=slot.id,
        phase=phase,
        n_cells=n_tokens,
        n_cells_owned=n_owned_cells(slot),
        n_step_cells=_n_step_cells(state, slot, n_prompt_left) if image is None else job.images[image].n_tokens,
        is_media_step=image is not None,
        n_decode_step_cells=1 + state.runtime.n_draft_max,
        n_prompt_left=n_prompt_left,
        n_kept_cells=job.n_kept if phase is SlotPhase.STARTED else 0,
        request_order=job.order,
        priority=job.priority,
        started_at_s=slot.started_at_s,
        resident_since_s=slot.resident_since_s,
        parked_at_s=slot.parked_at_s,
        park_order=slot.park_order,
        last_used_s=slot.last_used_s,
        parked_for_request=job.parked_for_request,
        n_tokens_since_park=job.n_tokens_since_park,
        has_run_since_restore=job.has_run_since_restore,
        has_pending_shift=slot.has_pending_shift,
        has_transfer_in_flight=slot.copy is not None or (slot.on_disk is not None and slot.on_disk.is_under_way),
        is_on_disk=slot.on_disk is not None and slot.on_disk.is_in_file,
        was_on_disk=job.was_on_disk,
        frees_on_completion=slot.transfer.frees_on_completion,
        state_bytes=_state_bytes(state, slot, with_sizes),
        buffer_bytes=slot.transfer.buffer_bytes,
        needs_refill=job.needs_refill,
        group_id=_group_id(slot),
        is_held=any(member.active_job.is_held for member in unit_of(slot)),
        is_park_refusal_known=job.is_park_refusal_known,
        is_rotation_refusal_known=job.is_rotation_refusal_known,
    )


def _n_step_cells(state: EngineState, slot: Slot, n_prompt_left: int) -> int:
    """What its next decode takes at most."""
    if n_prompt_left:
        images, n_done = slot.active_job.images, slot.n_prompt_done
        image = next_image(images, n_done)
        return min(state.runtime.n_batch, n_prompt_left if image is None else images[image].start - n_done)
    return 1 + longest_draft(slot, state.runtime.n_draft_max)


def _idle_view(slot: Slot) -> SlotView:
    """Its cells come free when a save of them completes; whatever else is copied, they can be dropped after it."""
    return SlotView(
        slot.id,
        slot.phase,
        n_cells=len(slot.tokens),
        n_cells_owned=n_owned_cells(slot),
        last_used_s=slot.last_used_s,
        has_transfer_in_flight=slot.background_job is not None,
        frees_on_completion=True,
    )


def _groups(state: EngineState) -> tuple[GroupView, ...]:
    units = {_group_id(slot): unit_of(slot) for slot in state.slots}
    return tuple(_group_view(group_id, unit) for group_id, unit in units.items() if group_id is not None)


def _group_id(slot: Slot) -> int | None:
    """The same for all that are parked together; None for a slot that is parked by itself."""
    unit = unit_of(slot)
    return min(member.id for member in unit) if len(unit) > 1 else None


def _group_view(group_id: int, unit: list[Slot]) -> GroupView:
    shared = unit[0].shared
    assert shared is not None
    n_cells = shared.n_cells + sum(len(slot.tokens) - shared.n_cells for slot in unit)
    is_held = any(slot.counts_cells for slot in unit)
    is_prompt_kept = any(slot.counts_cells for slot in shared.holders if slot not in unit)
    n_owned = n_cells - (shared.n_cells if is_prompt_kept else 0)
    return GroupView(group_id, n_cells, n_owned if is_held else 0)


def _prompt_left(slot: Slot) -> int:
    """Prompt tokens that are not in the cache yet; 0 once it generates."""
    job = slot.active_job
    phase = slot.state.former or slot.phase
    if phase is SlotPhase.STARTED:
        return job.n_prompt - job.n_kept
    if phase is SlotPhase.PROCESSING_PROMPT:
        return len(job.to_process) - len(slot.tokens)
    return 0


def _state_bytes(state: EngineState, slot: Slot, with_sizes: bool) -> int:
    if slot.transfer.state_bytes:
        return slot.transfer.state_bytes
    if slot.on_disk is not None:
        return slot.on_disk.file.n_bytes
    if with_sizes and slot.phase in PARKABLE_PHASES and not slot.has_pending_shift:  # such a one is not parked
        return state.pool.state_bytes(slot)
    return 0
