"""Guessing ahead on a real model: parks, a full pool and shifts change no word, and no draft is ever cut apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.engine.batch.decode import STATUS_NO_ROOM
from pyggml_server.native.command_line import CommandLine
from pyggml_server.native.runtime import BatchArrays, Row, Runtime, Sample

from pyggml import rows_by_position
from tests.engine.harness import EngineHarness
from tests.engine.invariants import watched

pytestmark = pytest.mark.slow

NGRAMS = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "2", "--spec-ngram-simple-size-m", "4")
# of what any draft guesses next, a part is right and a part is wrong
PROMPT = "The keeper of the lighthouse said that the keeper of the light was the keeper of the"


def server_argv(model: Path, *flags: str, n_ctx: int = 512, n_slots: int = 2) -> list[str]:
    size = ["-c", str(n_ctx), "-np", str(n_slots), "--kv-unified", "-fa", "on", "-t", "1", "--no-warmup"]
    return ["-m", str(model), *size, *flags]


@pytest.fixture(scope="module", params=["draft model", "n-grams", "both"])
def guessing(request: pytest.FixtureRequest, draft_path: Path) -> list[str]:
    """The flags of each way to guess."""
    with_model = ["-md", str(draft_path)]
    types = {
        "draft model": [*with_model, "--spec-type", "draft-simple"],
        "n-grams": [*NGRAMS],
        "both": [*with_model, *NGRAMS, "--spec-type", "draft-simple"],
    }
    return types[request.param]


def greedy(n_predict: int, **fields: object) -> dict[str, object]:
    body = {"prompt": PROMPT, "n_predict": n_predict, "temperature": 0.0, "ignore_eos": True, "cache_prompt": False}
    return {**body, **fields}


def timings(result: dict[str, object]) -> dict[str, float]:
    found = result["timings"]
    assert isinstance(found, dict)
    return found


def test_guesses_that_are_parked_every_seven_tokens_give_the_text_of_those_that_never_were(
    guessing: list[str], smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    argv = server_argv(smollm2_path, *guessing)
    with watched(monkeypatch, caplog):
        with EngineHarness(argv) as harness:
            plain = harness.run(**greedy(60)).result()
        with EngineHarness(argv, PreemptOptions(every_n_tokens=7)) as harness:
            forced = harness.run(**greedy(60)).result()
            assert harness.engine.snapshot().counters.preemptions_total >= 3
    assert forced["content"] == plain["content"]
    for name in ("draft_n", "draft_n_accepted"):
        assert timings(forced)[name] == timings(plain)[name]
    assert 0 < timings(plain)["draft_n_accepted"] < timings(plain)["draft_n"]


def test_chats_that_guess_and_overflow_the_pool_all_finish(
    guessing: list[str], smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    argv = server_argv(smollm2_path, *guessing, n_ctx=256, n_slots=3)
    with watched(monkeypatch, caplog), EngineHarness(argv) as harness:
        chats = [harness.start(**greedy(40, prompt=f"{i} {PROMPT * 4}")) for i in range(3)]
        harness.wait(*chats)
        counters = harness.engine.snapshot().counters
    assert [chat.result()["tokens_predicted"] for chat in chats] == [40, 40, 40]
    assert counters.preemptions_total == counters.restores_total >= 1
    assert counters.preempt_ram_bytes == 0
    assert counters.draft_tokens_accepted_total == sum(counters.drafts_accepted_per_pos) > 0


def test_a_context_that_is_shifted_is_shifted_for_the_draft_too(
    guessing: list[str], smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    argv = server_argv(smollm2_path, *guessing, "--context-shift", n_ctx=256)
    with watched(monkeypatch, caplog), EngineHarness(argv, PreemptOptions(every_n_tokens=11)) as harness:
        chats = [harness.start(**greedy(50, prompt=[100 + i] * 220)) for i in range(2)]
        harness.wait(*chats)
    assert [chat.result()["tokens_predicted"] for chat in chats] == [50, 50]
    assert all(chat.result()["truncated"] for chat in chats)


def test_a_draft_that_finds_no_room_is_left_out_and_never_cut(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Runtime.step
    drafts: list[int] = []

    def step_without_room_for_drafts(
        runtime: Runtime, batch: BatchArrays, rows: Sequence[Row], *overlapped: Callable[[], None]
    ) -> tuple[int, list[Sample]]:
        n_draft = sum(row.n_draft for row in rows)
        drafts.append(n_draft)
        assert int(batch.output.sum()) == n_draft + sum(row.i_batch >= 0 for row in rows)
        return (STATUS_NO_ROOM, []) if n_draft else step(runtime, batch, rows, *overlapped)

    with EngineHarness(server_argv(smollm2_path)) as harness:
        expected = harness.run(**greedy(40)).text()
    monkeypatch.setattr(Runtime, "step", step_without_room_for_drafts)
    with EngineHarness(server_argv(smollm2_path, *NGRAMS)) as harness:
        assert harness.run(**greedy(40)).text() == expected
    assert any(drafts)
    assert all(after == 0 for before, after in pairwise(drafts) if before)


def test_a_sampler_that_fails_on_a_draft_ends_its_own_request_only(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # after the grammar's end nothing but the end of the text may follow, and ignore_eos forbids that
    with watched(monkeypatch, caplog), EngineHarness(server_argv(smollm2_path, *NGRAMS)) as harness:
        other = harness.start(**greedy(30))
        bad = harness.run(**greedy(30, grammar='root ::= " keeper of the lighthouse said"'))
        harness.wait(other)
        assert other.result()["tokens_predicted"] == 30
        assert harness.n_endings[bad.task_ids[0]] == 1
        assert harness.run(**greedy(5)).result()["tokens_predicted"] == 5


def test_a_request_never_guesses_beyond_its_last_token(guessing: list[str], smollm2_path: Path) -> None:
    with EngineHarness(server_argv(smollm2_path, *guessing)) as harness:
        for n_predict in (1, 2, 3, 9):
            result = harness.run(**greedy(n_predict, return_tokens=True)).result()
            tokens = result["tokens"]
            assert isinstance(tokens, list)
            assert len(tokens) == result["tokens_predicted"] == n_predict


def test_target_and_draft_rows_are_equal_before_a_park_and_after_its_restore(
    smollm2_path: Path, draft_path: Path
) -> None:
    from pyggml_server.engine.startup import build_state

    argv = server_argv(smollm2_path, "-md", str(draft_path), "--spec-type", "draft-simple")
    runtime = Runtime.load(CommandLine.parse(argv))
    try:
        state = build_state(runtime, PreemptOptions())
        n_tokens = 24
        token, pos = np.arange(100, 100 + n_tokens, dtype=np.int32), np.arange(n_tokens, dtype=np.int32)
        batch = BatchArrays(token, pos, np.zeros(n_tokens, dtype=np.int32), np.zeros(n_tokens, dtype=np.int8))
        assert runtime.step(batch, [])[0] == 0
        state.pool.note_decoded()
        before = [rows_by_position(context.save_state(0)) for context in runtime.contexts()]
        slot = state.slot(0)
        n_bytes = state.pool.state_bytes(slot)
        slot.transfer.save(0)
        assert slot.transfer.state_bytes == n_bytes
        state.pool.release_cells(slot)
        assert [context.n_cells_used() for context in runtime.contexts()] == [0, 0]
        slot.transfer.restore(0)
        assert [rows_by_position(context.save_state(0)) for context in runtime.contexts()] == before
    finally:
        runtime.close()
