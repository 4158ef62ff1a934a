"""A slot's state in two contexts, the target's and the draft's: it leaves and comes back as one. Engine thread.

What the drafter itself remembers of a sequence stays with the sequence's id, which a parked slot keeps: nobody has to
save it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyggml_server.engine.transfers.transfer import Transfer, TransferRefusedError


def as_one(transfers: Sequence[Transfer]) -> Transfer:
    """The transfer of a slot, from those of the target's context and, where there is one, of the draft's."""
    target, *drafts = transfers
    return TargetAndDraft(target, *drafts) if drafts else target


class TargetAndDraft:
    """A Transfer made of one for each context. Where one of them refuses, neither has moved."""

    def __init__(self, target: Transfer, draft: Transfer) -> None:
        self._target = target
        self._draft = draft

    @property
    def frees_on_completion(self) -> bool:
        return self._target.frees_on_completion or self._draft.frees_on_completion

    @property
    def buffer_bytes(self) -> int:
        return self._target.buffer_bytes + self._draft.buffer_bytes

    @property
    def pinned_bytes(self) -> int:
        return self._target.pinned_bytes + self._draft.pinned_bytes

    @property
    def state_bytes(self) -> int:
        return self._target.state_bytes + self._draft.state_bytes

    @property
    def is_staged(self) -> bool:
        return self._target.is_staged or self._draft.is_staged

    def save(self, seq_id: int) -> None:
        """Issue both copies out."""
        self._target.save(seq_id)
        try:
            self._draft.save(seq_id)
        except TransferRefusedError:
            self._target.drop()
            raise

    @property
    def prefetch_left_bytes(self) -> int:
        return self._target.prefetch_left_bytes + self._draft.prefetch_left_bytes

    def prefetch(self, n_bytes: int | None = None) -> bool:
        """Issue both states' way to staging memory. True if either is on it: the other takes its own when restored."""
        is_target_issued, is_draft_issued = self._target.prefetch(n_bytes), self._draft.prefetch(n_bytes)
        return is_target_issued or is_draft_issued

    def restore(self, seq_id: int) -> None:
        """Allocate cells in both contexts and issue both copies in."""
        self._target.restore(seq_id)
        try:
            self._draft.restore(seq_id)
        except TransferRefusedError:
            self._target.wait()
            self._target.save(seq_id)  # its own copy was used up; the caller gives the cells back
            raise

    def is_done(self) -> bool:
        return self._target.is_done() and self._draft.is_done()

    def wait(self) -> None:
        self._target.wait()
        self._draft.wait()

    def drop(self) -> None:
        self._target.drop()
        self._draft.drop()

    def close(self) -> None:
        self._target.close()
        self._draft.close()
