"""Several answers to one prompt (n > 1): its cells are computed and kept once, through parks and back; ends are shared
only by those who depend on each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.engine.slots import shared_prompt
from pyggml_server.messages import Cancelled, Finished

from tests.engine.fakes import family
from tests.engine.harness import EngineHarness, Running
from tests.engine.invariants import watched

PROMPT = "The keeper of the lighthouse wrote in his diary that"


def server_argv(model: Path, *flags: str, n_ctx: int = 512, n_slots: int = 3) -> list[str]:
    size = ["-c", str(n_ctx), "-np", str(n_slots), "--kv-unified", "-fa", "on", "-t", "1", "--no-warmup"]
    return ["-m", str(model), *size, *flags]


def answers(n: int, n_predict: int, **fields: object) -> dict[str, object]:
    body = {"prompt": PROMPT, "n": n, "n_predict": n_predict, "seed": 3, "ignore_eos": True, "cache_prompt": False}
    return {**body, **fields}


def texts(running: Running) -> list[str]:
    return [running.text(i) for i in range(len(running.task_ids))]


@pytest.fixture(scope="module")
def plain(narrow_path: Path) -> Iterator[EngineHarness]:
    with EngineHarness(server_argv(narrow_path)) as harness:
        yield harness


# -- with a model ----------------------------------------------------------------------------------------------------


def test_a_prompt_with_three_answers_is_processed_once_and_lies_in_the_pool_once(
    narrow_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with watched(monkeypatch, caplog), EngineHarness(server_argv(narrow_path)) as harness:
        running = harness.run(**answers(3, 12, prompt=[100] * 300))
        counters = harness.engine.snapshot().counters
    assert counters.prompt_tokens_total == 300
    assert counters.preemptions_total == 0  # three prompts of 300 tokens would not fit 512 cells
    for i in range(3):
        timings = running.result(i)["timings"]
        assert isinstance(timings, dict)
        assert (timings["prompt_n"], timings["predicted_n"]) == (300, 12)


def test_each_answer_has_a_sampler_of_its_own(plain: EngineHarness) -> None:
    said = texts(plain.run(**answers(3, 12, temperature=1.0)))
    assert len(set(said)) == 3
    assert texts(plain.run(**answers(3, 12, temperature=1.0))) == said


def test_answers_that_are_parked_every_seven_tokens_say_what_they_say_without(
    plain: EngineHarness, narrow_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = texts(plain.run(**answers(3, 40, temperature=0.8)))
    with (
        watched(monkeypatch, caplog),
        EngineHarness(server_argv(narrow_path), PreemptOptions(every_n_tokens=7)) as harness,
    ):
        running = harness.run(**answers(3, 40, temperature=0.8))
        counters = harness.engine.snapshot().counters
    assert texts(running) == expected
    assert counters.preemptions_total == counters.restores_total >= 3 * 5
    assert counters.preempt_ram_bytes == 0
    assert all(running.notices(i) == running.notices(0) for i in range(3))


def test_a_parked_prompt_is_copied_once(narrow_path: Path) -> None:
    def bytes_per_park(n: int) -> float:
        with EngineHarness(server_argv(narrow_path), PreemptOptions(every_n_tokens=7)) as harness:
            harness.run(**answers(n, 8, prompt=[100] * 200))
            counters = harness.engine.snapshot().counters
        assert counters.preemptions_total == n
        return counters.parked_bytes_total

    assert bytes_per_park(3) < 1.2 * bytes_per_park(1)


def test_answers_and_a_chat_that_overflow_the_pool_all_finish(
    narrow_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    argv = server_argv(narrow_path, n_ctx=256)
    with watched(monkeypatch, caplog), EngineHarness(argv) as harness:
        both = [harness.start(**answers(2, 50, prompt=[100] * 90)), harness.start(**answers(1, 60, prompt=[200] * 90))]
        harness.wait(*both)
        counters = harness.engine.snapshot().counters
    assert [running.result(i)["tokens_predicted"] for running in both for i in range(len(running.task_ids))] == [
        50,
        50,
        60,
    ]
    assert counters.preemptions_total == counters.restores_total >= 1


def test_answers_that_outgrow_the_pool_together_all_finish(
    narrow_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """100 tokens of prompt and 90 for each of three are 370 of 256 cells; each alone has 190."""
    argv = server_argv(narrow_path, n_ctx=256)
    with watched(monkeypatch, caplog), EngineHarness(argv) as harness:
        running = harness.run(**answers(3, 90, prompt=[100] * 100))
        counters = harness.engine.snapshot().counters
    assert [running.result(i)["tokens_predicted"] for i in range(3)] == [90, 90, 90]
    assert counters.preemptions_total == counters.restores_total >= 1
    assert (counters.recomputes_total, counters.preempt_ram_bytes) == (0, 0)


def test_answers_with_a_draft_share_its_cells_too(
    smollm2_path: Path, draft_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    argv = server_argv(smollm2_path, "-md", str(draft_path), "--spec-type", "draft-simple")
    with watched(monkeypatch, caplog):
        with EngineHarness(argv) as harness:
            expected = texts(harness.run(**answers(2, 24, temperature=0.8)))
        with EngineHarness(argv, PreemptOptions(every_n_tokens=9)) as harness:
            assert texts(harness.run(**answers(2, 24, temperature=0.8))) == expected
            assert harness.engine.snapshot().counters.preemptions_total >= 4


def test_a_request_waits_until_every_answer_finds_a_slot(plain: EngineHarness) -> None:
    busy = plain.start(**answers(1, 450), stream=True)
    plain.wait_for_tokens(busy, 1)
    three = plain.start(**answers(3, 4))
    one = plain.run(**answers(1, 2))  # does not wait behind it
    assert isinstance(one.last(), Finished)
    assert not three.messages
    plain.cancel(busy)
    plain.wait(three)
    assert all(isinstance(three.last(i), Finished) for i in range(3))


def test_cancelled_answers_leave_every_slot_idle_whatever_they_did(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = PreemptOptions(every_n_tokens=2)
    with watched(monkeypatch, caplog), EngineHarness(server_argv(smollm2_path), options) as harness:
        everyone = []
        for n_tokens in range(1, 9):  # before, in and after a park; those behind it are still in line
            running = [harness.start(**answers(3, 200), stream=True) for _ in range(2)]
            harness.wait_for_tokens(running[0], n_tokens)
            for request in running:
                harness.cancel(request)
            everyone += running
        harness.wait(*everyone)
        snapshot = harness.engine.snapshot()
    assert all(isinstance(request.last(i), Cancelled) for request in everyone for i in range(3))
    assert not any(slot.is_processing for slot in snapshot.slots)
    assert snapshot.counters.preempt_ram_bytes == 0


def test_answers_that_share_a_prompt_are_not_shifted(narrow_path: Path) -> None:
    # as in llama-server: a shift would move the positions of cells that the others use
    argv = server_argv(narrow_path, "--context-shift", "--kv-unified-per-slot", "128")
    with EngineHarness(argv) as harness:
        running = harness.run(**answers(2, 40, prompt=[100] * 100))
        alone = harness.run(**answers(1, 40, prompt=[100] * 100))
    for i in range(2):
        assert (running.error(i) or {})["message"] == "context shift cannot be used for shared prompt"
    assert alone.result()["tokens_predicted"] == 40


def test_the_first_answers_prompt_stays_for_the_next_request(plain: EngineHarness) -> None:
    prompt = "A list of the islands that the keeper could see on a clear day: " * 3
    plain.run(**answers(2, 3, prompt=prompt))
    again = plain.run(**answers(1, 1, prompt=prompt, cache_prompt=True)).result()
    timings = again["timings"]
    assert isinstance(timings, dict)
    assert timings["prompt_n"] == 1


def test_cells_that_an_idle_slot_still_has_are_not_freed_by_those_who_leave() -> None:
    slots = family([], n=3)
    assert [shared_prompt.n_owned_cells(slot) for slot in slots] == [1, 1, 1]
    shared_prompt.leave(slots[2])
    shared_prompt.leave(slots[1])
    assert [shared_prompt.n_owned_cells(slot) for slot in slots] == [3, 3, 3]
