"""No request ever sees another's text: across slots, the prompt cache, slot files and parks.

Every client has a word of its own, which its prompt repeats and the model goes on with. All prompts begin alike, so
that caches have something to share. Text of another client would show as its word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.conftest import StartServer
from tests.e2e.program import ServerProcess

WORDS = ("apple", "river", "stone", "music", "horse", "paper", "glass", "bread")
N_ROUNDS = 3


@pytest.fixture(scope="module")
def server(start_ours: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Every chat is parked after each eight tokens, whether the pool is full or not."""
    folder: Path = tmp_path_factory.mktemp("slots")
    with start_ours("--slot-save-path", str(folder), LLAMA_SERVER_PREEMPT_EVERY="8") as started:
        yield started


def prompt_of(word: str) -> str:
    return f"Here is a list in which one word is repeated again and again: {' '.join([word] * 30)}"


def complete(server: ServerProcess, word: str, **options: object) -> dict[str, object]:
    body = {"prompt": prompt_of(word), "n_predict": 20, "temperature": 0, "ignore_eos": True, **options}
    response = server.post("/completion", body)
    assert response.status_code == 200, response.text
    answer: dict[str, object] = response.json()
    return answer


def assert_own_words_only(word: str, answer: dict[str, object]) -> None:
    said = set(re.findall(r"[a-z]+", str(answer["content"]).lower()))
    assert word in said, f"{word}: {answer['content']!r}"
    assert said.isdisjoint(set(WORDS) - {word}), f"{word}: {answer['content']!r}"


def n_cached(answer: dict[str, object]) -> int:
    timings = answer["timings"]
    assert isinstance(timings, dict)
    return int(timings["cache_n"])


def test_chats_that_share_slots_cache_and_pool_stay_apart(server: ServerProcess) -> None:
    for _ in range(N_ROUNDS):
        with ThreadPoolExecutor(len(WORDS)) as clients:
            answers = list(clients.map(lambda word: complete(server, word), WORDS))
        for word, answer in zip(WORDS, answers, strict=True):
            assert_own_words_only(word, answer)
    for word in WORDS:  # alone: who came last to a slot is chance above
        complete(server, word, id_slot=1)
        again = complete(server, word, id_slot=1)
        assert n_cached(again) > 20  # more than what all prompts begin with
        assert_own_words_only(word, again)
    assert server.metric("preemptions_total") > 0, "nobody was parked: the test shows nothing of parks"


def test_slots_from_files_go_on_with_their_own_text(server: ServerProcess) -> None:
    for i, word in enumerate(WORDS[:4]):
        complete(server, word, id_slot=i)
        assert server.post(f"/slots/{i}?action=save", {"filename": f"{word}.bin"}).status_code == 200
    for i, word in enumerate(reversed(WORDS[:4])):  # each into a slot that held another's
        assert server.post(f"/slots/{i}?action=restore", {"filename": f"{word}.bin"}).status_code == 200
        answer = complete(server, word, id_slot=i)
        assert n_cached(answer) > 20
        assert_own_words_only(word, answer)


def test_a_slot_that_holds_anothers_text_gives_none_of_it(server: ServerProcess) -> None:
    for mine, others in zip(WORDS, reversed(WORDS), strict=True):
        complete(server, others, id_slot=0)
        for caches in (True, False):
            assert_own_words_only(mine, complete(server, mine, id_slot=0, cache_prompt=caches))
