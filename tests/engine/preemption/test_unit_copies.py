"""Copies of answers that share a prompt: it leaves and comes back once; where one is refused nobody has moved."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyggml_server.engine.preemption import unit_copies
from pyggml_server.engine.slots import shared_prompt
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.transfers.transfer import TransferRefusedError

from tests.engine.fakes import family


class Cells:
    """A pool that only writes down what is done to sequences."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def cut_prompt(self, slot: Slot, n_cells: int) -> None:
        self._log.append(f"cut {n_cells} of {slot.id}")

    def share_prompt(self, source: Slot, target: Slot, n_cells: int) -> None:
        self._log.append(f"share {n_cells} of {source.id} with {target.id}")


def refuse(slot: Slot) -> None:
    cast(Any, slot.transfer).refuses = True


def test_a_unit_takes_the_prompt_along_once_and_gets_it_back() -> None:
    log: list[str] = []
    unit = shared_prompt.unit_of(family(log)[1])
    unit_copies.save(cast(Any, Cells(log)), unit)
    assert log == ["save 0", "cut 2 of 1", "save 1", "cut 2 of 2", "save 2"]
    log.clear()
    unit_copies.restore(cast(Any, Cells(log)), unit)
    assert log == ["restore 0", "restore 1", "restore 2", "share 2 of 0 with 1", "share 2 of 0 with 2"]


@pytest.mark.parametrize("i_refused", [0, 1, 2])
def test_a_refused_park_moves_nobody_of_the_unit(i_refused: int) -> None:
    log: list[str] = []
    slots = family(log)
    refuse(slots[i_refused])
    with pytest.raises(TransferRefusedError):
        unit_copies.save(cast(Any, Cells(log)), shared_prompt.unit_of(slots[0]))
    cuts = [line.removeprefix("cut 2 of ") for line in log if line.startswith("cut")]
    shares = [line.removeprefix("share 2 of 0 with ") for line in log if line.startswith("share")]
    assert cuts == shares == [str(i) for i in range(1, i_refused + 1)]
    assert all(slot.transfer.state_bytes == 0 for slot in slots)
    assert slots[0].shared is not None
    assert slots[0].shared.keeper is None


@pytest.mark.parametrize("i_refused", [0, 1, 2])
def test_a_refused_restore_keeps_every_state_of_the_unit(i_refused: int) -> None:
    log: list[str] = []
    slots = family(log)
    unit = shared_prompt.unit_of(slots[0])
    unit_copies.save(cast(Any, Cells(log)), unit)
    n_bytes = [slot.transfer.state_bytes for slot in slots]
    refuse(slots[i_refused])
    with pytest.raises(TransferRefusedError):
        unit_copies.restore(cast(Any, Cells(log)), unit)
    assert [slot.transfer.state_bytes for slot in slots] == n_bytes
    assert slots[0].shared is not None
    assert slots[0].shared.keeper is slots[0]


def test_a_slot_that_is_parked_by_itself_shares_with_nobody_afterwards() -> None:
    log: list[str] = []
    slots = family(log, n=2)
    assert slots[0].shared is not None
    slots[0].shared.is_cut_in_park = False
    assert shared_prompt.unit_of(slots[0]) == [slots[0]]
    unit_copies.save(cast(Any, Cells(log)), [slots[0]])
    assert [slot.shared for slot in slots] == [None, None]
