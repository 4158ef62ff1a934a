"""What tests do to the copies of prompts and files: hold them in flight, hold the helper thread, look on."""

from __future__ import annotations

import threading
from typing import ClassVar

import pytest
from pyggml_server.engine.background.bounce_buffer import BounceBuffer

from tests.engine.harness import TIMEOUT_S
from tests.native.simdev_library import SimdevLibrary


class HeldCopies:
    """Once `hold` was called, the next copy of that direction is in flight until `release`: a save really, but for the
    reading of the cells; a restore as far as one can see by asking, since whoever decodes waits for a real one."""

    def __init__(self, simdev: SimdevLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
        self._simdev = simdev
        self._held: set[str] = set()
        self._is_issued = threading.Event()
        self._unseen: BounceBuffer | None = None
        self.n_saves = self.n_restores = 0
        save, restore, is_done = BounceBuffer.save, BounceBuffer.restore, BounceBuffer.is_done

        def watched_save(bounce: BounceBuffer, seq_id: int, sizes_bytes: list[int]) -> None:
            is_held = "save" in self._held
            simdev.set("hold", int(is_held))
            try:
                save(bounce, seq_id, sizes_bytes)
            finally:
                simdev.set("hold", 0)
            simdev.release(max(0, simdev.n_held - 1))
            self.n_saves += 1
            self._note("save")

        def watched_restore(bounce: BounceBuffer, seq_id: int) -> None:
            restore(bounce, seq_id)
            self.n_restores += 1
            self._unseen = bounce if "restore" in self._held else None
            self._note("restore")

        monkeypatch.setattr(BounceBuffer, "save", watched_save)
        monkeypatch.setattr(BounceBuffer, "restore", watched_restore)
        monkeypatch.setattr(BounceBuffer, "is_done", lambda bounce: bounce is not self._unseen and is_done(bounce))

    def hold(self, direction: str) -> None:
        self._held.add(direction)

    def wait_for_one(self) -> None:
        """Until a copy that is held was issued."""
        assert self._is_issued.wait(TIMEOUT_S), "nothing was copied"

    def release(self) -> None:
        self._unseen = None
        self._simdev.release()

    def _note(self, direction: str) -> None:
        if direction in self._held:
            self._held.discard(direction)
            self._is_issued.set()


class HeldHelper:
    """The helper thread stands still before it copies something in one direction, until `go_on`."""

    made: ClassVar[list[HeldHelper]] = []

    def __init__(self, owner: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._arrived, self._may_go = threading.Event(), threading.Event()
        self.made.append(self)
        work = getattr(owner, name)

        def held(*arguments: object) -> object:
            self._arrived.set()
            assert self._may_go.wait(TIMEOUT_S)
            return work(*arguments)

        monkeypatch.setattr(owner, name, held)

    def wait_until_there(self) -> None:
        assert self._arrived.wait(TIMEOUT_S), "the helper was not asked"

    def go_on(self) -> None:
        self._may_go.set()


def release_helpers() -> None:
    """Let every helper thread go on that a test has held."""
    while HeldHelper.made:
        HeldHelper.made.pop().go_on()
