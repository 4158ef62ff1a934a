"""What an answer of the Responses and the Messages API says, streamed or not, without the frame around it.

llama-server's streams of these APIs miss fields that strict clients want, so only this can be the same.
"""

from __future__ import annotations

import json
from typing import Any

Part = tuple[str, str]  # a kind, and its text; of a call the function's name is in front
_DELTAS = {
    "response.reasoning_text.delta": ("reasoning", "delta"),
    "response.output_text.delta": ("text", "delta"),
    "response.function_call_arguments.delta": ("call", "delta"),
    "thinking_delta": ("reasoning", "thinking"),
    "text_delta": ("text", "text"),
    "input_json_delta": ("call", "partial_json"),
}


def told(answer: Any) -> Any:
    """Of [status, content type, body] the body without its frame; an error as it is."""
    status, content_type, body = answer
    if status != 200:
        return answer
    inner = body.get("events", body)
    return [status, content_type, {"said": said(inner), **counts(inner)}]


def said(answer: Any) -> list[Part]:
    """The parts in their order, of a whole answer or of the list of a stream's events."""
    if isinstance(answer, list):
        return _said_in_stream(answer)
    return [part for item in answer.get("output", answer.get("content", [])) for part in _said_by(item)]


def counts(answer: Any) -> dict[str, Any]:
    """Tokens in and out, and why it ended."""
    if isinstance(answer, dict):
        return _counted(answer)
    last = [
        event.get("response") or event for event in answer if event["type"] in ("response.completed", "message_delta")
    ]
    return _counted(last[-1])


def _counted(end: dict[str, Any]) -> dict[str, Any]:
    reason = end.get("stop_reason") or end.get("delta", {}).get("stop_reason")
    return {"n_out": end["usage"]["output_tokens"], "reason": reason}


def _said_by(item: dict[str, Any]) -> list[Part]:
    match item["type"]:
        case "reasoning":
            return [("reasoning", part["text"]) for part in item["content"]]
        case "message":
            return [("text", part["text"]) for part in item["content"]]
        case "function_call":
            return [("call", item["name"] + _tidy(item["arguments"]))]
        case "thinking":
            return [("reasoning", item["thinking"])]
        case "text":
            return [("text", item["text"])]
        case "tool_use":
            return [("call", item["name"] + json.dumps(item["input"]))]
    raise AssertionError(f"unknown item {item}")


def _said_in_stream(events: list[dict[str, Any]]) -> list[Part]:
    parts: list[list[str]] = []
    for event in events:
        opened = event.get("item") if event["type"] == "response.output_item.added" else event.get("content_block")
        if opened and opened["type"] in ("function_call", "tool_use"):
            parts.append(["call", opened["name"], ""])
        delta = event if event["type"] in _DELTAS else event.get("delta")
        if isinstance(delta, dict) and delta.get("type") in _DELTAS:
            kind, key = _DELTAS[delta["type"]]
            if not parts or parts[-1][0] != kind:
                parts.append([kind, "", ""])
            parts[-1][2] += delta[key]
    return [(kind, name + (_tidy(text) if kind == "call" else text)) for kind, name, text in parts]


def _tidy(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments))
    except ValueError:
        return json.dumps({})  # cut in the middle: Messages shows no part of it
