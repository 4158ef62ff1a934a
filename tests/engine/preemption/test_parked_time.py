"""Time spent parked is nobody's generating time: not in the answer, and not in the request's time limit."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.startup import build_state

from tests.engine.harness import EngineHarness

# a new line after each letter, since the limit is looked at there; 1 ms is over before the second one
LIMITED = {
    "prompt": "One letter per line:",
    "grammar": 'root ::= ("a" "\\n")+',
    "n_predict": 40,
    "t_max_predict_ms": 1,
    "temperature": 0.0,
    "cache_prompt": False,
}
STRETCH = 1e6


def argv(model: Path) -> list[str]:
    return ["-m", str(model), "-c", "256", "-np", "2", "--kv-unified", "-t", "1"]


def test_a_time_limit_ends_a_text_that_was_never_parked(smollm2_path: Path) -> None:
    with EngineHarness(argv(smollm2_path)) as harness:
        result = harness.run(**LIMITED).result()
    assert result["stop_type"] == "limit"
    assert int(str(result["tokens_predicted"])) < 40


def test_however_long_it_was_parked_a_chat_has_its_whole_time_left(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build_with_fast_clock(*arguments: object, **options: object) -> EngineState:
        state = build_state(*arguments, **options)  # type: ignore[arg-type]
        state.clock = (
            lambda: time.monotonic() * STRETCH
        )  # what is parked for a millisecond is parked for a quarter hour
        return state

    monkeypatch.setattr("pyggml_server.engine.loop.build_state", build_with_fast_clock)
    with EngineHarness(argv(smollm2_path), PreemptOptions(every_n_tokens=1)) as harness:
        running = harness.run(**LIMITED)
        result = running.result()
    assert running.notices()[:2] == ["preempted", "resumed"]
    assert result["tokens_predicted"] == 40
    timings = result["timings"]
    assert isinstance(timings, dict)
    assert timings["predicted_ms"] == 0.001  # the least that there is: less was left after the parks' quarter hours
