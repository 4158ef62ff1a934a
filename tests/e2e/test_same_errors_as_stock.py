"""What is wrong with a request gets llama-server's status and error body, key by key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.comparing import CLEAR_PROMPT, CLEAR_QUESTION, assert_same_answer
from tests.e2e.program import ServerProcess

COMPLETION = {"prompt": CLEAR_PROMPT, "n_predict": 4, "temperature": 0, "cache_prompt": False}
CHAT = {
    "messages": [{"role": "user", "content": CLEAR_QUESTION}],
    "max_tokens": 4,
    "temperature": 0,
    "cache_prompt": False,
}
BODY_ROUTES = ["/completion", "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/apply-template"]
MALFORMED = [b"", b"{", b"[]", b"1", b"null", b'"x"', b"{}", b'{"a":1}', b'{"prompt":', b"\xff"]

WRONG_COMPLETION_FIELDS: list[tuple[str, Any]] = [
    ("prompt", 5),
    ("prompt", None),
    ("prompt", {}),
    ("prompt", []),
    ("prompt", [999999]),
    ("prompt", [-1]),
    ("prompt", [5] * 600),
    ("prompt", "long " * 600),
    ("n_predict", "x"),
    ("temperature", "hot"),
    ("stream", "yes"),
    ("seed", "a"),
    ("grammar", "root ::="),
    ("json_schema", {"type": "nope"}),
    ("samplers", 5),
    ("id_slot", -5),
    ("n", 0),
    ("n", 99),
    ("ignore_eos", "x"),
    ("lora", 5),
    ("repeat_last_n", -2),
    ("dry_sequence_breakers", []),
    ("response_fields", "content"),
    ("stop", 5),
    ("logit_bias", 5),
]
WRONG_CHAT_FIELDS: list[tuple[str, Any]] = [
    ("messages", []),
    ("messages", "x"),
    ("messages", [1]),
    ("messages", [{}]),
    ("messages", [{"role": "user"}]),
    ("messages", [{"role": 5, "content": "a"}]),
    ("messages", [{"role": "user", "content": 5}]),
    ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
    ("messages", [{"role": "user", "content": [{"type": "nope"}]}]),
    ("messages", [{"role": "user", "content": "long " * 600}]),
    ("messages", [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]),
    ("response_format", {"type": "nope"}),
    ("response_format", 5),
    ("tools", 5),
    ("tool_choice", "nope"),
    ("n", 5),
    ("top_logprobs", 3),
    ("chat_template_kwargs", 5),
    ("reasoning_format", "nope"),
    ("stream", "x"),
    ("stream_options", 5),
]


@pytest.mark.parametrize("path", BODY_ROUTES)
@pytest.mark.parametrize("body", MALFORMED, ids=repr)
def test_a_body_that_is_no_request(ours: ServerProcess, stock: ServerProcess, path: str, body: bytes) -> None:
    assert_same_answer(ours, stock, "POST", path, body)


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(("field", "value"), WRONG_COMPLETION_FIELDS, ids=lambda part: repr(part)[:30])
def test_a_field_of_a_completion_is_wrong(
    ours: ServerProcess, stock: ServerProcess, field: str, value: Any, is_streamed: bool
) -> None:
    assert_same_answer(ours, stock, "POST", "/completion", {**COMPLETION, "stream": is_streamed, field: value})


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(("field", "value"), WRONG_CHAT_FIELDS, ids=lambda part: repr(part)[:30])
def test_a_field_of_a_chat_is_wrong(
    ours: ServerProcess, stock: ServerProcess, field: str, value: Any, is_streamed: bool
) -> None:
    assert_same_answer(ours, stock, "POST", "/v1/chat/completions", {**CHAT, "stream": is_streamed, field: value})


@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
def test_a_prompt_longer_than_the_context_is_a_400_with_both_sizes(
    ours: ServerProcess, stock: ServerProcess, path: str
) -> None:
    status, _, body = assert_same_answer(ours, stock, "POST", path, {**COMPLETION, "prompt": [5] * 512})
    assert status == 400
    assert body["error"]["type"] == "exceed_context_size_error"
    assert (body["error"]["n_prompt_tokens"], body["error"]["n_ctx"]) == (512, 512)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nope"),
        ("POST", "/nope"),
        ("GET", "/completion"),
        ("GET", "/tokenize"),
        ("GET", "/v1/chat/completions"),
        ("PUT", "/completion"),
        ("DELETE", "/completion"),
        ("PATCH", "/completion"),
        ("HEAD", "/completion"),
        ("POST", "/health"),
        ("POST", "/v1/models"),
        ("POST", "/metrics"),
        ("POST", "/slots"),
        ("POST", "/props"),
        ("OPTIONS", "/completion"),
    ],
)
def test_an_unknown_route_or_a_wrong_method(ours: ServerProcess, stock: ServerProcess, method: str, path: str) -> None:
    assert_same_answer(ours, stock, method, path)
