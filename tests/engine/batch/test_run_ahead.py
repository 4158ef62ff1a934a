"""Generation that runs ahead of Python gives the same answers. What ends a run is felt one step later at most."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyggml_server.config import PreemptOptions, StepOptions
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption.pinning import keep_memory_ahead
from pyggml_server.messages import Token
from pyggml_server.native.runtime import Runtime, Sample
from pyggml_server.request_kind import RequestKind

from tests.engine.harness import EngineHarness
from tests.engine.invariants import watched

AHEAD, NOT_AHEAD = StepOptions(runs_ahead=True), StepOptions(runs_ahead=False)
PROMPT = "The keeper of the lighthouse said that the keeper of the light was the keeper of the"
WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.9, "seed": 7},
    {"grammar": "root ::= [a-z ]+"},
    {"n_probs": 2},
    {"stop": [" sea", "."]},
    {"n_predict": 1},
    {"n_predict": 2},
    {"n": 2, "temperature": 0.8, "seed": 3},
    {"ignore_eos": True, "n_predict": 200},  # to the end of its context
]
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Count to ten."}]}
STREAMS: list[tuple[RequestKind, dict[str, Any]]] = [
    (RequestKind.COMPLETION, {"n_probs": 2, "return_progress": True, "timings_per_token": True}),
    (RequestKind.OAI_COMPLETION, {"n": 2, "logprobs": 2}),
    (RequestKind.OAI_CHAT, CHAT),
    (RequestKind.OAI_RESPONSES, {"input": "Count to ten.", "return_progress": True}),
    (RequestKind.ANTHROPIC, CHAT),
]


def argv(model: Path, *flags: str, n_ctx: int = 1024, n_slots: int = 4) -> list[str]:
    size = ["-c", str(n_ctx), "-np", str(n_slots), "--kv-unified", "-fa", "on", "-t", "1", "--no-warmup"]
    return ["-m", str(model), *size, *flags]


def body(n_predict: int = 20, **fields: object) -> dict[str, Any]:
    return {"prompt": PROMPT, "n_predict": n_predict, "temperature": 0, "cache_prompt": False, "stream": True, **fields}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How each batch was sampled: `ahead` where the next one was issued with it."""
    made: list[str] = []
    sample = Runtime.sample

    def noted(runtime: Runtime, n_rows: int, *, go_on: bool = False) -> tuple[int, list[Sample]]:
        status, samples = sample(runtime, n_rows, go_on=go_on)
        made.append("ahead" if any(one.goes_on for one in samples) else "alone")
        return status, samples

    monkeypatch.setattr(Runtime, "sample", noted)
    return made


def said(model: Path, step: StepOptions, fields: dict[str, Any], *flags: str) -> list[tuple[str, object, int]]:
    with EngineHarness(argv(model, *flags, n_ctx=192), None, step) as harness:
        request = harness.run(**body(**{**fields, "stream": False}))
        results = [request.result(i) for i in range(len(request.task_ids))]
    return [(str(result["content"]), result["stop_type"], int(str(result["tokens_predicted"]))) for result in results]


