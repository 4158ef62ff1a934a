"""A slot's state in two contexts, the target's and the draft's: it leaves and comes back as one. Engine thread.

What the drafter itself remembers of a sequence stays with the sequence's id, which a parked slot keeps: it need not
be saved.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyggml_server.engine.transfers.composite import CompositeTransfer
from pyggml_server.engine.transfers.transfer import Bytes, Transfer, TransferRefusedError


def as_one(transfers: Sequence[Transfer]) -> Transfer:
    """The transfer of a slot, from those of the target's context and, where there is one, of the draft's."""
    target, *drafts = transfers
    return TargetAndDraft(target, *drafts) if drafts else target


class TargetAndDraft(CompositeTransfer):
    """A Transfer made of one for each context. Where one of them refuses, neither has moved."""

    def __init__(self, target: Transfer, draft: Transfer) -> None:
        self._target = target
        self._draft = draft

    @property
    def _parts(self) -> Sequence[Transfer]:
        return self._target, self._draft

    def save(self, seq_id: int, *, may_block: bool = False) -> None:
        """Issue both copies out."""
        self._target.save(seq_id, may_block=may_block)
        try:
            self._draft.save(seq_id, may_block=may_block)
        except TransferRefusedError:
            self._target.drop()
            raise

    def blank(self, sizes_bytes: Sequence[int]) -> list[Bytes]:
        """Host memory for both."""
        target, draft = sizes_bytes
        parts = self._target.blank([target])
        try:
            return parts + self._draft.blank([draft])
        except TransferRefusedError:
            parts.clear()
            self._target.drop()
            raise

    def restore(self, seq_id: int) -> None:
        """Allocate cells in both contexts and issue both copies in."""
        self._target.restore(seq_id)
        try:
            self._draft.restore(seq_id)
        except TransferRefusedError:
            self._target.wait()
            self._target.save(seq_id)  # its own copy was used up; the caller gives the cells back
            raise
