"""Chats that the budget cannot hold: they are computed again, and every one of them gets to its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.messages import Finished

from tests.engine.harness import EngineHarness
from tests.engine.invariants import watched


def argv(model: Path, *more: str) -> list[str]:
    return ["-m", str(model), "-c", "512", "-np", "4", "--kv-unified", "-fa", "on", "-t", "1", *more]


def body(i: int, n_prompt: int, n_predict: int) -> dict[str, object]:
    return {"prompt": [100 + i] * n_prompt, "n_predict": n_predict, "ignore_eos": True, "cache_prompt": False}


def test_chats_of_which_the_budget_holds_none_all_finish(
    narrow_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A state of 128 cells has 2.8 MiB, the budget is 1: every park is refused."""
    options = PreemptOptions(ram_mib=1)
    with watched(monkeypatch, caplog), EngineHarness(argv(narrow_path), options) as harness:
        chats = [harness.start(**body(i, 20, 150)) for i in range(4)]
        harness.wait(*chats)
        counters = harness.engine.snapshot().counters
    assert [chat.result()["tokens_predicted"] for chat in chats] == [150] * 4
    assert counters.recomputes_total >= 1
    assert counters.preempt_refusals_total >= 1
    assert counters.preemptions_total == counters.preempt_ram_bytes == 0
    notices = [notice for chat in chats for notice in chat.notices()]
    assert notices.count("preempted") == notices.count("resumed") == counters.recomputes_total


def test_a_prompt_that_is_dropped_half_way_is_timed_as_one_prompt(
    narrow_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """250 tokens run while a prompt of 300 comes in by 32 at a time: at 512 cells it is the smaller one and leaves."""
    options = PreemptOptions(ram_mib=1, rotate_s=0)
    with watched(monkeypatch, caplog), EngineHarness(argv(narrow_path, "-b", "32", "-ub", "32"), options) as harness:
        running = harness.start(**body(0, 250, 40), stream=True)
        harness.wait_for_tokens(running, 1)
        dropped = harness.start(**body(1, 300, 4))
        harness.wait(running, dropped)
        counters = harness.engine.snapshot().counters
    assert counters.recomputes_total == 1
    assert dropped.notices() == ["preempted", "resumed"]
    timings = dropped.result()["timings"]
    assert isinstance(timings, dict)
    assert (timings["prompt_n"], timings["predicted_n"]) == (300, 4)


def test_a_dropped_chat_that_is_cancelled_leaves_nothing_behind(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with watched(monkeypatch, caplog), EngineHarness(argv(smollm2_path), PreemptOptions(ram_mib=1)) as harness:
        long_one = harness.start(**body(0, 300, 180), stream=True)
        harness.wait_for_tokens(long_one, 1)
        dropped = harness.start(**body(1, 150, 180), stream=True)
        harness.wait_for_notice(dropped, "preempted")
        harness.cancel(dropped)
        harness.cancel(long_one)
        harness.wait(dropped, long_one)
        assert not any(isinstance(chat.last(), Finished) for chat in (dropped, long_one))
        assert harness.run(**body(2, 400, 4)).result()["tokens_predicted"] == 4
