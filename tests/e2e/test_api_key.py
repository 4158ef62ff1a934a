"""With --api-key, who has no key gets llama-server's refusal, and who has one is served."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.e2e.comparing import assert_same_answer
from tests.e2e.conftest import StartServer
from tests.e2e.program import ServerProcess

KEY = "sesame"


@pytest.fixture(scope="module")
def locked(start_ours: StartServer) -> Iterator[ServerProcess]:
    with start_ours("--api-key", f"{KEY},other") as server:
        yield server


@pytest.fixture(scope="module")
def locked_stock(start_stock: StartServer) -> Iterator[ServerProcess]:
    with start_stock("--api-key", f"{KEY},other") as server:
        yield server


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": KEY + "x"}, 401),
        ({"Authorization": f"Bearer {KEY}"}, 200),
        ({"Authorization": "Bearer other"}, 200),
        ({"X-Api-Key": KEY}, 200),
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/tokenize", "/completion", "/v1/chat/completions"])
def test_a_key_is_asked_for(
    locked: ServerProcess, locked_stock: ServerProcess, path: str, headers: dict[str, str], expected: int
) -> None:
    body = {
        "content": "a",
        "prompt": "1, 2, 3, 4, 5,",
        "messages": [{"role": "user", "content": "Hi"}],
        "n_predict": 2,
        "temperature": 0,
        "cache_prompt": False,
    }
    assert assert_same_answer(locked, locked_stock, "POST", path, body, headers=headers)[0] == expected


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/v1/models", "/models", "/props", "/slots", "/nope"])
def test_which_routes_are_open(locked: ServerProcess, locked_stock: ServerProcess, path: str) -> None:
    assert_same_answer(locked, locked_stock, "GET", path)


def test_openai_python_sends_its_key(locked: ServerProcess) -> None:
    with openai.OpenAI(base_url=locked.url + "/v1", api_key=KEY, max_retries=0) as client:
        answer = client.completions.create(model="any", prompt="1, 2, 3, 4, 5,", max_tokens=1, temperature=0)
    assert answer.choices[0].text == " "


def test_openai_python_raises_its_own_exception_for_a_wrong_key(locked: ServerProcess) -> None:
    with (
        openai.OpenAI(base_url=locked.url + "/v1", api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError, match="Invalid API Key"),
    ):
        client.completions.create(model="any", prompt="1, 2, 3,", max_tokens=1)
