"""The clients that people use work unchanged: openai-python, requests, curl."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator

import openai
import pytest
import requests
from openai.types.chat import ChatCompletionUserMessageParam

from tests.e2e.program import PATIENCE_S, ServerProcess
from tests.e2e.sse import read_stream

HELLO: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "Hi"}]
GREETING = "Hello! How can I"  # what the model says to that, greedily, in five tokens


@pytest.fixture
def client(ours: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=ours.url + "/v1", api_key="none", timeout=PATIENCE_S, max_retries=0) as client:
        yield client


def curl(*arguments: str) -> str:
    program = shutil.which("curl")
    if program is None:
        pytest.fail("curl is missing: install it (apt-get install curl)")
    done = subprocess.run(
        [program, "--silent", "--show-error", "--fail-with-body", "--no-buffer", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_openai_python_chats(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="any", messages=HELLO, max_tokens=5, temperature=0)
    assert answer.choices[0].message.content == GREETING
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 5


def test_openai_python_streams_a_chat(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="any",
            messages=HELLO,
            max_tokens=5,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    said = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(choice.delta.content or "" for choice in said) == GREETING
    assert said[0].delta.role == "assistant"
    assert [choice.finish_reason for choice in said if choice.finish_reason] == ["length"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5


def test_openai_python_completes(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="any", prompt="1, 2, 3, 4, 5, 6,", max_tokens=3, temperature=0)
    assert answer.choices[0].text == " 7,"


def test_openai_python_lists_the_model(client: openai.OpenAI) -> None:
    models = list(client.models.list())
    assert [model.id.endswith(".gguf") for model in models] == [True]
    assert models[0].owned_by == "llamacpp"


def test_openai_python_gets_its_own_exception_for_a_prompt_that_is_too_long(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="exceeds the available context size"):
        client.completions.create(model="any", prompt="long " * 600, max_tokens=1)


def test_requests_chats_and_streams(ours: ServerProcess) -> None:
    body = {"messages": HELLO, "max_tokens": 5, "temperature": 0}
    with requests.Session() as session:
        whole = session.post(ours.url + "/v1/chat/completions", json=body, timeout=PATIENCE_S)
        assert whole.json()["choices"][0]["message"]["content"] == GREETING
        streamed = session.post(
            ours.url + "/v1/chat/completions", json={**body, "stream": True}, stream=True, timeout=PATIENCE_S
        )
        stream = read_stream(streamed)
        assert stream.text == GREETING
        assert stream.is_done
        assert session.get(ours.url + "/v1/models", timeout=PATIENCE_S).json()["object"] == "list"


def test_curl_chats(ours: ServerProcess) -> None:
    body = json.dumps({"messages": HELLO, "max_tokens": 5, "temperature": 0})
    answer = json.loads(curl(ours.url + "/v1/chat/completions", "--data", body))
    assert answer["choices"][0]["message"]["content"] == GREETING


def test_curl_streams_a_completion(ours: ServerProcess) -> None:
    body = json.dumps({"prompt": "1, 2, 3, 4, 5, 6,", "n_predict": 3, "temperature": 0, "stream": True})
    events = [
        json.loads(line.removeprefix("data: "))
        for line in curl(ours.url + "/completion", "-d", body).split("\n\n")
        if line
    ]
    assert "".join(event["content"] for event in events) == " 7,"
    assert [event["stop"] for event in events] == [False, False, False, True]


def test_curl_reads_the_health_and_the_metrics(ours: ServerProcess) -> None:
    assert json.loads(curl(ours.url + "/health")) == {"status": "ok"}
    assert "llamacpp:preemptions_total 0.0" in curl(ours.url + "/metrics")
