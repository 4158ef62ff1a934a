"""`--preempt-ram` on a real model: no park passes it, however empty the pool is."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.engine.slots.kv_pool import KvPool
from pyggml_server.engine.slots.slot import Slot

from tests.engine.harness import EngineHarness
from tests.engine.invariants import watched


def test_a_turn_for_a_parked_chat_is_refused_when_the_budget_holds_one_state(
    narrow_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Two chats of 250 cells fill the pool; one of them is parked (5.6 MiB), which leaves the pool half empty.
    argv = ["-m", str(narrow_path), "-c", "512", "-np", "2", "--kv-unified", "-fa", "on", "-t", "1"]
    options = PreemptOptions(ram_mib=7, rotate_s=0.001)
    with watched(monkeypatch, caplog), EngineHarness(argv, options) as harness:
        chats = [harness.start(prompt=[100 + i] * 230, n_predict=40, ignore_eos=True) for i in range(2)]
        harness.wait(*chats)
        counters = harness.engine.snapshot().counters
    assert [chat.result()["tokens_predicted"] for chat in chats] == [40, 40]
    assert counters.preemptions_total == 1
    assert counters.rotations_total == 0


def test_the_size_of_a_state_is_asked_for_only_when_somebody_is_parked(
    narrow_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two chats fill nine tenths of the pool and park nobody; a third makes one of them leave."""
    asked_for: list[int] = []
    state_bytes = KvPool.state_bytes

    def count(pool: KvPool, slot: Slot) -> int:
        asked_for.append(slot.id)
        return state_bytes(pool, slot)

    monkeypatch.setattr(KvPool, "state_bytes", count)
    argv = ["-m", str(narrow_path), "-c", "512", "-np", "3", "--kv-unified", "-fa", "on", "-t", "1"]
    with EngineHarness(argv) as harness:
        chats = [harness.start(prompt=[100 + i] * 220, n_predict=20, ignore_eos=True) for i in range(2)]
        harness.wait(*chats)
        assert asked_for == []
        harness.wait(*(harness.start(prompt=[200 + i] * 240, n_predict=40, ignore_eos=True) for i in range(3)))
        n_parks = harness.engine.snapshot().counters.preemptions_total
    assert n_parks >= 1
    assert 1 <= len(asked_for) <= 3 * (n_parks + 1)
