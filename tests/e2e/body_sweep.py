"""Bodies of every endpoint with one field of a wrong type, and which statuses they get."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import requests

PATIENCE_S = 120.0
N_AT_ONCE = 4
WRONG: list[Any] = [None, True, 5, -1, 1.5, 2**64, 1e300, "x", "", "\ud800", [], [None], [[5]], [{}], {}, {"a": None}]

MESSAGES = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
SAMPLING: dict[str, Any] = {
    "temperature": 0,
    "top_k": 1,
    "top_p": 1,
    "seed": 1,
    "stop": ["!"],
    "logit_bias": [[5, 1]],
    "n_probs": 1,
    "samplers": ["top_k"],
    "ignore_eos": False,
    "cache_prompt": False,
    "id_slot": -1,
    "lora": [],
    "dry_sequence_breakers": ["\n"],
    "preserved_tokens": [],
    "response_fields": [],
    "n": 1,
    "timings_per_token": False,
    "return_progress": False,
    "chat_format": 0,
    "reasoning_format": "none",
    "reasoning_budget_tokens": -1,
}
COMPLETION = {"prompt": "Hi", "n_predict": 1, "json_schema": None, "grammar": "", **SAMPLING}
CHAT = {
    "messages": MESSAGES,
    "max_tokens": 1,
    "tools": [TOOL],
    "tool_choice": "auto",
    "response_format": {"type": "text"},
    "stream_options": {"include_usage": True},
    "chat_template_kwargs": {},
    "logprobs": False,
    "top_logprobs": None,
    "parallel_tool_calls": True,
    "reasoning_effort": "low",
    **SAMPLING,
}
RESPONSE = {
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "1"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Ho"}]},
        {"role": "user", "content": "Hi"},
    ],
    "instructions": "Be short.",
    "max_output_tokens": 1,
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    "tool_choice": "auto",
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": "low"},
    "metadata": {},
    "previous_response_id": None,
    "parallel_tool_calls": True,
    "temperature": 0,
    "top_p": 1,
}
MESSAGE = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "i", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": "1"}]},
    ],
    "max_tokens": 1,
    "system": "Be short.",
    "stop_sequences": ["!"],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "enabled", "budget_tokens": 10},
    "metadata": {"user_id": "u"},
    "temperature": 0,
    "top_k": 1,
    "top_p": 1,
}

GENERATING: dict[str, dict[str, Any]] = {
    "/completion": COMPLETION,
    "/v1/completions": COMPLETION,
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSE,
    "/v1/messages": MESSAGE,
    "/infill": {"input_prefix": "a", "input_suffix": "b", "input_extra": [], "prompt": "c", "n_predict": 1},
    "/tokenize": {"content": "Hi", "add_special": True, "parse_special": True, "with_pieces": True},
    "/detokenize": {"tokens": [5, 6]},
    "/apply-template": {"messages": MESSAGES, "tools": [TOOL]},
    "/v1/chat/completions/input_tokens": {"messages": MESSAGES, "tools": [TOOL]},
    "/v1/responses/input_tokens": RESPONSE,
    "/v1/messages/count_tokens": MESSAGE,
    "/v1/chat/completions/control": {"id": "chatcmpl-1", "action": "reasoning_end"},
    "/v1/streams/lookup": {"conversation_ids": ["a"]},
    "/lora-adapters": {},
    "/slots/0?action=save": {"filename": "a"},
    "/slots/0?action=restore": {"filename": "a"},
    "/props": {},
}
EMBEDDING: dict[str, dict[str, Any]] = {
    "/embedding": {"content": "Hi", "embd_normalize": 2},
    "/v1/embeddings": {"input": "Hi", "encoding_format": "float", "dimensions": 3, "model": "m"},
}
RERANKING: dict[str, dict[str, Any]] = {
    "/v1/rerank": {"query": "Hi", "documents": ["a"], "top_n": 1, "return_text": True},
    "/rerank": {"query": "Hi", "texts": ["a"], "top_n": 1, "return_text": True},
}


def wrong_bodies(path: str, body: dict[str, Any]) -> Iterator[bytes]:
    """The bodies for one path: no object at all, and the body with each of its values, at any depth, replaced by each
    wrong one, and left out."""
    yield from (b"", b"{", b"\xff", *(json.dumps(value).encode() for value in WRONG))
    for changed in _changes(body):
        yield json.dumps({**changed, "stream": False} if path.startswith("/v1/") else changed).encode()


def _changes(value: Any) -> Iterator[Any]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        for wrong in WRONG:
            yield _with(value, key, wrong)
        for inner in _changes(value[key]):
            yield _with(value, key, inner)
        if isinstance(value, dict):
            yield {name: kept for name, kept in value.items() if name != key}


def _with(value: Any, key: Any, inner: Any) -> Any:
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[key] = inner
    return copied


def sweep(url: str, bodies: dict[str, dict[str, Any]]) -> dict[str, list[tuple[int, bytes, str]]]:
    """Status, body and answer of each, by path. The status is 0 where the server closes the connection or is gone."""
    with requests.Session() as session, ThreadPoolExecutor(N_AT_ONCE) as threads:

        def answer(path: str, wrong: bytes) -> tuple[int, bytes, str]:
            try:
                response = session.post(url + path, data=wrong, timeout=PATIENCE_S)
            except requests.ConnectionError as error:
                return 0, wrong, str(error)
            return response.status_code, wrong, response.text

        return {
            path: list(threads.map(partial(answer, path), wrong_bodies(path, body))) for path, body in bodies.items()
        }


def counts(found: dict[str, list[tuple[int, bytes, str]]]) -> dict[str, dict[str, int]]:
    """How many bodies each status answered, by path."""
    return {
        path: {str(status): n for status, n in sorted(Counter(status for status, _, _ in answers).items())}
        for path, answers in found.items()
    }


def table(found: dict[str, dict[str, int]]) -> str:
    """One line per path."""
    lines = []
    for path, by_status in found.items():
        lines.append(f"{path:40}" + "".join(f"  {status}: {n:4}" for status, n in by_status.items()))
    return "\n".join(lines)
