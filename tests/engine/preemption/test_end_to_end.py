"""Parks and restores on a real model, through the engine: no chat says anything else, and every chat ends once."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.messages import Cancelled, Failed, Finished

from tests.engine.harness import EngineHarness, Running

PROMPTS = [
    "Once upon a time there was a lighthouse keeper who",
    "The recipe for a good soup begins with",
    "In the year 2150 the first city on Mars",
    "A short history of the printing press:",
]


def server_argv(model: Path, n_ctx: int = 1024, n_slots: int = 4) -> list[str]:
    return ["-m", str(model), "-c", str(n_ctx), "-np", str(n_slots), "--kv-unified", "-fa", "on", "-t", "1"]


def greedy(prompt: str, n_predict: int) -> dict[str, object]:
    return {"prompt": prompt, "n_predict": n_predict, "temperature": 0.0, "ignore_eos": True, "cache_prompt": False}


@pytest.fixture(scope="module")
def plain(narrow_path: Path) -> Iterator[EngineHarness]:
    with EngineHarness(server_argv(narrow_path)) as harness:
        yield harness


@pytest.fixture(scope="module")
def forced(narrow_path: Path) -> Iterator[EngineHarness]:
    with EngineHarness(server_argv(narrow_path), PreemptOptions(every_n_tokens=32)) as harness:
        yield harness


def solo_texts(argv: list[str], n_predict: int) -> list[str]:
    """What each prompt's chat says on a server of its own."""
    texts = []
    for prompt in PROMPTS:
        with EngineHarness(argv) as harness:
            texts.append(harness.run(**greedy(prompt, n_predict)).text())
    return texts


def all_idle(harness: EngineHarness) -> bool:
    snapshot = harness.engine.snapshot()
    return not any(slot.is_processing for slot in snapshot.slots) and snapshot.counters.preempt_ram_bytes == 0


