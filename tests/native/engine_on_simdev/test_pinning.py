"""Memory for the parks of a running engine is pinned before anybody asks, then a piece a pass at most: counted in
simdev's trace, never timed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyggml_server.engine import loop, passes
from pyggml_server.engine.admission.dispatch import Dispatcher
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption.apply import Applier
from pyggml_server.engine.transfers.park_memory import NoGapError, NotPinnedYetError, ParkMemory
from pyggml_server.native.runtime import PinnedRange

from tests.native.engine_on_simdev.chats import chat, engine, is_at_rest, n_finished
from tests.native.engine_on_simdev.parks import RowWatch
from tests.native.simdev_library import SimdevLibrary

KIB = 1024
BYTES_PER_CELL = 3 * 2 * 192 * 2  # 3 layers' keys and values, f16


class LockedByPass:
    """How much each pass of the engine pinned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n_bytes: list[int] = []
        run_pass = passes.run_pass

        def watched(state: EngineState, dispatcher: Dispatcher, applier: Applier) -> bool:
            before = state.memory.pinned_bytes
            try:
                return run_pass(state, dispatcher, applier)
            finally:
                self.n_bytes.append(state.memory.pinned_bytes - before)

        monkeypatch.setattr(loop, "run_pass", watched)


class RefusedTakes:
    """The pool refuses memory to the next `n` parks, in this way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: type[Exception], n: int) -> None:
        self.n = n
        take, offer = ParkMemory.take, ParkMemory.offer

        def refuse_or_take(memory: ParkMemory, n_bytes: int, **how: bool) -> PinnedRange:
            if self.n == 0:
                return take(memory, n_bytes, **how)
            self.n -= 1
            raise error("the test wants it so")

        monkeypatch.setattr(ParkMemory, "take", refuse_or_take)
        monkeypatch.setattr(ParkMemory, "offer", lambda memory, n: None if self.n else offer(memory, n))


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="pyggml_server")


def test_nothing_is_pinned_between_the_first_request_and_the_last_of_a_steady_run(
    model: Path, simdev: SimdevLibrary, caplog: pytest.LogCaptureFixture
) -> None:
    with engine(model, every_n_tokens=7) as harness:
        assert harness.engine.snapshot().counters.pinned_pool_bytes > 512 * BYTES_PER_CELL  # of the whole pool
        simdev.set("pageable_above_bytes", 0)  # memory that the device's own allocator locks is none from now on
        simdev.clear_trace()
        chats = [harness.start(**chat(i, 60)) for i in range(4)]
        harness.wait(*chats)
        kinds = simdev.trace_kinds()
        assert harness.engine.snapshot().counters.preemptions_total >= 4 * (60 // 7 - 1)
    assert (kinds["pin"], kinds["unpin"]) == (0, 0)
    assert "synchronously" not in caplog.text


def test_parks_of_chats_that_grew_lock_pieces_only_and_one_a_pass_at_most(
    model: Path, simdev: SimdevLibrary, rows: RowWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = LockedByPass(monkeypatch)
    with engine(model, ram_mib=2, rotate_s=0) as harness:
        assert harness.engine.snapshot().counters.pinned_pool_bytes == 512 * KIB  # a quarter, in pieces of 128 KiB
        simdev.clear_trace()
        chats = [harness.start(**chat(i, 200, n_prompt=60)) for i in range(4)]
        harness.wait(*chats)
        assert n_finished(chats) == 4
        counters = harness.engine.snapshot().counters
        assert counters.preemptions_total >= 2
        assert counters.preempt_refusals_total == 0
        assert 512 * KIB < counters.pinned_pool_bytes <= 2048 * KIB
        pins = [entry["bytes"] for entry in simdev.trace() if entry["kind"] == "pin"]
        assert is_at_rest(harness)
    assert set(pins) == {128 * KIB}
    assert set(locked.n_bytes) == {0, 128 * KIB}
    assert sum(locked.n_bytes) == sum(pins)
    assert rows.differing == []


@pytest.mark.parametrize("staging_mib", [0, 16])
def test_no_copy_of_a_park_or_restore_crosses_the_border_of_a_piece(
    staging_mib: int, model: Path, simdev: SimdevLibrary
) -> None:
    simdev.clear_trace()
    with engine(model, every_n_tokens=20, ram_mib=1, staging_mib=staging_mib) as harness:  # pieces of 64 KiB
        harness.run(**chat(0, 50, n_prompt=150))
        trace = simdev.trace()
        tally = harness.engine.snapshot().counters
    pieces = {entry["host_address"] for entry in trace if entry["kind"] == "pin"}
    assert all(address % (64 * KIB) == 0 for address in pieces)
    copies = [e for e in trace if e["kind"] in ("get", "set") and e["host_address"] // (64 * KIB) * 64 * KIB in pieces]
    for entry in copies:
        row_bytes = entry["bytes"] // entry["n_rows"]
        span = (entry["n_rows"] - 1) * entry["stride_host_bytes"] + row_bytes
        assert entry["host_address"] // (64 * KIB) == (entry["host_address"] + span - 1) // (64 * KIB), entry
    for kind, n_bytes in (("get", tally.parked_bytes_total), ("set", tally.restored_bytes_total)):
        n_copied = sum(entry["bytes"] for entry in copies if entry["kind"] == kind)
        assert 0.9 * n_bytes < n_copied <= n_bytes
        assert n_bytes > 2 * 3 * 64 * KIB  # two states, each of several pieces


def test_a_park_for_which_there_is_no_gap_is_synchronous_and_the_next_one_is_not(
    model: Path, rows: RowWatch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with engine(model) as harness:
        unforced = harness.run(**chat(0, 60)).text()
    refused = RefusedTakes(monkeypatch, NoGapError, 2)
    with engine(model, every_n_tokens=10) as harness:
        assert harness.run(**chat(0, 60)).text() == unforced
        assert harness.engine.snapshot().counters.preemptions_total == 5
        assert is_at_rest(harness)
    assert refused.n == 0
    assert caplog.text.count("slot 3: parks synchronously this once") == 2
    assert (rows.n_compared, rows.differing) == (3, [])  # it watches the asynchronous ones


def test_a_park_that_comes_before_its_memory_is_put_off_and_counts_as_no_refusal(
    model: Path, rows: RowWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = RefusedTakes(monkeypatch, NotPinnedYetError, 3)
    with engine(model, every_n_tokens=10) as harness:
        running = harness.run(**chat(0, 60))
        assert running.result()["tokens_predicted"] == 60
        counters = harness.engine.snapshot().counters
        assert (counters.preemptions_total, counters.preempt_refusals_total) == (5, 0)  # after 13, 23, 33, 43 and 53
    assert refused.n == 0
    assert rows.differing == []


def test_all_pinned_memory_is_given_back_with_its_context(model: Path, simdev: SimdevLibrary) -> None:
    simdev.clear_trace()
    for _ in range(2):
        with engine(model, every_n_tokens=10, ram_mib=2) as harness:
            harness.run(**chat(0, 30))
    kinds = simdev.trace_kinds()
    assert kinds["pin"] == kinds["unpin"] >= 8
