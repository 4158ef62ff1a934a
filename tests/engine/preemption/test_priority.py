"""Classes on a real model: a better one takes the place of a lower one, and gets a free slot before it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.messages import Cancelled

from tests.engine.harness import EngineHarness
from tests.engine.invariants import watched

LONG_CHAT = {"prompt": [100] * 120, "n_predict": -1, "ignore_eos": True, "stream": True, "n_keep": -1}
#: It fits with the long chat at no time.
PROMPT = {"prompt": [200] * 200, "n_predict": 4, "ignore_eos": True}


def server_argv(model: Path, *flags: str) -> list[str]:
    size = ["-c", "256", "-np", "2", "--kv-unified", "-fa", "on", "-t", "1"]
    return ["-m", str(model), *size, "--context-shift", *flags]


@pytest.mark.parametrize(("chat", "prompt"), [(1, 0), (0, -1)], ids=["lower chat", "better prompt"])
def test_a_request_takes_the_place_of_the_last_resident_of_a_lower_class(
    chat: int, prompt: int, narrow_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without turns and ageing a prompt of the same class would wait for ever."""
    options = PreemptOptions(rotate_s=0, priority_age_s=0)
    with watched(monkeypatch, caplog), EngineHarness(server_argv(narrow_path), options) as harness:
        long_chat = harness.start(**LONG_CHAT, priority=chat)
        harness.wait_for_tokens(long_chat, 1)
        served = harness.run(**PROMPT, priority=prompt)
        harness.wait_for_tokens(long_chat, long_chat.n_tokens() + 1)  # it is back, and goes on
        harness.cancel(long_chat)
        harness.wait(long_chat)
    assert served.result()["tokens_predicted"] == 4
    assert long_chat.notices()[:2] == ["preempted", "resumed"]
    assert isinstance(long_chat.last(), Cancelled)


@pytest.mark.parametrize(("age_s", "first"), [(0.0, "urgent"), (1e-9, "batch")], ids=["no ageing", "ageing"])
def test_requests_in_line_for_a_slot_get_it_by_class_and_by_age(age_s: float, first: str, narrow_path: Path) -> None:
    argv = ["-m", str(narrow_path), "-c", "256", "-np", "1", "-fa", "on", "-t", "1"]
    short = {"prompt": [200] * 5, "n_predict": 3, "ignore_eos": True}
    with EngineHarness(argv, PreemptOptions(priority_age_s=age_s)) as harness:
        busy = harness.start(**LONG_CHAT)
        harness.wait_for_tokens(busy, 1)
        in_line = {"batch": harness.start(**short, priority=1), "urgent": harness.start(**short)}
        harness.cancel(busy)
        harness.wait(busy, *in_line.values())
    assert next(iter(harness.n_endings)) == busy.task_ids[0]
    assert list(harness.n_endings)[1:] == [in_line[name].task_ids[0] for name in sorted(in_line, key=first.__ne__)]
