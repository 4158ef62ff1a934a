"""A slot whose park buffer turns out pageable: it gives its asynchronous transfer up and parks synchronously from then
on. Engine thread.

The last transfer to go takes the fences with it that the context records after each decode.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyggml_server.engine.async_transfer import PageableBufferError
from pyggml_server.engine.transfer import Transfer

log = logging.getLogger(__name__)


class FallbackTransfer:
    """The `first` transfer, until a save of it finds pageable memory; then the one that `make_next` makes, for good."""

    def __init__(self, slot_id: int, first: Transfer, make_next: Callable[[], Transfer]) -> None:
        self._slot_id = slot_id
        self._transfer = first
        self._make_next = make_next

    @property
    def frees_on_landing(self) -> bool:
        return self._transfer.frees_on_landing

    @property
    def buffer_bytes(self) -> int:
        return self._transfer.buffer_bytes

    @property
    def pinned_bytes(self) -> int:
        return self._transfer.pinned_bytes

    @property
    def state_bytes(self) -> int:
        return self._transfer.state_bytes

    def save(self, seq_id: int) -> None:
        """Issue the copy out; blocks for it after a fallback."""
        try:
            self._transfer.save(seq_id)
        except PageableBufferError as error:
            log.warning("slot %d: parks synchronously from now on: %s", self._slot_id, error)
            self._transfer.close()
            self._transfer = self._make_next()
            self._transfer.save(seq_id)

    def restore(self, seq_id: int) -> None:
        self._transfer.restore(seq_id)

    def is_done(self) -> bool:
        return self._transfer.is_done()

    def wait(self) -> None:
        self._transfer.wait()

    def drop(self) -> None:
        self._transfer.drop()

    def close(self) -> None:
        self._transfer.close()
