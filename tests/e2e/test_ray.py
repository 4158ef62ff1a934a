"""Two replicas behind Ray Serve: the same answers, conversations that stay, a replica that dies, one that drains."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.e2e.client_environments import python_with
from tests.e2e.clients import CITIES, QUESTION, WEATHER
from tests.e2e.program import free_port
from tests.replicas import RAY, Replicas, running_replicas

# Ray brings a dozen processes of its own: not in every run
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("PYGGML_TEST_RAY"), reason="set PYGGML_TEST_RAY=1 to run Ray Serve"),
]

LOOK_S = 0.2
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def replicas(narrow_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    with running_replicas(
        python_with(RAY),
        free_port(),
        tmp_path_factory.mktemp("ray"),
        model=narrow_path,
        replicas=2,
        drain_s=120,
        flags="-c 8192 -np 2 --kv-unified -t 1 --metrics --cache-ram 0 --preempt-ram 64 -fit off --no-warmup",
    ) as running:
        yield running


def ask(
    replicas: Replicas, session: str = "", text: str = "Hi", header: str = "X-Session-Id", **more: Any
) -> requests.Response:
    headers = {header: session} if session else {}
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0, **more}
    return requests.post(replicas.url + CHAT, json=body, headers=headers, stream=bool(more.get("stream")), timeout=240)


def events(response: requests.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith(b"data: {"):
            yield json.loads(line.removeprefix(b"data: "))


def until(holds: Callable[[], Any]) -> Any:
    """What it returns once that is true; a broken program never comes there, and the test's process is ended."""
    while not (found := holds()):
        time.sleep(LOOK_S)
    return found


def run_on_each(replicas: Replicas, n_tokens: int) -> dict[str, Stream]:
    """A long stream on each of two replicas that nobody else uses, by the replica's name."""
    found: dict[str, Stream] = {}
    numbers = itertools.count()
    while len(found) < 2:
        before = n_running(replicas)
        stream = Stream(replicas, f"long {next(numbers)}", n_tokens)
        name = until(partial(that_runs_more, replicas, before))
        if name not in found:
            found[name] = stream
        else:
            stream.close()
            until(partial(has_running, replicas, before))
    return found


class Stream:
    """A chat that has begun and does not end before so many tokens."""

    def __init__(self, replicas: Replicas, session: str, n_tokens: int) -> None:
        self.session = session
        self._response = ask(replicas, session, max_tokens=n_tokens, ignore_eos=True, stream=True)
        self._events = events(self._response)
        next(self._events)

    def last(self) -> dict[str, Any]:
        """Its last event, once it is over."""
        *_, last = self._events
        return last

    def close(self) -> None:
        self._response.close()


def that_runs_more(replicas: Replicas, before: dict[str, int]) -> str | None:
    return next((name for name, n in n_running(replicas).items() if n > before.get(name, n)), None)


def has_running(replicas: Replicas, wanted: dict[str, int]) -> bool:
    return n_running(replicas) == wanted


def n_running(replicas: Replicas) -> dict[str, int]:
    return {replica["id"]: replica["n_running"] for replica in replicas.listed()}


def test_chats_come_whole_and_as_streams(replicas: Replicas) -> None:
    whole = ask(replicas).json()["choices"][0]["message"]["content"]
    streamed = ask(replicas, stream=True)
    pieces = [event["choices"][0]["delta"].get("content") or "" for event in events(streamed) if event["choices"]]
    assert "".join(pieces) == whole
    assert whole


def test_a_structured_answer_has_its_form(replicas: Replicas) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "weather", "schema": WEATHER}}
    answer = ask(replicas, text=QUESTION, response_format=form, max_tokens=100).json()
    assert json.loads(answer["choices"][0]["message"]["content"])["city"] in CITIES


def test_what_the_flags_leave_off_is_refused_as_ever(replicas: Replicas) -> None:
    refused = requests.post(replicas.url + "/v1/embeddings", json={"input": "Hi"}, timeout=240)
    assert refused.status_code == 501
    assert refused.json()["error"]["type"] == "not_supported_error"


def test_a_conversation_stays_on_its_replica(replicas: Replicas) -> None:
    for number, header in enumerate(["X-Session-Id", "X-Conversation-Id"] * 3):
        told = f"Conversation {number}: " + "tell me of the sea. " * 8
        first = ask(replicas, f"c{number}", told, header).json()
        turns = [{"role": "user", "content": told}, first["choices"][0]["message"], {"role": "user", "content": "And?"}]
        again = ask(replicas, f"c{number}", header=header, messages=turns).json()["usage"]
        assert again["prompt_tokens_details"]["cached_tokens"] > 40


def test_the_pool_of_every_replica_can_be_seen(replicas: Replicas) -> None:
    assert "replicas.json" in requests.get(replicas.url + "/pool", timeout=240).text
    listed = replicas.listed()
    assert len(listed) == 2
    for replica in listed:
        query = {"replica": replica["id"]}
        assert requests.get(replicas.url + "/pool.json", query, timeout=240).json()["pool"]["n_cells"] == 8192
        assert "llamacpp:" in requests.get(replicas.url + "/metrics", query, timeout=240).text


def test_a_client_that_leaves_frees_its_slot(replicas: Replicas) -> None:
    Stream(replicas, "left", 6000).close()
    until(lambda: [replica["n_running"] for replica in replicas.listed()] == [0, 0])


def test_a_replica_that_dies_ends_its_streams_with_an_error_and_the_next_request_goes_elsewhere(
    replicas: Replicas,
) -> None:
    streams = run_on_each(replicas, 6000)
    by_name = {replica["id"]: replica for replica in replicas.listed()}
    dying, living = sorted(streams)
    os.kill(by_name[dying]["process_id"], signal.SIGKILL)
    assert streams[dying].last()["error"]["code"] == 503
    # for a moment the proxy may not know yet; clients try again, as Retry-After says
    answer = until(lambda: (given := ask(replicas, streams[dying].session)).status_code == 200 and given)
    assert answer.json()["choices"]
    streams[living].close()
    until(lambda: len(replicas.listed()) == 2)


def test_a_replica_that_drains_loses_no_chat(replicas: Replicas) -> None:
    streams = run_on_each(replicas, 1500)
    replicas.scale(1)
    until(lambda: len(replicas.listed()) == 1)  # takes no new requests
    assert all(ask(replicas, f"new {number}").status_code == 200 for number in range(4))
    assert [stream.last()["choices"][0]["finish_reason"] for stream in streams.values()] == ["length", "length"]
