"""Parks and restores as clients see them: the same text, comments in the stream, counts, and all chats to their end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import StartServer
from tests.e2e.program import PATIENCE_S, REPOSITORY, ServerProcess, stock_program
from tests.e2e.sse import EventStream, post_stream

CHAT = {
    "messages": [{"role": "user", "content": "Tell me about the sea."}],
    "max_tokens": 100,
    "temperature": 0,
    "ignore_eos": True,
    "cache_prompt": False,
}
PROMPTS = ["A lighthouse keeper", "A baker in a town", "The school on Mars", "A fox that counts"]
PREEMPTION_FIELDS = ["n_cells", "is_preempted", "is_transferring", "parked_bytes", "parked_ms", "n_preempted"]


@pytest.fixture(scope="module")
def forced(start_ours: StartServer) -> Iterator[ServerProcess]:
    """A server that parks a chat after every 32 tokens."""
    with start_ours(LLAMA_SERVER_PREEMPT_EVERY="32") as server:
        yield server


def overflow(server: ServerProcess) -> list[EventStream]:
    """Four completions that need about 620 of the 512 cells."""

    def complete(prompt: str) -> EventStream:
        body = {"prompt": prompt, "n_predict": 150, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
        return post_stream(server, "/completion", body)

    with ThreadPoolExecutor(len(PROMPTS)) as threads:
        return list(threads.map(complete, PROMPTS))


def demo(model: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = str(REPOSITORY / "scripts/demo_chats.py")
    # one thread, as the servers of the other tests: on busy cores two of them wait for each other
    server_flags = ["--", "-t", "1", "-fit", "off", "--no-warmup"]
    words = [sys.executable, program, "--model", str(model), "--cells", "512", *arguments, *server_flags]
    return subprocess.run(words, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)


def table(printed: str) -> list[list[str]]:
    """The rows of the four chats: tokens, parks, restores, result."""
    lines = printed.rpartition("\nchat ")[2].splitlines()[1:5]
    rows = [line.split(maxsplit=6) for line in lines]
    return [[row[1], row[2], row[3], row[6]] for row in rows]


def test_a_chat_parked_every_32_tokens_has_the_same_text_and_says_so_in_comments(
    ours: ServerProcess, forced: ServerProcess
) -> None:
    undisturbed = post_stream(ours, "/v1/chat/completions", CHAT)
    n_parks = forced.metric("preemptions_total")
    parked = post_stream(forced, "/v1/chat/completions", CHAT)
    assert parked.text == undisturbed.text
    assert parked.comments == ["preempted", "resumed"] * 3
    assert undisturbed.comments == []
    assert forced.metric("preemptions_total") - n_parks == 3


def test_parked_time_and_parks_change_nothing_in_the_answer_but_times(
    ours: ServerProcess, forced: ServerProcess
) -> None:
    def answer(server: ServerProcess) -> Any:
        body: dict[str, Any] = server.post("/v1/chat/completions", CHAT).json()
        return body["choices"], body["usage"], list(body["timings"])

    assert answer(forced) == answer(ours)


def test_metrics_count_parks_restores_and_bytes_and_hold_no_memory_when_idle(forced: ServerProcess) -> None:
    post_stream(forced, "/v1/chat/completions", CHAT)
    n_parks = forced.metric("preemptions_total")
    assert n_parks >= 3
    assert forced.metric("restores_total") == n_parks
    assert forced.metric("parked_bytes_total") == forced.metric("restored_bytes_total") > 0
    assert forced.metric("preempt_ram_bytes") == 0
    assert forced.metric("preempt_ram_limit_bytes") > 0
    assert forced.metric("kv_cells") == 512


def test_the_pool_page_is_told_of_every_park_and_restore_with_its_bytes(forced: ServerProcess) -> None:
    post_stream(forced, "/v1/chat/completions", {**CHAT, "id_slot": 3})
    shown = forced.get("/pool.json").json()
    events = shown["events"][-6:]
    assert [(event["kind"], event["id_slot"]) for event in events] == [("park", 3), ("restore", 3)] * 3
    assert [event["n_bytes"] for event in events[::2]] == [event["n_bytes"] for event in events[1::2]]
    assert 0 < events[0]["n_bytes"] < events[2]["n_bytes"] < events[4]["n_bytes"]
    times_s = [event["at_s"] for event in shown["events"]]
    assert times_s == sorted(times_s)
    assert times_s[-1] < shown["now_s"]
    assert shown["pool"]["n_cells_used"] == sum(slot["n_cells"] for slot in shown["slots"]) > 0


def test_slots_show_how_often_the_last_chat_was_parked(forced: ServerProcess) -> None:
    post_stream(forced, "/v1/chat/completions", {**CHAT, "id_slot": 2})
    slot = forced.slots()[2]
    assert [name for name in slot if name in PREEMPTION_FIELDS] == PREEMPTION_FIELDS
    assert (slot["n_preempted"], slot["is_preempted"], slot["parked_bytes"]) == (3, False, 0)
    assert slot["state"] == "idle"


def test_slots_show_preemption_while_a_chat_runs(forced: ServerProcess) -> None:
    body = {**CHAT, "stream": True, "max_tokens": 300, "id_slot": 1}
    with forced.post("/v1/chat/completions", body, stream=True) as response:
        next(line for line in response.iter_lines(chunk_size=1) if line == b": resumed")
        slot = forced.slots()[1]
    assert slot["is_processing"]
    assert slot["n_preempted"] in range(1, 10)


def test_four_chats_that_overflow_the_pool_all_finish(ours: ServerProcess) -> None:
    n_parks = ours.metric("preemptions_total")
    streams = overflow(ours)
    assert [stream.events[-1]["tokens_predicted"] for stream in streams] == [150] * 4
    comments = [comment for stream in streams for comment in stream.comments]
    assert comments.count("preempted") == comments.count("resumed") == ours.metric("preemptions_total") - n_parks >= 1


def test_eight_chats_on_a_pool_for_three_end_as_in_llama_server_without_host_memory(
    start_ours: StartServer, start_stock: StartServer
) -> None:
    """One request, so that both servers get the eight at once; each of them could fill the pool alone."""
    body = {"prompt": [f"{prompt}, chapter {i}:" for prompt in PROMPTS for i in (1, 2)], "n_predict": 300}
    answers = []
    for start, flags in ((start_ours, ["--preempt-ram", "0"]), (start_stock, [])):
        with start("-c", "320", "-np", "8", *flags) as server:
            answer = server.post("/completion", {**body, "ignore_eos": True, "temperature": 0})
            answers.append((answer.status_code, answer.json()))
    assert answers[0] == answers[1]
    assert answers[0][1]["error"]["message"] == "Context size has been exceeded."


def test_without_preemption_the_same_chats_end_as_in_llama_server(
    start_ours: StartServer, stock: ServerProcess
) -> None:
    with start_ours("--preempt-ram", "0") as server:
        our_errors = [stream.error for stream in overflow(server)]
        assert server.metric("preemptions_total") == 0
    assert our_errors == [stream.error for stream in overflow(stock)]
    assert [error["message"] for error in our_errors if error] == ["Context size has been exceeded."] * 4


def test_the_demo_succeeds_and_its_table_shows_why(smollm2_path: Path) -> None:
    done = demo(smollm2_path, "--tokens", "80")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = table(done.stdout)
    assert [(row[0], row[3]) for row in rows] == [("80", "finished")] * 4
    assert sum(int(row[1]) for row in rows) == sum(int(row[2]) for row in rows) >= 1
    assert "4 of 4 finished" in done.stdout


def test_the_demo_shows_stock_failing_on_the_same_input(smollm2_path: Path) -> None:
    stock_program()  # says what to run if it is missing
    done = demo(smollm2_path, "--tokens", "80", "--stock")
    assert done.returncode == 1, done.stdout + done.stderr
    assert [row[3] for row in table(done.stdout)] == ["error: Context size has been exceeded."] * 4
    assert "0 of 4 finished" in done.stdout


def test_the_demo_that_overflows_nothing_shows_nothing(smollm2_path: Path) -> None:
    done = demo(smollm2_path, "--tokens", "5")
    assert "4 of 4 finished; the server counts 0 parks" in done.stdout
    assert done.returncode == 1
