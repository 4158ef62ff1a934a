"""pyggml-server whose parks copy nothing: chats leave the batch and come back as they do with copies.

The control of the measurement: what joins and leaves cost by themselves. A parked chat keeps its cells, so the pool
must have room for everybody. PYGGML_BENCH_COPY_POLLS says how many polls a copy that is none takes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from unittest.mock import patch

from pyggml_server.engine import startup
from pyggml_server.engine.slots.kv_pool import KvPool
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.engine.transfers.choice import TransferChoice
from pyggml_server.engine.transfers.transfer import Bytes
from pyggml_server.main import main
from pyggml_server.native.runtime import Runtime

_N_POLLS = int(os.environ.get("PYGGML_BENCH_COPY_POLLS", "1"))


class NoCopy:
    """A transfer that is done after so many polls and has moved nothing."""

    frees_on_completion = True
    is_staged = False
    prefetch_left_bytes = 0
    buffer_bytes = 0
    pinned_bytes = 0

    def __init__(self) -> None:
        self.state_bytes = 0
        self._n_polls_left = 0

    def save(self, seq_id: int, *, may_block: bool = False) -> None:  # noqa: ARG002
        self.state_bytes = 1 + seq_id  # anything but "no state"
        self._n_polls_left = _N_POLLS

    def prefetch(self, _n_bytes: int | None = None, /) -> bool:
        return False

    def restore(self, seq_id: int) -> None:
        self.state_bytes = 0 * seq_id
        self._n_polls_left = _N_POLLS

    def parts(self) -> list[Bytes]:
        return []

    def blank(self, _sizes_bytes: Sequence[int]) -> list[Bytes]:
        return []

    def is_done(self) -> bool:
        self._n_polls_left -= 1
        return self._n_polls_left < 0

    def wait(self) -> None:
        self._n_polls_left = 0

    def drop(self) -> None:
        self.state_bytes = 0

    def leave(self) -> None:
        self.drop()

    def close(self) -> None:
        self.drop()


def choose_no_copies(_runtime: Runtime, *_options: object) -> TransferChoice:
    return TransferChoice(lambda _slot_id: NoCopy(), "no copies at all: a control measurement")


def keep_parked_cells(release_cells: Callable[[KvPool, Slot], None]) -> Callable[[KvPool, Slot], None]:
    """`Pool.release_cells`, but that of a slot on its way out or in does nothing."""

    def release(pool: KvPool, slot: Slot) -> None:
        if slot.phase not in (SlotPhase.PREEMPTING, SlotPhase.PREEMPTED, SlotPhase.RESTORING):
            release_cells(pool, slot)

    return release


if __name__ == "__main__":
    keeping = patch.object(KvPool, "release_cells", keep_parked_cells(KvPool.release_cells))
    with keeping, patch.object(startup, "choose_transfers", choose_no_copies):
        sys.exit(main())
