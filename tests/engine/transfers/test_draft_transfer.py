"""A state in two contexts: where one of the copies is refused, neither has moved."""

from __future__ import annotations

import pytest
from pyggml_server.engine.transfers.draft_transfer import TargetAndDraft
from pyggml_server.engine.transfers.transfer import TransferRefusedError

from tests.engine.fakes import N_STATE_BYTES, FakeTransfer, HeldTransfer


def test_target_and_draft_are_counted_together() -> None:
    pair = TargetAndDraft(FakeTransfer(), FakeTransfer())
    pair.save(3)
    assert (pair.state_bytes, pair.buffer_bytes) == (2 * N_STATE_BYTES, 2 * N_STATE_BYTES)
    pair.restore(3)
    assert (pair.state_bytes, pair.buffer_bytes) == (0, 0)


def test_a_refused_draft_leaves_nothing_parked() -> None:
    target, draft = FakeTransfer(), FakeTransfer()
    draft.refuses = True
    pair = TargetAndDraft(target, draft)
    with pytest.raises(TransferRefusedError):
        pair.save(0)
    assert (target.state_bytes, pair.buffer_bytes) == (0, 0)


def test_a_refused_target_parks_no_draft() -> None:
    target, draft = FakeTransfer(), FakeTransfer()
    target.refuses = True
    with pytest.raises(TransferRefusedError):
        TargetAndDraft(target, draft).save(0)
    assert draft.state_bytes == 0


@pytest.mark.parametrize("kind", [FakeTransfer, HeldTransfer])
def test_a_restore_that_the_drafts_pool_refuses_keeps_both_states(kind: type[FakeTransfer]) -> None:
    target, draft = kind(), kind()
    pair = TargetAndDraft(target, draft)
    pair.save(0)
    pair.wait()
    draft.refuses = True
    with pytest.raises(TransferRefusedError):
        pair.restore(0)
    assert (target.state_bytes, draft.state_bytes) == (N_STATE_BYTES, N_STATE_BYTES)


def test_it_is_done_when_both_copies_are() -> None:
    target, draft = HeldTransfer(), HeldTransfer()
    pair = TargetAndDraft(target, draft)
    assert pair.frees_on_completion
    pair.save(0)
    target.complete()
    assert not pair.is_done()
    draft.complete()
    assert pair.is_done()


def test_closing_it_closes_both() -> None:
    target, draft = HeldTransfer(), HeldTransfer()
    pair = TargetAndDraft(target, draft)
    pair.save(0)
    pair.close()
    assert (target.is_closed, draft.is_closed, pair.buffer_bytes) == (True, True, 0)
