"""litellm's proxy in front of our server, asked by openai-python: chats, streams, tools, and the errors that it makes
of ours, the same as of llama-server's."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.e2e.client_environments import CLIENTS, environment, python_with
from tests.e2e.clients import CITIES, GREETING, HELLO, KEY, OPENING, QUESTION, TOO_LONG, WEATHER
from tests.e2e.program import ServerProcess, free_port

MASTER_KEY = "sk-" + secrets.token_hex(32)  # the proxy refuses one that can be guessed
CHAT: list[ChatCompletionMessageParam] = [{"role": "user", "content": HELLO}]
ASK: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": QUESTION},
    {"role": "assistant", "content": OPENING},
]
TOOLS: list[ChatCompletionToolParam] = [
    {"type": "function", "function": {"name": "rain", "description": "Weather", "parameters": WEATHER}}
]


@pytest.fixture(scope="module")
def proxy_client(
    keyed: ServerProcess,
    keyed_stock: ServerProcess,
    loading: ServerProcess,
    loading_stock: ServerProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[openai.OpenAI]:
    """A client of the proxy. Its models: ours and stock, with a right key, with a wrong one, and while they load."""
    models = {
        "ours": (keyed, KEY),
        "stock": (keyed_stock, KEY),
        "ours with a wrong key": (keyed, "wrong"),
        "stock with a wrong key": (keyed_stock, "wrong"),
        "ours still loading": (loading, KEY),
        "stock still loading": (loading_stock, KEY),
    }
    entries = [
        {"model_name": name, "litellm_params": {"model": "openai/any", "api_base": f"{server.url}/v1", "api_key": key}}
        for name, (server, key) in models.items()
    ]
    # each mistake is told at once, and one does not keep the next from being made
    settings = {"num_retries": 0, "disable_cooldowns": True}
    folder = tmp_path_factory.mktemp("proxy")
    config = {"model_list": entries, "router_settings": settings, "litellm_settings": {"num_retries": 0}}
    (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    port = free_port()
    command: list[str | Path] = [
        python_with(CLIENTS).with_name("litellm"),
        "--config",
        folder / "config.yaml",
        "--port",
        str(port),
    ]
    proxy = ServerProcess([*command, "--host", "127.0.0.1"], environment({"LITELLM_MASTER_KEY": MASTER_KEY}, folder))
    proxy.url = f"http://127.0.0.1:{port}"
    try:
        assert proxy.answer_once_it_listens("/health/liveliness").status_code == 200
        with openai.OpenAI(base_url=proxy.url, api_key=MASTER_KEY, max_retries=0) as client:
            yield client
    finally:
        proxy.kill()


def test_the_proxy_chats_and_streams(proxy_client: openai.OpenAI) -> None:
    create = proxy_client.chat.completions.create
    answer = create(model="ours", messages=CHAT, max_tokens=5, temperature=0)
    assert answer.choices[0].message.content == GREETING
    chunks = create(model="ours", messages=CHAT, max_tokens=5, temperature=0, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == GREETING


def test_the_proxy_calls_tools(proxy_client: openai.OpenAI) -> None:
    answer = proxy_client.chat.completions.create(
        model="ours",
        messages=ASK,
        tools=TOOLS,
        tool_choice="required",
        max_tokens=100,
        temperature=0,
        extra_body={"cache_prompt": False},  # what is reused of a prompt changes the text a little
    )
    calls = answer.choices[0].message.tool_calls or []
    assert [json.loads(call.function.arguments) for call in calls if call.type == "function"] == [
        {"city": city} for city in CITIES
    ]


@pytest.mark.parametrize(
    ("model", "text", "exception", "words"),
    [
        ("{}", TOO_LONG, openai.BadRequestError, "exceeds the available context size"),
        ("{} with a wrong key", "Hi", openai.AuthenticationError, "Invalid API Key"),
        ("{} still loading", "Hi", openai.InternalServerError, "Loading model"),
    ],
    ids=["too long", "wrong key", "loading"],
)
def test_the_proxy_passes_an_error_on_as_it_does_llama_server_s(
    proxy_client: openai.OpenAI, model: str, text: str, exception: type[openai.APIStatusError], words: str
) -> None:
    told = []
    for server in ("ours", "stock"):
        with pytest.raises(exception, match=words) as raised:
            proxy_client.chat.completions.create(
                model=model.format(server), messages=[{"role": "user", "content": text}], max_tokens=5
            )
        error = raised.value
        told.append((error.status_code, error.type, error.code, error.message.replace(server, "SERVER")))
    assert told[0] == told[1]
