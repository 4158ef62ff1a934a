"""`--preempt-ram` on a real model: no park passes it, however empty the pool is."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyggml_server.config import PreemptOptions

from tests.engine.harness import EngineHarness
from tests.engine.invariants import watched


def test_a_turn_for_a_parked_chat_is_refused_when_the_budget_holds_one_state(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Two chats of 250 cells fill the pool; one of them is parked (5.6 MiB), which leaves the pool half empty.
    argv = ["-m", str(smollm2_path), "-c", "512", "-np", "2", "--kv-unified", "-fa", "on", "-t", "1"]
    options = PreemptOptions(ram_mib=7, rotate_s=0.001)
    with watched(monkeypatch, caplog), EngineHarness(argv, options) as harness:
        chats = [harness.start(prompt=[100 + i] * 230, n_predict=40, ignore_eos=True) for i in range(2)]
        harness.wait(*chats)
        counters = harness.engine.snapshot().counters
    assert [chat.result()["tokens_predicted"] for chat in chats] == [40, 40]
    assert counters.preemptions_total == 1
    assert counters.rotations_total == 0
