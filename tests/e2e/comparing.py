"""What the two servers' answers must have in common: all of it, but for times, random ids and slot numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests

from tests.e2e.program import PATIENCE_S, ServerProcess
from tests.e2e.sse import EventStream, read_stream

# random, or the time of day
VOLATILE_KEYS = frozenset({"id", "created", "media_marker", "item_id", "call_id", "created_at", "completed_at"})
TIME_SUFFIXES = ("_ms", "_per_second")
RELATIVE_TOLERANCE = 0.01
ABSOLUTE_TOLERANCE = 0.01
_second_thread = ThreadPoolExecutor(1, "stock")

# Its first eight tokens have no near tie at temperature 0. The last bits of a logit depend on where in the pool the
# cells lie, and so on the tests before: after "Hi" two words are 0.04 apart.
CLEAR_QUESTION = "Repeat: a, b, c, d, e, f"
CLEAR_PROMPT = "1, 2, 3, 4, 5, 6,"  # the same of a prompt without a template


def ask(server: ServerProcess, method: str, path: str, body: object = None, **options: Any) -> Any:
    """Status, content type and normalised body of one request. `body` is JSON, or bytes to be sent as they are."""
    content = {"data": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
    with requests.request(method, server.url + path, timeout=PATIENCE_S, stream=True, **content, **options) as response:
        content_type = response.headers.get("content-type")
        if content_type == "text/event-stream":
            return [response.status_code, content_type, normalised(by_index(read_stream(response)))]
        try:
            answer = response.json()
        except requests.JSONDecodeError:
            answer = response.text
        return [response.status_code, content_type, normalised(answer)]


def ask_both(ours: ServerProcess, stock: ServerProcess, *request: Any, **options: Any) -> tuple[Any, Any]:
    """The answers of both, which compute at the same time, each on its one thread."""
    theirs = _second_thread.submit(ask, stock, *request, **options)
    return ask(ours, *request, **options), theirs.result()


def by_index(stream: EventStream) -> dict[str, Any]:
    """The events of each choice in order: which of two running choices speaks first depends on their slots."""
    events = sorted(stream.events, key=_index_of)
    return {"events": events, "names": stream.names, "comments": stream.comments, "is_done": stream.is_done}


def normalised(value: Any, key: str = "") -> Any:
    """The value with what differs from run to run replaced by the name of its type."""
    if isinstance(value, dict):
        return {name: normalised(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [normalised(inner) for inner in value]
    if key in VOLATILE_KEYS or key.endswith(TIME_SUFFIXES):
        return type(value).__name__
    if key == "id_slot" and value >= 0:
        return "a slot"
    return value


def differences(ours: Any, stock: Any, where: str = "$") -> Iterator[str]:
    """One line per leaf, length, or order of keys that is not the same."""
    if isinstance(ours, dict) and isinstance(stock, dict):
        if list(ours) != list(stock):
            yield f"{where}: keys {list(ours)}, stock's {list(stock)}"
        for key in ours.keys() & stock.keys():
            yield from differences(ours[key], stock[key], f"{where}.{key}")
    elif isinstance(ours, list) and isinstance(stock, list):
        if len(ours) != len(stock):
            yield f"{where}: {len(ours)} items, stock's {len(stock)}"
        for i, (our_item, stock_item) in enumerate(zip(ours, stock, strict=False)):
            yield from differences(our_item, stock_item, f"{where}[{i}]")
    elif not _is_same(ours, stock):
        yield f"{where}: {ours!r}, stock's {stock!r}"


def assert_same_answer(ours: ServerProcess, stock: ServerProcess, *request: Any, **options: Any) -> Any:
    """Ask both; they answer the same, but for what is meant to differ. Returns ours: [status, content type, body]."""
    our_answer, theirs = ask_both(ours, stock, *request, **options)
    found = list(unmeant_differences(our_answer, theirs))
    assert not found, "\n".join(found)
    return our_answer


def unmeant_differences(ours: Any, stock: Any) -> Iterator[str]:
    """`differences` of two answers, without the intentional ones of docs/reference.md."""
    return differences(_without_usage_of_several(ours), _without_usage_of_several(_as_bodys_fault(stock)))


def _as_bodys_fault(answer: Any) -> Any:
    """llama-server answers 500 for much that is wrong with a body, with the same message as the 400 here."""
    status, content_type, body = answer
    if status != 500 or " input is not supported" in body["error"]["message"]:
        return answer
    return [400, content_type, {"error": {**body["error"], "code": 400, "type": "invalid_request_error"}}]


def _without_usage_of_several(answer: Any) -> Any:
    """With several choices llama-server counts one of them, and in streams of completions it counts without being
    asked."""
    status, content_type, body = answer
    if not isinstance(body, dict):
        return answer
    events = body.get("events")
    if events is None:
        several = len(body.get("choices", ())) > 1
        return [status, content_type, {k: v for k, v in body.items() if k != "usage"}] if several else answer
    indices = {choice["index"] for event in events for choice in event.get("choices", ())}
    if len(indices) > 1 or any(event.get("object") == "text_completion" for event in events):
        counted = ("usage", "timings")
        kept = [event for event in events if event.get("choices") != []]
        events = [{key: value for key, value in event.items() if key not in counted} for event in kept]
    return [status, content_type, {**body, "events": events}]


def _is_same(ours: Any, stock: Any) -> bool:
    if isinstance(ours, float) and isinstance(stock, float):
        return math.isclose(ours, stock, rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE)
    return type(ours) is type(stock) and bool(ours == stock)


def _index_of(event: dict[str, Any]) -> float:
    if "type" in event:  # of an API with one choice: its `index` counts blocks
        return 0
    choices = event.get("choices")
    if choices == [] or "error" in event:  # the usage or the error that closes the whole stream
        return math.inf
    return int(choices[0]["index"]) if choices else int(event.get("index", 0))
