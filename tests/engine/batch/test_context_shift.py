"""Context shift with preemption on a real model: a full slot shifts while others run, are parked and come back."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyggml_server.config import PreemptOptions

from tests.engine.harness import EngineHarness
from tests.engine.invariants import watched


@pytest.mark.parametrize("every_n_tokens", [0, 7])
def test_two_chats_that_shift_in_a_pool_for_one_both_finish(
    every_n_tokens: int, narrow_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    argv = ["-m", str(narrow_path), "-c", "256", "-np", "2", "--kv-unified", "-fa", "on", "-t", "1", "--context-shift"]
    options = PreemptOptions(every_n_tokens=every_n_tokens, rotate_s=0)
    with watched(monkeypatch, caplog), EngineHarness(argv, options) as harness:
        chats = [harness.start(prompt=[100 + i] * 120, n_predict=190, ignore_eos=True) for i in range(2)]
        harness.wait(*chats)
        counters = harness.engine.snapshot().counters
    assert [chat.result()["tokens_predicted"] for chat in chats] == [190, 190]
    assert any(chat.result()["truncated"] for chat in chats)
    assert counters.preemptions_total > 0
