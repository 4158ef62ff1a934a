"""Turns on a real model: nobody who waits is kept out by a chat that never ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.messages import Cancelled

from tests.engine.harness import EngineHarness
from tests.engine.invariants import watched


@pytest.mark.parametrize(("ram_mib", "is_kept"), [(64, True), (1, False)])
def test_a_prompt_gets_its_turn_from_an_endless_chat_that_shifts_its_context(
    ram_mib: int,
    is_kept: bool,
    narrow_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The chat never has fewer than 120 of the 256 cells, so the prompt of 200 fits with it at no time. Its state has
    2.6 MiB or more: a budget of one cannot hold it, and it is computed again."""
    argv = ["-m", str(narrow_path), "-c", "256", "-np", "2", "--kv-unified", "-fa", "on", "-t", "1", "--context-shift"]
    with watched(monkeypatch, caplog), EngineHarness(argv, PreemptOptions(rotate_s=0.1, ram_mib=ram_mib)) as harness:
        endless = harness.start(prompt=[100] * 120, n_predict=-1, ignore_eos=True, stream=True, n_keep=-1)
        harness.wait_for_tokens(endless, 1)
        waits = harness.run(prompt=[200] * 200, n_predict=4, ignore_eos=True)
        counters = harness.engine.snapshot().counters
        harness.cancel(endless)
        harness.wait(endless)
    assert waits.result()["tokens_predicted"] == 4
    assert counters.rotations_total >= 1
    assert (counters.preemptions_total > 0, counters.recomputes_total > 0) == (is_kept, not is_kept)
    assert "preempted" in endless.notices()
    assert isinstance(endless.last(), Cancelled)
