"""The copies of slots that are parked and restored as one, since they share their prompt's cells. Engine thread.

A unit is what `shared_prompt.unit_of` gives, the keeper first; without a shared prompt it is one slot. The keeper's
state has the prompt, the others' only what follows it. Issues copies and waits for none.
"""

from __future__ import annotations

from pyggml_server.engine.slots import shared_prompt
from pyggml_server.engine.slots.kv_pool import KvPool
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.transfers.transfer import TransferRefusedError


def save(pool: KvPool, unit: list[Slot], *, may_block: bool = False) -> None:
    """Issue the copies of a unit out. Raises TransferRefusedError; no slot has changed then."""
    keeper, *others = unit
    shared = keeper.shared
    cut: list[Slot] = []
    try:
        keeper.transfer.save(keeper.id, may_block=may_block)
        for slot in others:
            assert shared is not None
            pool.cut_prompt(slot, shared.n_cells)
            cut.append(slot)
            slot.transfer.save(slot.id, may_block=may_block)
    except TransferRefusedError:
        for slot in unit:
            slot.transfer.drop()
        for slot in cut:
            assert shared is not None
            pool.share_prompt(keeper, slot, shared.n_cells)
        raise
    if not others:
        shared_prompt.leave(keeper)  # it comes back with a prompt of its own
    elif shared is not None:
        shared.keeper = keeper
        for slot in [holder for holder in shared.holders if holder not in unit]:
            shared_prompt.leave(slot)  # its cells stay, and the unit gets new ones


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
