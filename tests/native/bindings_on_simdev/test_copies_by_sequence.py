"""A context refuses what touches the cells of the copy in flight, not of those that its transfer made before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyggml import Context, Transfer, TransferInFlightError
from tests.native.bindings_on_simdev.conftest import MakeContext, go_on, hold
from tests.native.simdev_library import SimdevLibrary


@pytest.fixture
def staged(make_context: MakeContext, simdev: SimdevLibrary) -> Iterator[Context]:
    """A context with staging memory and 20 cells of sequence 0; what is held is released before anybody waits."""
    made = make_context(n_bytes_staging=1 << 20)
    go_on(made, 0, 0, 20)
    yield made
    simdev.release()


def test_a_save_that_frees_its_cells_leaves_no_sequence_in_flight(staged: Context, simdev: SimdevLibrary) -> None:
    transfer = Transfer(staged, is_staged=True)
    transfer.save(0)
    transfer.wait()
    transfer.restore(2)
    transfer.wait()
    hold(simdev, transfer)
    assert (transfer.freed_on_issue, transfer.done()) == (True, False)
    for seq_id in (2, 0):
        staged.seq_remove(seq_id)
    assert staged.n_cells_used() == 0
    simdev.release()
    transfer.close()


def test_a_prefetch_leaves_no_sequence_in_flight(staged: Context, simdev: SimdevLibrary) -> None:
    transfer = Transfer(staged, is_staged=True)
    transfer.save(0)
    transfer.wait()
    transfer.restore(2)
    transfer.wait()
    simdev.set("hold", 1)
    assert transfer.prefetch()
    simdev.set("hold", 0)
    assert not transfer.done()
    staged.seq_remove(2)
    assert staged.seq_is_empty(2)
    simdev.release()
    transfer.close()


def test_the_last_copy_of_a_transfer_counts(staged: Context, simdev: SimdevLibrary) -> None:
    transfer = Transfer(staged, is_staged=True)
    transfer.save(0)
    transfer.wait()
    for seq_id in (1, 2):
        simdev.set("hold", 1)
        transfer.restore(seq_id)
        simdev.set("hold", 0)
        with pytest.raises(TransferInFlightError, match=f"sequence {seq_id} has a copy in flight"):
            staged.seq_remove(seq_id)
        simdev.release()
        transfer.wait()
    staged.seq_remove(1)
    transfer.close()
