"""--cache-reuse: which chunks are found, and that shifting them gives a slot the tokens of the new prompt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyggml_server.engine.slots.chunk_reuse import Move, moves

from tests.engine.harness import EngineHarness
from tests.engine.invariants import watched

TOKENS = st.lists(st.integers(0, 2), max_size=30)


def n_common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_a_part_that_is_left_out_is_closed_up() -> None:
    assert list(moves([1, 2, 3, 4, 5, 6], [1, 4, 5, 6, 7], n_equal=1, n_least=2)) == [Move(3, 1, 3)]


def test_several_parts_follow_each_other() -> None:
    cached, prompt = [1, 9, 2, 3, 9, 4, 5], [1, 2, 3, 4, 5]
    assert list(moves(cached, prompt, n_equal=1, n_least=2)) == [Move(2, 1, 2), Move(5, 3, 2)]


def test_a_chunk_that_is_too_short_is_not_reused() -> None:
    assert list(moves([1, 9, 2, 3], [1, 2, 3], n_equal=1, n_least=3)) == []


@given(TOKENS, TOKENS, st.integers(1, 4))
def test_the_moved_chunks_are_the_beginning_of_the_prompt(cached: list[int], prompt: list[int], n_least: int) -> None:
    n_equal = n_common(cached, prompt)
    kept = cached[:n_equal]
    last_source = n_equal
    for move in moves(cached, prompt, n_equal, n_least):
        assert move.n_tokens >= n_least
        assert last_source <= move.source
        assert move.target == len(kept) < move.source
        kept += cached[move.source : move.source + move.n_tokens]
        last_source = move.source + move.n_tokens
    assert kept == prompt[: len(kept)]


@pytest.fixture(scope="module")
def engine(narrow_path: Path) -> Iterator[EngineHarness]:
    argv = ["-m", str(narrow_path), "-c", "256", "-np", "2", "--kv-unified", "-t", "1", "--cache-ram", "0"]
    with EngineHarness([*argv, "--cache-reuse", "8"]) as harness:
        yield harness


def cached_of(engine: EngineHarness, prompt: list[int], **body: object) -> object:
    result = engine.run(prompt=prompt, n_predict=4, id_slot=0, temperature=0, ignore_eos=True, **body).result()
    timings = result["timings"]
    assert isinstance(timings, dict)
    return timings["cache_n"]


def test_a_prompt_without_its_middle_reuses_its_end(
    engine: EngineHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begin, middle, end = list(range(100, 110)), list(range(200, 220)), list(range(300, 330))
    with watched(monkeypatch, caplog):
        assert cached_of(engine, begin + middle + end, cache_prompt=False) == 0
        assert cached_of(engine, [*begin, *end, 400]) == len(begin) + len(end)
        assert cached_of(engine, [*begin, *end, 401]) == len(begin) + len(end)


def test_a_request_can_ask_for_other_chunks_or_none(engine: EngineHarness) -> None:
    begin, middle, end = list(range(100, 110)), list(range(200, 220)), list(range(300, 330))
    for n_cache_reuse, n_expected in ((0, len(begin)), (31, len(begin)), (30, len(begin) + len(end))):
        cached_of(engine, begin + middle + end, cache_prompt=False)
        assert cached_of(engine, [*begin, *end, 400], n_cache_reuse=n_cache_reuse) == n_expected
