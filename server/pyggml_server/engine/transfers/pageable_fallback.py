"""A slot without pinned memory for its state: it parks synchronously, into pageable memory. Engine thread.

For good where no more memory can be pinned and what is locked is too little: the slot gives its asynchronous
transfer up, and the last one to go takes the fences with it that the context records after each decode. For one park
where the pool is as large as it may be and has no gap of that size at the moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from pyggml_server.engine.transfers.composite import CompositeTransfer
from pyggml_server.engine.transfers.park_memory import NoGapError, PageableBufferError
from pyggml_server.engine.transfers.transfer import Bytes, Transfer

log = logging.getLogger(__name__)


class FallbackTransfer(CompositeTransfer):
    """The `first` transfer; where it has no memory for a park, a synchronous one that `make_next` makes."""

    def __init__(self, slot_id: int, first: Transfer, make_next: Callable[[], Transfer]) -> None:
        self._slot_id = slot_id
        self._first = self._transfer = first
        self._make_next = make_next
        self._next: Transfer | None = None

    @property
    def _parts(self) -> Sequence[Transfer]:
        return (self._transfer,)

    def save(self, seq_id: int, *, may_block: bool = False) -> None:
        """Issue the copy out; blocks for it after a fallback."""
        try:
            self._transfer.save(seq_id, may_block=may_block)
            return
        except PageableBufferError as error:
            log.warning("slot %d: parks synchronously from now on: %s", self._slot_id, error)
            self._first.close()
            self._first = self._transfer = self._synchronous()
        except NoGapError as error:
            log.info("slot %d: parks synchronously this once: %s", self._slot_id, error)
            self._transfer = self._synchronous()
        self._transfer.save(seq_id, may_block=may_block)

    def blank(self, sizes_bytes: Sequence[int]) -> list[Bytes]:
        try:
            return self._transfer.blank(sizes_bytes)
        except (PageableBufferError, NoGapError) as error:
            log.info("slot %d: its state goes to pageable memory: %s", self._slot_id, error)
            self._transfer = self._synchronous()
        return self._transfer.blank(sizes_bytes)

    def restore(self, seq_id: int) -> None:
        self._transfer.restore(seq_id)
        self._come_back()

    def drop(self) -> None:
        self._transfer.drop()
        self._come_back()

    def leave(self) -> None:
        self._transfer.leave()
        self._come_back()

    def close(self) -> None:
        self._transfer.close()
        self._first.close()

    def _synchronous(self) -> Transfer:
        if self._next is None:
            self._next = self._make_next()
        return self._next

    def _come_back(self) -> None:
        """What parked this once has no more state: the next park is asynchronous again."""
        if self._transfer is not self._first:
            self._transfer = self._first
