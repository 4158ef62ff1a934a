"""Slots, a pool and transfers without a model: cells are token lists, and a copy completes when the test says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.slots.slot import Job, SharedPrompt, Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.engine.transfers.transfer import Bytes, Transfer, TransferRefusedError
from pyggml_server.native.adapters import Adapters
from pyggml_server.native.task import Task, TaskStats
from pyggml_server.planner.policy import Policy

N_STATE_BYTES = 100


class FakeTask:
    """A task of which only its end matters."""

    params_json = b"{}"
    n_predict = -1
    n_keep = n_discard = 0
    embeds = is_whole = False
    parent = None
    adapters = Adapters()

    def __init__(self) -> None:
        self.pauses_us: list[int] = []

    def stats(self) -> TaskStats:
        return TaskStats(0, 0, 0, 0, 0, 0, has_next_token=True, has_new_line=False)

    def note_shift(self, n_keep: int, n_discard: int) -> None:
        assert n_keep >= 0 < n_discard

    def add_pause(self, pause_us: int) -> None:
        assert pause_us >= 0
        self.pauses_us.append(pause_us)

    def close(self) -> None:
        return None


class FakeTransfer:
    """Copies nothing, at once; refuses what it is told to. `log` gets what it is asked to do, in order."""

    frees_on_completion = False
    keeps_buffer = False
    is_staged = prefetches = False
    prefetch_left_bytes = 0

    def __init__(self, log: list[str] | None = None) -> None:
        self.buffer_bytes = 0
        self.state_bytes = 0
        self.refuses = False
        self.is_closed = False
        self.log = [] if log is None else log
        self.in_flight: str | None = None

    @property
    def pinned_bytes(self) -> int:
        return self.buffer_bytes if self.keeps_buffer else 0

    def save(self, seq_id: int, *, may_block: bool = False) -> None:  # noqa: ARG002
        if self.refuses:
            raise TransferRefusedError(f"no memory for {seq_id}")
        self.log.append(f"save {seq_id}")
        self.buffer_bytes = self.state_bytes = N_STATE_BYTES
        self._issue(f"save {seq_id}")

    def prefetch(self, n_bytes: int | None = None) -> bool:
        if self.prefetches:
            self.prefetch_left_bytes = self._left_after(n_bytes)
            self.log.append("prefetch" if n_bytes is None or n_bytes >= self.state_bytes else f"prefetch {n_bytes}")
            self._issue("prefetch")
        return self.prefetches

    def _left_after(self, n_bytes: int | None) -> int:
        return 0 if n_bytes is None else max(0, (self.prefetch_left_bytes or self.state_bytes) - n_bytes)

    def restore(self, seq_id: int) -> None:
        if self.refuses:
            raise TransferRefusedError(f"no cells for {seq_id}")
        self.log.append(f"restore {seq_id}")
        self._issue(f"restore {seq_id}")

    def parts(self) -> list[Bytes]:
        return [np.zeros(self.state_bytes, dtype=np.uint8)]

    def blank(self, sizes_bytes: Sequence[int]) -> list[Bytes]:
        self.buffer_bytes = self.state_bytes = sum(sizes_bytes)
        return self.parts()

    def is_done(self) -> bool:
        return self.in_flight is None

    def wait(self) -> None:
        if self.in_flight is not None:
            self.log.append(f"wait for {self.in_flight}")
            self.complete()

    def complete(self) -> None:
        """The copy has ended."""
        if self.in_flight is not None and self.in_flight.startswith("restore"):
            self.state_bytes = 0
            self.buffer_bytes = self.buffer_bytes if self.keeps_buffer else 0
        self.in_flight = None

    def drop(self) -> None:
        self.wait()
        self.buffer_bytes = self.state_bytes = 0

    def leave(self) -> None:
        self.drop()

    def close(self) -> None:
        self.drop()
        self.is_closed = True

    def _issue(self, what: str) -> None:
        self.in_flight = what
        self.complete()


class HeldTransfer(FakeTransfer):
    """Copies in flight until `complete` or somebody who waits. Its cells come free when a park completes."""

    frees_on_completion = True
    keeps_buffer = True

    def _issue(self, what: str) -> None:
        self.in_flight = what


class StagedTransfer(HeldTransfer):
    """Its cells come free when a park is issued, and are taken when its state has come back to staging memory."""

    frees_on_completion = False
    is_staged = prefetches = True


class FakePool:
    """Cells as the slots' token lists have them."""

    n_cells = 64
    n_cells_found = None

    def __init__(self, log: list[str] | None = None) -> None:
        self.log = [] if log is None else log

    def release_cells(self, slot: Slot) -> None:
        self.log.append(f"release {slot.id}")

    def clear(self, slot: Slot) -> None:
        self.release_cells(slot)
        slot.tokens.clear()

    def n_cells_used(self) -> int:
        return 0

    def cut_prompt(self, slot: Slot, n_cells: int) -> None:
        self.log.append(f"cut {n_cells} of {slot.id}")

    def share_prompt(self, source: Slot, target: Slot, n_cells: int) -> None:
        self.log.append(f"share {n_cells} of {source.id} with {target.id}")

    def shift(self, slot: Slot, n_keep: int, n_discard: int) -> None:
        assert n_keep + n_discard < len(slot.tokens)
        self.log.append(f"shift {slot.id}")

    def note_refusal(self, n_tokens: int) -> None:
        self.log.append(f"no room for {n_tokens}")

    def forget_refusal(self) -> None:
        pass


def held(state: EngineState, slot_id: int) -> FakeTransfer:
    """The slot's transfer, as the fake that it is."""
    return cast(FakeTransfer, state.slot(slot_id).transfer)


def generating_state(transfers: Sequence[Transfer], log: list[str] | None = None) -> EngineState:
    """One generating slot of three tokens for each transfer; the tasks' ids are 10, 11, ..."""
    slots = []
    for slot_id, transfer in enumerate(transfers):
        slot = Slot(slot_id, 64, transfer, tokens=[1, 2, 3])
        slot.job = Job(slot_id + 10, cast(Task, FakeTask()), order=slot_id, prompt=[1, 2])
        for phase in (SlotPhase.STARTED, SlotPhase.PROCESSING_PROMPT, SlotPhase.DONE_PROMPT, SlotPhase.GENERATING):
            slot.state.move(phase)
        slots.append(slot)
    return EngineState(cast(Any, None), cast(Any, FakePool(log)), slots, Policy(), ram_limit_bytes=1000)


def family(log: list[str], n: int = 3) -> list[Slot]:
    """Generating slots that share a prompt of two tokens."""
    state = generating_state([FakeTransfer(log) for _ in range(n)])
    shared = SharedPrompt(2, list(state.slots), is_cut_in_park=True)
    for slot in state.slots:
        slot.shared = shared
        slot.active_job.has_siblings = True
    return state.slots
