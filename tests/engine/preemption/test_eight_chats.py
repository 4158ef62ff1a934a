"""Eight chats of mixed lengths on a pool that holds three of them, with host memory for all, for one, and for none."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.published import Counters

from tests.engine.harness import EngineHarness, Running
from tests.engine.invariants import watched

#: (tokens of the prompt, tokens to generate): 60 to 130 cells each, about 800 together.
LENGTHS = [(20, 80), (60, 50), (10, 50), (90, 40), (30, 100), (50, 60), (15, 70), (70, 45)]
POOL = ["-c", "320", "-np", "8", "--kv-unified", "-fa", "on", "-t", "1"]


def run_eight(model: Path, options: PreemptOptions) -> tuple[list[Running], Counters]:
    with EngineHarness(["-m", str(model), *POOL], options) as harness:
        chats = [
            harness.start(prompt=[100 + i] * n_prompt, n_predict=n_predict, ignore_eos=True, cache_prompt=False)
            for i, (n_prompt, n_predict) in enumerate(LENGTHS)
        ]
        harness.wait(*chats)
        counters = harness.engine.snapshot().counters
    assert all(harness.n_endings[task_id] == 1 for chat in chats for task_id in chat.task_ids)
    return chats, counters


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(PreemptOptions(), id="default budget"),
        pytest.param(PreemptOptions(rotate_s=0.2), id="default budget, turns after 0.2 s"),
        pytest.param(PreemptOptions(ram_mib=3), id="one state"),
        pytest.param(PreemptOptions(ram_mib=1), id="less than one state"),
    ],
)
def test_all_eight_finish(
    options: PreemptOptions, narrow_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A state of 130 cells has 2.9 MiB."""
    with watched(monkeypatch, caplog):
        chats, counters = run_eight(narrow_path, options)
    assert [chat.result()["tokens_predicted"] for chat in chats] == [n_predict for _, n_predict in LENGTHS]
    assert counters.preemptions_total + counters.recomputes_total >= 1
    assert counters.preemptions_total == counters.restores_total
    assert counters.recomputes_total == 0 or options.ram_mib is not None
    assert counters.preempt_ram_bytes == counters.requests_failed_total == 0


def test_without_host_memory_they_end_with_the_context_error_as_in_llama_server(narrow_path: Path) -> None:
    """Compared with llama-server itself in tests/e2e: whoever has a slot when the pool is full ends."""
    chats, counters = run_eight(narrow_path, PreemptOptions(ram_mib=0))
    errors = [error["message"] for chat in chats if (error := chat.error())]
    assert len(errors) >= 4
    assert set(errors) == {"Context size has been exceeded."}
    assert counters.requests_failed_total == len(errors)
    assert counters.preemptions_total == counters.recomputes_total == 0
