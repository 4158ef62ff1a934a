"""Asynchronous parks on a real GPU: `pytest -m gpu`. The model is that of the other tests, all of it on the device."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
from pyggml_server.messages import Cancelled

from pyggml.ffi import lib
from pyggml.model import start_backend
from tests.engine.harness import Running
from tests.native.engine_on_simdev.chats import chat, engine, is_at_rest, n_finished
from tests.native.engine_on_simdev.parks import RowWatch

pytestmark = pytest.mark.gpu
N_CANCELS = 60


@pytest.fixture(scope="module", autouse=True)
def gpu() -> None:
    """Skips everything where no GPU is loaded."""
    start_backend()
    if not lib.llama_supports_gpu_offload():
        pytest.skip("there is no GPU here")


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="pyggml_server")


def banner(caplog: pytest.LogCaptureFixture) -> str:
    return next(text for record in caplog.records if (text := record.getMessage()).startswith("preemption:"))


def test_forced_parks_are_asynchronous_and_bring_back_the_same_rows(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = RowWatch(monkeypatch)
    with engine(smollm2_path, n_ctx=2048, every_n_tokens=7) as harness:
        chats = [harness.start(**chat(i, 60, n_prompt=200)) for i in range(4)]
        harness.wait(*chats)
        assert n_finished(chats) == 4
        assert is_at_rest(harness)
    assert "on, asynchronous copies" in banner(caplog)
    assert rows.n_compared >= 4 * (60 // 7 - 1)
    assert rows.differing == []


def test_chats_that_overflow_the_pool_all_finish(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = RowWatch(monkeypatch)
    with engine(smollm2_path, n_ctx=1024, rotate_s=0) as harness:
        chats = [harness.start(**chat(i, 300, n_prompt=100)) for i in range(4)]
        harness.wait(*chats)
        assert n_finished(chats) == 4
        assert harness.engine.snapshot().counters.restores_total >= 1
        assert is_at_rest(harness)
    assert rows.differing == []


def test_cancels_among_parks_leave_no_slot_stuck_and_no_memory_held(smollm2_path: Path) -> None:
    rng = random.Random(4)
    with engine(smollm2_path, n_ctx=2048, every_n_tokens=3) as harness:
        everyone: list[Running] = []
        live: list[Running] = []
        for number in range(N_CANCELS):
            live.append(harness.start(**chat(number, 200, stream=True)))
            everyone.append(live[-1])
            harness.wait_for_tokens(live[0], rng.randrange(1, 12))
            if len(live) > 4:
                harness.cancel(live.pop(rng.randrange(len(live))))
        for running in live:
            harness.cancel(running)
        harness.wait(*everyone)
        assert all(isinstance(running.last(), Cancelled) for running in everyone)
        assert is_at_rest(harness)
