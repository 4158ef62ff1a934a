"""Cells that the answers of one `n > 1` request share: those of their prompt, which was processed once. Engine thread.

Those who share and still run are parked and restored as one: the first of them, the keeper, takes everything along, the
others only what follows the prompt. So the prompt is copied once, and lies in the pool once before and after. Nothing
here decides who is parked or ended; `apply` and `endings` ask.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.engine.transfers.transfer import TransferRefusedError
from pyggml_server.messages import Began

if TYPE_CHECKING:
    from pyggml_server.engine.lifecycle.engine_state import EngineState
    from pyggml_server.engine.slots.kv_pool import KvPool
    from pyggml_server.engine.slots.slot import Slot


@dataclass(slots=True, eq=False)
class SharedPrompt:
    """The first `n_cells` tokens of every holder.

    holders         slots whose sequences have these cells, or will have them again; an idle slot's too, which has the
                    prompt of an answer that ended. At least two, or nobody shares.
    is_cut_in_park  the memory can keep what follows the prompt without the prompt. If not, each is parked by itself,
                    with a prompt of its own from then on.
    keeper          while they are parked: whose state has the prompt.
    """

    n_cells: int
    holders: list[Slot]
    is_cut_in_park: bool
    keeper: Slot | None = field(default=None)

    def answering(self) -> list[Slot]:
        """Those that still work on the request, the first one first."""
        return [slot for slot in self.holders if slot.job is not None and slot.job.has_siblings]


def hand_over(state: EngineState, parent: Slot) -> None:
    """The parent's prompt is in its cells: its children, who waited for it, share them and go on by themselves."""
    children, parent.children = parent.children, []
    if not children:
        return
    for slot in children:
        job = slot.active_job
        state.pool.copy(parent, slot)
        job.n_kept, job.n_prompt_processed = parent.active_job.n_kept, parent.active_job.n_prompt_processed
        slot.resident_since_s = state.clock()
        slot.state.move(SlotPhase.DONE_PROMPT)
        slot.state.move(SlotPhase.GENERATING)
        if job.task.is_streamed:
            state.outbox.append(Began(job.task_id))
    leave(parent)
    shared = SharedPrompt(len(parent.tokens), [parent, *children], state.runtime.can_cut_prompts)
    for slot in shared.holders:
        slot.shared = shared
        slot.active_job.has_siblings = True


def leave(slot: Slot) -> None:
    """What the slot holds from now on it shares with nobody."""
    shared, slot.shared = slot.shared, None
    if shared is None:
        return
    shared.holders.remove(slot)
    if len(shared.holders) == 1:
        leave(shared.holders[0])


def n_owned_cells(slot: Slot) -> int:
    """Cells that nobody else has: what comes free when the slot gives its own back."""
    if not slot.counts_cells:
        return 0
    shared = slot.shared
    is_shared = shared is not None and any(other.counts_cells for other in shared.holders if other is not slot)
    return len(slot.tokens) - (shared.n_cells if shared is not None and is_shared else 0)


def unit_of(slot: Slot) -> list[Slot]:
    """The slots that are parked and restored together with this one, the keeper first."""
    shared = slot.shared
    if shared is None or slot.job is None or not slot.job.has_siblings or not shared.is_cut_in_park:
        return [slot]
    return sorted(shared.answering(), key=lambda member: member is not shared.keeper)


def dependents(slot: Slot) -> list[Slot]:
    """Slots that cannot go on without what this one has: its prompt, in its state or still to come."""
    if slot.children:
        return list(slot.children)
    if slot.shared is not None and slot.shared.keeper is slot and slot.state.is_preempted:
        return [other for other in slot.shared.answering() if other is not slot]
    return []


def save(pool: KvPool, unit: list[Slot]) -> None:
    """Issue the copies of a unit out. Raises TransferRefusedError; nobody has moved then."""
    keeper, *others = unit
    shared = keeper.shared
    cut: list[Slot] = []
    try:
        keeper.transfer.save(keeper.id)
        for slot in others:
            assert shared is not None
            pool.cut_prompt(slot, shared.n_cells)
            cut.append(slot)
            slot.transfer.save(slot.id)
    except TransferRefusedError:
        for slot in unit:
            slot.transfer.drop()
        for slot in cut:
            assert shared is not None
            pool.share_prompt(keeper, slot, shared.n_cells)
        raise
    if not others:
        leave(keeper)  # it comes back with a prompt of its own
    elif shared is not None:
        shared.keeper = keeper
        for slot in [holder for holder in shared.holders if holder not in unit]:
            leave(slot)  # its cells stay, and theirs come back beside them


def has_room(pool: KvPool, slots: Iterable[Slot], n_cells: int, *, giving_up: Slot | None = None) -> bool:
    """Whether so many cells are free and promised to nobody, once a slot has given up its own."""
    n_given_up = 0 if giving_up is None else n_owned_cells(giving_up)
    return pool.n_cells_used() - n_given_up + n_promised_cells(slots) + n_cells <= pool.n_cells


def n_promised_cells(slots: Iterable[Slot]) -> int:
    """Cells that those of these slots will take whose states are on their way to staging memory."""
    promised = [slot for slot in slots if slot.is_promised_cells]
    prompts = {id(slot.shared): slot.shared.n_cells for slot in promised if slot.shared is not None}
    n_own = sum(len(slot.tokens) - (slot.shared.n_cells if slot.shared is not None else 0) for slot in promised)
    return n_own + sum(prompts.values())


def prefetch(unit: list[Slot], n_bytes: int | None = None) -> bool:
    """Issue the states' way to where they are put into cells from: of each so many bytes more, or all. False if one of
    them cannot go there: those that can are put into cells from there all the same. Raises TransferRefusedError."""
    return all(slot.transfer.prefetch(n_bytes) for slot in unit)


def restore(pool: KvPool, unit: list[Slot]) -> None:
    """Allocate the cells of a unit and issue the copies in. Raises TransferRefusedError; all states are kept then, and
    the caller gives back what cells there are."""
    keeper, *others = unit
    shared = keeper.shared
    back: list[Slot] = []
    try:
        for slot in unit:
            slot.transfer.restore(slot.id)
            back.append(slot)
        for slot in others:
            assert shared is not None
            pool.share_prompt(keeper, slot, shared.n_cells)
    except TransferRefusedError:
        for slot in back:
            slot.transfer.wait()
            slot.transfer.save(slot.id)  # its copy was used up
        raise
    if shared is not None:
        shared.keeper = None
