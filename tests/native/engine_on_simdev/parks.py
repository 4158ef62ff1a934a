"""What tests do to the parks of a running engine: hold them in flight, and compare rows before and after."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import copies, unit_copies
from pyggml_server.engine.slots.copy_in_flight import CopyInFlight
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.transfers.async_transfer import AsyncTransfer

from pyggml import rows_by_position
from tests.engine.harness import TIMEOUT_S
from tests.native.simdev_library import SimdevLibrary


class HeldParks:
    """Holds the copy of the next park of each slot in `slot_ids` until `release`."""

    def __init__(self, simdev: SimdevLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slot_ids: set[int] = set()
        self.n_held = 0
        self._simdev = simdev
        save = AsyncTransfer.save

        def held_save(transfer: AsyncTransfer, seq_id: int, **how: bool) -> None:
            is_held = seq_id in self.slot_ids
            self.slot_ids.discard(seq_id)
            simdev.set("hold", int(is_held))
            try:
                save(transfer, seq_id, **how)
            finally:
                simdev.set("hold", 0)
            self.n_held += is_held

        monkeypatch.setattr(AsyncTransfer, "save", held_save)

    def release(self) -> None:
        self._simdev.release()


class HeldPrefetches:
    """Holds the next way to staging memory of each slot in `slot_ids` until `release`; `wait_for_one` returns once one
    was issued."""

    def __init__(self, simdev: SimdevLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slot_ids: set[int] = set()
        self._simdev = simdev
        self._is_issued = threading.Event()
        prefetch = unit_copies.prefetch

        def held_prefetch(unit: list[Slot], *n_bytes: int) -> bool:
            is_held = any(slot.id in self.slot_ids for slot in unit)
            self.slot_ids -= {slot.id for slot in unit}
            simdev.set("hold", int(is_held))
            try:
                is_issued = prefetch(unit, *n_bytes)
            finally:
                simdev.set("hold", 0)
            if is_held and is_issued:
                self._is_issued.set()
            return is_issued

        monkeypatch.setattr(unit_copies, "prefetch", held_prefetch)

    def wait_for_one(self) -> None:
        assert self._is_issued.wait(TIMEOUT_S), "nothing went to staging memory"

    def release(self) -> None:
        self._simdev.release()


class HeldRestores:
    """No restore is seen to be done by asking, only by waiting; `wait_for_one` returns once one was issued."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._is_issued = threading.Event()
        is_done, restore = AsyncTransfer.is_done, AsyncTransfer.restore

        def noted_restore(transfer: AsyncTransfer, seq_id: int) -> None:
            restore(transfer, seq_id)
            self._is_issued.set()

        monkeypatch.setattr(AsyncTransfer, "restore", noted_restore)
        monkeypatch.setattr(AsyncTransfer, "is_done", lambda self: not self._is_restoring and is_done(self))

    def wait_for_one(self) -> None:
        assert self._is_issued.wait(TIMEOUT_S), "nothing was restored"


class RowWatch:
    """`n_compared` parks came back; `differing` are the slots whose rows were others then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n_compared = 0
        self.differing: list[int] = []
        self._before: dict[int, Any] = {}
        resume = copies.resume
        save = AsyncTransfer.save

        def watched_save(transfer: AsyncTransfer, seq_id: int, **how: bool) -> None:
            before = rows_by_position(transfer._sizes.save_state(seq_id))  # type: ignore[attr-defined]
            save(transfer, seq_id, **how)
            self._before[seq_id] = before

        def watched_resume(state: EngineState, slot: Slot, copy: CopyInFlight) -> None:
            resume(state, slot, copy)
            if slot.id in self._before:
                self._compare(slot.id, rows_by_position(state.runtime.context.save_state(slot.id)))

        monkeypatch.setattr(AsyncTransfer, "save", watched_save)
        monkeypatch.setattr(copies, "resume", watched_resume)

    def _compare(self, slot_id: int, after: Any) -> None:
        self.n_compared += 1
        if self._before.pop(slot_id) != after:
            self.differing.append(slot_id)
