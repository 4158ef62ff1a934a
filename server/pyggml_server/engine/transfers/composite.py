"""A transfer made of others, which it forwards to: one base for all that are. Engine thread."""

from __future__ import annotations

from collections.abc import Sequence

from pyggml_server.engine.transfers.transfer import Bytes, Transfer


class CompositeTransfer(Transfer):
    """Its parts as one: their bytes together, done when all are. Says nothing of what happens where one refuses."""

    @property
    def _parts(self) -> Sequence[Transfer]:
        raise NotImplementedError(f"{type(self).__name__} does not say what it is made of")

    @property
    def frees_on_completion(self) -> bool:
        return any(part.frees_on_completion for part in self._parts)

    @property
    def is_staged(self) -> bool:
        return any(part.is_staged for part in self._parts)

    @property
    def buffer_bytes(self) -> int:
        return sum(part.buffer_bytes for part in self._parts)

    @property
    def pinned_bytes(self) -> int:
        return sum(part.pinned_bytes for part in self._parts)

    @property
    def state_bytes(self) -> int:
        return sum(part.state_bytes for part in self._parts)

    @property
    def prefetch_left_bytes(self) -> int:
        return sum(part.prefetch_left_bytes for part in self._parts)

    def save(self, seq_id: int, *, may_block: bool = False) -> None:
        for part in self._parts:
            part.save(seq_id, may_block=may_block)

    def prefetch(self, n_bytes: int | None = None, /) -> bool:
        """True if any part is on its way: the others take their own when restored."""
        issued = [part.prefetch(n_bytes) for part in self._parts]
        return any(issued)

    def restore(self, seq_id: int) -> None:
        for part in self._parts:
            part.restore(seq_id)

    def parts(self) -> list[Bytes]:
        return [part for transfer in self._parts for part in transfer.parts()]

    def is_done(self) -> bool:
        return all(part.is_done() for part in self._parts)

    def wait(self) -> None:
        for part in self._parts:
            part.wait()

    def drop(self) -> None:
        for part in self._parts:
            part.drop()

    def leave(self) -> None:
        for part in self._parts:
            part.leave()

    def close(self) -> None:
        for part in self._parts:
            part.close()
