"""Devices that cannot, or only promise to: chats are parked all the same, and the log says how and why."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyggml_server.messages import Finished

from tests.engine.harness import EngineHarness
from tests.native.engine_on_simdev.chats import chat, engine, is_at_rest
from tests.native.simdev_library import SimdevLibrary

FORCED: dict[str, Any] = {"every_n_tokens": 7, "rotate_s": 0.0}
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="pyggml_server")


def said(caplog: pytest.LogCaptureFixture, start: str) -> list[str]:
    return [text for record in caplog.records if (text := record.getMessage()).startswith(start)]


def run_two_chats(harness: EngineHarness) -> int:
    """Two chats to their end, parked on the way; how many parks that were."""
    chats = [harness.start(**chat(i, 40, n_prompt=100)) for i in range(2)]
    harness.wait(*chats)
    assert all(isinstance(running.last(), Finished) for running in chats)
    assert is_at_rest(harness)
    return harness.engine.snapshot().counters.preemptions_total


@pytest.mark.parametrize(
    ("knob", "reason"),
    [("event_query", "has no event query"), ("events", "has no events"), ("async", "does not copy asynchronously")],
)
def test_a_device_without_what_it_takes_parks_synchronously(
    knob: str, reason: str, model: Path, simdev: SimdevLibrary, caplog: pytest.LogCaptureFixture
) -> None:
    simdev.set(knob, 0)
    with engine(model, **FORCED) as harness:
        assert run_two_chats(harness) >= 8
    (banner,) = said(caplog, "preemption:")
    assert banner.startswith("preemption: on, synchronous copies to pageable memory (")
    assert reason in banner


def test_partial_offload_parks_synchronously(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    with engine(model, "-ngl", "1", **FORCED) as harness:
        assert run_two_chats(harness) >= 8
    (banner,) = said(caplog, "preemption:")
    assert "synchronous copies to pageable memory (this context cannot copy asynchronously: a part of" in banner


@pytest.mark.parametrize("knob", ["pin", "pin_fails_above_bytes"])
def test_pageable_at_the_probe_parks_synchronously_with_one_warning(
    knob: str, model: Path, simdev: SimdevLibrary, caplog: pytest.LogCaptureFixture
) -> None:
    simdev.set(knob, 0)
    with engine(model, **FORCED) as harness:
        assert run_two_chats(harness) >= 8
    (banner,) = said(caplog, "preemption:")
    assert "synchronous copies to pageable memory (there is no pinned memory)" in banner
    assert len(said(caplog, "the pool of pinned memory stays at 0 of")) == 1
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


def test_pageable_only_at_size_makes_each_such_slot_park_synchronously_with_one_warning(
    model: Path, simdev: SimdevLibrary, caplog: pytest.LogCaptureFixture
) -> None:
    simdev.set("pin_fails_above_bytes", MIB)
    with engine(model, n_ctx=1024, ram_mib=16, **FORCED) as harness:  # pieces of 1 MiB
        assert harness.engine.snapshot().counters.pinned_pool_bytes == MIB
        chats = [harness.start(**chat(i, 30, n_prompt=n_prompt)) for i, n_prompt in enumerate((8, 600))]
        harness.wait(*chats)
        assert all(isinstance(running.last(), Finished) for running in chats)
        assert is_at_rest(harness)
    (banner,) = said(caplog, "preemption:")
    assert "asynchronous copies, pinned memory offered (1.0 MiB locked)" in banner
    assert len([text for text in said(caplog, "slot ") if "parks synchronously from now on" in text]) == 1


def test_staging_memory_that_does_not_come_is_named_with_its_flag(model: Path) -> None:
    n_mib = 1 << 24
    wanted = f"or --preempt-staging, which is {n_mib} MiB on each device"
    with pytest.raises(RuntimeError, match=wanted), engine(model, staging_mib=n_mib):
        pass


def test_the_first_park_says_what_its_buffer_is(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    with engine(model, **FORCED) as harness:
        run_two_chats(harness)
    (told,) = [text for text in said(caplog, "slot ") if "the first park" in text]
    assert told.endswith(" MiB, pinned")


def test_fences_are_recorded_only_while_there_are_transfers(model: Path, simdev: SimdevLibrary) -> None:
    n_records = []
    kinds: list[dict[str, Any]] = [{"use_async": False}, {"ram_mib": 0}, {}]
    for options in kinds:
        with engine(model, **options) as harness:
            simdev.clear_trace()
            harness.run(**chat(0, 10))
            n_records.append(simdev.trace_kinds()["record"])
    assert n_records[:2] == [0, 0]
    assert n_records[2] >= 10