@pytest.mark.parametrize("fields", WAYS, ids=str)
def test_an_answer_is_the_same(
    fields: dict[str, Any],
    smollm2_path: Path,
    calls: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain = said(smollm2_path, NOT_AHEAD, fields)
    assert "ahead" not in calls
    with watched(monkeypatch, caplog):
        assert said(smollm2_path, AHEAD, fields) == plain
    assert ("ahead" in calls) == (plain[0][2] > 2)


def test_every_event_of_every_api_is_the_same(smollm2_path: Path, calls: list[str]) -> None:
    streams = []
    for step in (NOT_AHEAD, AHEAD):
        with EngineHarness(argv(smollm2_path), None, step) as harness:
            streams.append([events(harness, kind, fields) for kind, fields in STREAMS])
    assert streams[0] == streams[1]
    assert all(len(stream) > 5 for stream in streams[0])
    assert "ahead" in calls


def events(harness: EngineHarness, kind: RequestKind, fields: dict[str, Any]) -> list[str]:
    """The events of each answer of a stream but its end, without random ids and times."""
    request = harness.start_as(kind, **body(12, max_tokens=12, max_output_tokens=12, ignore_eos=True, **fields))
    harness.wait(request)
    said = b"".join(m.events for i in request.task_ids for m in request.messages[i] if isinstance(m, Token)).decode()
    assert said.endswith("\n\n")
    assert '"error":{' not in said
    masked = re.sub(r"(chatcmpl-|(?:resp|msg|rs|fc|call)_)\w+", r"\1", re.sub(r'"(created\w*)":\d+', r'"\1":0', said))
    return re.sub(r'"(\w+_(?:ms|second))":[\d.e+-]+', r'"\1":0', masked).split("\n\n")[:-1]


def test_shifts_forced_parks_and_drafts_change_no_word(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    long = body(150, ignore_eos=True, stream=False)
    for flags, preempt, n_ctx in [
        (("--context-shift",), None, 128),  # less than it generates
        ((), PreemptOptions(every_n_tokens=7), 256),
        (("--spec-type", "ngram-simple"), None, 256),
    ]:
        texts = []
        for step in (NOT_AHEAD, AHEAD):
            with (
                watched(monkeypatch, caplog),
                EngineHarness(argv(smollm2_path, *flags, n_ctx=n_ctx), preempt, step) as harness,
            ):
                texts.append(harness.run(**long).text())
        assert texts[0] == texts[1]


def test_a_cancel_a_new_prompt_and_the_end_are_taken_between_two_steps(
    smollm2_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with watched(monkeypatch, caplog), EngineHarness(argv(smollm2_path), None, AHEAD) as harness:
        endless, cancelled = (harness.start(**body(-1, ignore_eos=True)) for _ in range(2))
        harness.wait_for_tokens(endless, 5)
        harness.wait_for_tokens(cancelled, 5)
        assert "ahead" in calls
        harness.cancel(cancelled)
        harness.wait(cancelled)
        n_before = endless.n_tokens()
        short = harness.run(**body(3))
        assert short.result()["tokens_predicted"] == 3
        harness.wait_for_tokens(endless, n_before + 5)
        del calls[:]
        harness.wait_for_tokens(endless, endless.n_tokens() + 5)
        assert "ahead" in calls
    assert harness.n_endings[endless.task_ids[0]] == harness.n_endings[cancelled.task_ids[0]] == 1


def test_who_waits_for_a_slot_gets_the_first_that_ends(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with watched(monkeypatch, caplog), EngineHarness(argv(smollm2_path, n_slots=2), None, AHEAD) as harness:
        requests = [harness.start(**body(n, ignore_eos=True)) for n in (60, 8, 8, 8)]
        harness.wait(*requests)
        assert [request.result()["tokens_predicted"] for request in requests] == [60, 8, 8, 8]


def test_chats_that_overflow_the_pool_all_finish_with_the_words_of_those_that_had_room(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, calls: list[str]
) -> None:
    with watched(monkeypatch, caplog), EngineHarness(argv(smollm2_path, n_ctx=384), None, AHEAD) as harness:
        requests = [harness.start(**body(150, ignore_eos=True, temperature=0)) for _ in range(4)]
        harness.wait(*requests)
        assert [request.result()["tokens_predicted"] for request in requests] == [150] * 4
        assert harness.engine.snapshot().counters.parked_bytes_total > 0
    assert "ahead" in calls


def test_an_error_of_one_row_ends_its_own_request_only(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails = body(30, grammar='root ::= " keeper of the lighthouse"', ignore_eos=True)
    with watched(monkeypatch, caplog), EngineHarness(argv(smollm2_path), None, AHEAD) as harness:
        other, bad = harness.start(**body(30, ignore_eos=True)), harness.start(**fails)
        harness.wait(other, bad)
        assert bad.error() is not None
        assert other.result()["tokens_predicted"] == 30


@pytest.mark.parametrize("status", [2, -3])
def test_a_batch_that_fails_ahead_ends_who_is_in_it_once(
    status: int, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sample = Runtime.sample
    left = [5]

    def failing(runtime: Runtime, n_rows: int, *, go_on: bool = False) -> tuple[int, list[Sample]]:
        left[0] -= 1
        if left[0] == 0:
            return status, sample(runtime, n_rows)[1]
        return sample(runtime, n_rows, go_on=go_on)

    monkeypatch.setattr(Runtime, "sample", failing)
    with watched(monkeypatch, caplog), EngineHarness(argv(smollm2_path), None, AHEAD) as harness:
        bad = harness.run(**body(30, ignore_eos=True))
        assert bad.error() is not None
        assert harness.n_endings[bad.task_ids[0]] == 1
        assert harness.run(**body(5)).result()["tokens_predicted"] == 5


def test_a_pass_that_fails_while_a_batch_is_under_way_leaves_nothing_of_it(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [6]

    def failing(state: EngineState) -> None:
        left[0] -= state.flight is not None
        if left[0] == 0:
            left[0] = -1
            raise RuntimeError("planted")
        keep_memory_ahead(state)

    monkeypatch.setattr("pyggml_server.engine.passes.keep_memory_ahead", failing)
    with EngineHarness(argv(smollm2_path), None, AHEAD) as harness:
        bad = harness.run(**body(30, ignore_eos=True))
        assert "planted" in str(bad.error())
        assert harness.run(**body(5)).result()["tokens_predicted"] == 5