def test_a_chat_parked_every_32_tokens_has_the_text_of_one_that_never_was(
    plain: EngineHarness, forced: EngineHarness
) -> None:
    expected = plain.run(**greedy(PROMPTS[0], 300)).text()
    parked = forced.run(**greedy(PROMPTS[0], 300))
    assert parked.text() == expected
    assert parked.notices() == ["preempted", "resumed"] * (300 // 32)
    assert all_idle(forced)


def test_four_interleaved_chats_say_what_each_says_alone(narrow_path: Path) -> None:
    # Fewer than 512 cells in use, cached prompts included: above that, one-row batches take another kernel. No park:
    # after one, later tokens may take earlier cells, and attention adds in the order of the cells.
    argv = server_argv(narrow_path)
    alone = solo_texts(argv, 100)
    with EngineHarness(argv) as harness:
        together = [harness.start(**greedy(prompt, 100)) for prompt in PROMPTS]
        harness.wait(*together)
        assert [running.text() for running in together] == alone


def test_four_chats_that_overflow_the_pool_all_finish(narrow_path: Path) -> None:
    with EngineHarness(server_argv(narrow_path, n_ctx=512)) as harness:
        chats = [harness.start(**greedy(prompt, 200)) for prompt in PROMPTS]
        harness.wait(*chats)
        counters = harness.engine.snapshot().counters
        assert [chat.result()["tokens_predicted"] for chat in chats] == [200] * 4
        assert counters.preemptions_total >= 1
        assert counters.restores_total == counters.preemptions_total
        assert counters.requests_finished_total == 4
        assert all_idle(harness)


def test_without_preemption_the_same_chats_all_end_as_in_llama_server(narrow_path: Path) -> None:
    with EngineHarness(server_argv(narrow_path, n_ctx=512), PreemptOptions(ram_mib=0)) as harness:
        chats = [harness.start(**greedy(prompt, 200)) for prompt in PROMPTS]
        harness.wait(*chats)
        errors = [chat.last() for chat in chats]
        assert all(isinstance(error, Failed) and b"Context size has been exceeded." in error.error for error in errors)
        assert harness.engine.snapshot().counters.preemptions_total == 0


def test_two_sequences_are_parked_in_turn_under_a_budget_for_one(narrow_path: Path) -> None:
    options = PreemptOptions(ram_mib=6, rotate_s=0)  # a state of 256 cells has 5.6 MiB
    with EngineHarness(server_argv(narrow_path, n_ctx=512), options) as harness:
        chats = [harness.start(**greedy(prompt, 220)) for prompt in PROMPTS[:3]]
        harness.wait(*chats)
        assert all(isinstance(chat.last(), Finished) for chat in chats)
        assert all_idle(harness)


def test_a_full_context_is_shifted_where_the_user_asks_for_it(narrow_path: Path) -> None:
    argv = [*server_argv(narrow_path, n_ctx=256, n_slots=2), "--context-shift"]
    with EngineHarness(argv) as harness:
        chat = harness.run(**greedy(PROMPTS[0], 400)).result()
        assert chat["tokens_predicted"] == 400
        assert chat["truncated"] is True


def test_without_context_shift_a_full_context_ends_the_text(narrow_path: Path) -> None:
    with EngineHarness(server_argv(narrow_path, n_ctx=256, n_slots=2)) as harness:
        chat = harness.run(**greedy(PROMPTS[0], 400)).result()
        assert chat["stop_type"] == "limit"
        assert chat["truncated"] is True
        assert int(str(chat["tokens_cached"])) == 255


def test_a_request_for_a_busy_slot_waits_without_holding_others_up(plain: EngineHarness) -> None:
    long_one = plain.start(**greedy(PROMPTS[0], 900), id_slot=2, stream=True)
    plain.wait_for_tokens(long_one, 1)
    behind_it = plain.start(**greedy(PROMPTS[1], 2), id_slot=2)
    other = plain.start(**greedy(PROMPTS[2], 2))
    plain.wait(other)
    assert not behind_it.messages
    plain.cancel(long_one)
    plain.wait(behind_it)
    assert behind_it.result()["id_slot"] == 2


def test_64_requests_on_4_slots_all_end(plain: EngineHarness) -> None:
    requests = [plain.start(**greedy(f"{PROMPTS[i % 4]} {i}", 8)) for i in range(64)]
    plain.wait(*requests)
    assert all(request.result()["tokens_predicted"] == 8 for request in requests)


def test_200_random_cancels_leave_every_slot_idle_and_no_memory_held(smollm2_path: Path) -> None:
    rng = random.Random(20261130)
    options = PreemptOptions(every_n_tokens=3)
    with EngineHarness(server_argv(smollm2_path), options) as harness:
        everyone: list[Running] = []
        live: list[Running] = []
        while len(everyone) < 200:
            request = harness.start(**greedy(f"{PROMPTS[len(everyone) % 4]} {len(everyone)}", 200), stream=True)
            everyone.append(request)
            live.append(request)
            if rng.random() < 0.5:  # the oldest is in a slot: let it run into its parks
                harness.wait_for_tokens(live[0], rng.randrange(1, 12))
            while len(live) > 6:
                victim = live.pop(rng.randrange(len(live)))
                harness.cancel(victim)
        for request in live:
            harness.cancel(request)
        harness.wait(*everyone)
        assert all(isinstance(request.last(), Cancelled) for request in everyone)
        assert all(harness.n_endings[task_id] == 1 for request in everyone for task_id in request.task_ids)
        counters = harness.engine.snapshot().counters
        assert counters.requests_cancelled_total == 200
        assert counters.preemptions_total > 0
        assert all_idle(harness)


def test_a_prompt_longer_than_the_context_is_refused_with_its_size(plain: EngineHarness) -> None:
    request = plain.run(prompt=[5] * 2000)
    error = request.last()
    assert isinstance(error, Failed)
    assert error.status == 400
    assert json.loads(error.error)["type"] == "exceed_context_size_error"
    assert json.loads(error.error)["n_prompt_tokens"] == 2000


def test_a_second_turn_reuses_the_prefix_of_the_first(plain: EngineHarness) -> None:
    first = plain.run(prompt="The quick brown fox jumps over the lazy dog. " * 5, n_predict=4)
    again = plain.run(prompt="The quick brown fox jumps over the lazy dog. " * 5 + "And then", n_predict=4)
    assert int(str(first.result()["tokens_evaluated"])) > 40
    timings = again.result()["timings"]
    assert isinstance(timings, dict)
    assert timings["cache_n"] > 40


def test_a_stop_string_ends_the_text_before_it(smollm2_path: Path) -> None:
    with EngineHarness(server_argv(smollm2_path)) as harness:
        whole = harness.run(**greedy(PROMPTS[1], 60)).text()
        word = whole.split()[8]
        stopped = harness.run(**greedy(PROMPTS[1], 60), stop=[word]).result()
    assert stopped["stop_type"] == "word"
    assert stopped["stopping_word"] == word
    assert stopped["content"] == whole[: whole.index(word)]
