"""Prompts on their way to the prompt cache and out of it: kept and found as llama.cpp's own save and load do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyggml_server.native.checkpoints import Checkpoints
from pyggml_server.native.command_line import CommandLine
from pyggml_server.native.prompt_cache import NativePromptCache
from pyggml_server.native.runtime import Runtime


@pytest.fixture(scope="module")
def runtime(narrow_path: Path) -> Iterator[Runtime]:
    flags = ["-c", "64", "-np", "2", "-t", "1", "--cache-ram", "1", "--no-warmup", "-fit", "off"]
    loaded = Runtime.load(CommandLine.parse(["-m", str(narrow_path), *flags]), 0)
    yield loaded
    loaded.close()


def keep(cache: NativePromptCache, runtime: Runtime, tokens: list[int], n_bytes: int) -> bool:
    kept = cache.begin(tokens, Checkpoints(runtime), n_bytes)
    if kept is not None:
        kept.put([np.full(n_bytes, tokens[0], np.uint8)])
        cache.add(kept)
    return kept is not None


def some_prompt(chance: random.Random) -> list[int]:
    """Often the beginning of another, or another that goes on."""
    return [chance.choice((1, 2)) for _ in range(chance.randint(1, 6))]


@pytest.mark.parametrize("seed", range(40))
def test_prompts_are_kept_and_found_as_in_one_call(seed: int, runtime: Runtime) -> None:
    """A state of the empty sequence stands for each prompt's."""
    chance, lists = random.Random(seed), Checkpoints(runtime)
    at_once, in_steps = NativePromptCache(runtime), NativePromptCache(runtime)
    n_bytes = runtime.context.state_size(0)
    for _ in range(30):
        tokens = some_prompt(chance)
        assert at_once.save(0, tokens, lists) == keep(in_steps, runtime, tokens, n_bytes)
        have, wanted = some_prompt(chance)[: chance.randint(0, 6)], some_prompt(chance)
        found = in_steps.take(have, wanted)
        assert at_once.load(0, have, wanted, lists) == (have if found is None else found.tokens)
        assert at_once.size() == in_steps.size()


def test_the_oldest_make_room_and_what_is_too_large_is_not_begun(runtime: Runtime) -> None:
    cache = NativePromptCache(runtime)
    assert all(keep(cache, runtime, [i, i], 400_000) for i in (1, 2, 3))
    assert cache.size().n_prompts == 2
    assert cache.take([], [1, 1]) is None
    assert cache.begin([4], Checkpoints(runtime), 2_000_000) is None
    found = cache.take([], [2, 2])
    assert found is not None
    assert found.sizes_bytes == [400_000]
    state = np.zeros(400_000, np.uint8)
    found.copy_to([state])
    assert (state == 2).all()


def test_a_prompt_is_in_the_cache_once_it_was_added_and_only_once(runtime: Runtime) -> None:
    cache = NativePromptCache(runtime)
    first, second = (cache.begin([7, 8], Checkpoints(runtime), 10) for _ in range(2))
    assert cache.take([], [7, 8]) is None
    assert first is not None
    assert second is not None
    for kept in (first, second):
        kept.put([np.zeros(10, np.uint8)])
        cache.add(kept)
        kept.close()
        kept.close()
    assert cache.size().n_prompts == 1
