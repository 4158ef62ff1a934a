"""Where prompts and slots' files are copied while others decode, what is said of it, and how much memory it takes."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.engine.background import memory
from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.startup import build_state
from pyggml_server.native.runtime import Runtime

from tests.engine.fake_device import MIB, N_CELL_BYTES, N_HEAD_BYTES, Device, FakeRuntime

SLOT_BYTES = 512 * N_CELL_BYTES + N_HEAD_BYTES


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def build(device: Device, *, has_cache: bool = True, has_files: bool = False, **options: Any) -> EngineState:
    runtime = FakeRuntime(device)
    runtime.has_prompt_cache = has_cache
    wanted = PreemptOptions(**{"staging_mib": 0, "ram_mib": 32, **options})
    return build_state(cast(Runtime, runtime), wanted, has_slot_files=has_files)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records]
    return [text for text in texts if text.startswith(("prompt cache:", "slot files:"))]


@pytest.mark.parametrize("ram_mib", [0, 32])
def test_it_is_there_whether_chats_can_be_parked_or_not(ram_mib: int, caplog: pytest.LogCaptureFixture) -> None:
    device = Device()
    state = build(device, ram_mib=ram_mib)
    assert state.background is not None
    assert said(caplog) == [
        "prompt cache: asynchronous copies through 8.5 MiB of pinned memory, up to 8.5 MiB when needed"
    ]
    assert state.background.n_bytes == sum(pool.pinned_bytes for pool in device.pools[-2:]) >= 2 * SLOT_BYTES
    endings.close_transfers(state)
    assert (device.n_transfers, all(pool.is_closed for pool in device.pools)) == (0, True)


def test_without_parks_no_transfer_exists_while_nothing_is_copied() -> None:
    device = Device()
    build(device, ram_mib=0)
    assert device.n_transfers == 0
    build(device)
    assert device.n_transfers == 2 + 2


@pytest.mark.parametrize(
    ("has_cache", "has_files", "what"), [(True, True, "prompt cache"), (False, True, "slot files")]
)
def test_slot_files_need_it_without_a_prompt_cache_too(
    has_cache: bool, has_files: bool, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert build(Device(), has_cache=has_cache, has_files=has_files).background is not None
    assert [line.split(":")[0] for line in said(caplog)] == [what]


def test_nothing_is_locked_or_said_where_there_is_nothing_to_copy(caplog: pytest.LogCaptureFixture) -> None:
    device = Device()
    assert build(device, has_cache=False, ram_mib=0).background is None
    assert (said(caplog), device.pools) == ([], [])


@pytest.mark.parametrize("ram_mib", [0, 32])
@pytest.mark.parametrize(
    ("device", "options", "why"),
    [
        (Device(), {"use_async": False}, "--no-preempt-async"),
        (Device(obstacle="its events cannot be queried"), {}, "its events cannot be queried"),
        (Device(locks_bytes=0), {}, "there is no pinned memory"),
    ],
)
def test_copies_are_synchronous_where_nothing_else_is_possible_and_it_is_said_why(
    device: Device, options: dict[str, Any], why: str, ram_mib: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert build(device, ram_mib=ram_mib, **options).background is None
    assert said(caplog) == [f"prompt cache: synchronous copies ({why})"]
    assert (device.n_transfers, all(pool.is_closed for pool in device.pools)) == (0, True)


def test_what_one_slot_may_hold_is_locked_when_it_is_needed_within_a_share_of_the_hosts_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "default_ram_limit_bytes", lambda: 4096 * MIB)
    assert memory.most_bytes(100) == 100
    assert memory.most_bytes(900 * MIB) == 900 * MIB
    assert memory.most_bytes(5000 * MIB) == 1024 * MIB
    monkeypatch.setattr(memory, "default_ram_limit_bytes", lambda: 0)
    assert memory.most_bytes(5000 * MIB) == memory.FIRST_BYTES
    monkeypatch.setattr(memory, "FIRST_BYTES", MIB)
    device = Device()
    monkeypatch.setattr(memory, "default_ram_limit_bytes", lambda: 4096 * MIB)
    assert build(device, ram_mib=0).background is not None
    assert [(pool.pinned_bytes, pool.limit_bytes >= SLOT_BYTES) for pool in device.pools] == [(MIB, True)] * 2


def test_what_was_locked_for_a_large_state_is_given_back_when_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FIRST_BYTES", MIB)
    state = build(Device(), ram_mib=0)
    assert state.background is not None
    n_first = state.background.n_bytes
    with state.background.out.turn():
        steps = state.background.out.room_for([SLOT_BYTES - N_HEAD_BYTES])
        for growth in steps:
            growth.wait()
        assert state.background.n_bytes > n_first
        state.background.rest()
        assert state.background.n_bytes > n_first  # somebody has the turn
    state.background.rest()
    assert state.background.n_bytes == n_first
    endings.close_transfers(state)
