"""A conversation about a tool, in the forms of the three chat APIs. It is begun so that the small model calls it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.e2e.program import ServerProcess
from tests.e2e.sse import post_stream

ASK = {"role": "user", "content": "Rain in Rome?"}
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome"]}}, "required": ["city"]}
TOOL = {"type": "function", "name": "rain", "description": "Weather", "parameters": CITY}
MESSAGE_TOOL = {"name": "rain", "description": "Weather", "input_schema": CITY}
THOUGHT = 'root ::= "So.\\n</think>\\n\\nNo rain."'
SAID_CALL = 'Yes.\n<tool_call>\n{"name": "rain", "arguments": {"city": "Rome"}}\n</tool_call>'
STORY = [{"role": "user", "content": "Tell me a long story about the sea and everybody who lives in it."}]


def begun(text: str) -> list[dict[str, Any]]:
    """A conversation whose last message begins the answer."""
    return [ASK, {"role": "assistant", "content": text}]


CALLS: dict[str, tuple[str, list[str]]] = {
    "a call": ("<tool_call>", ["function_call"]),
    "a call after text": ("Yes.\n<tool_call>", ["message", "function_call"]),
    "two calls": (SAID_CALL + "\n<tool_call>", ["message", "function_call", "function_call"]),
}


def both(tight: ServerProcess, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of one of two streams that run at once."""
    with ThreadPoolExecutor(2) as threads:
        streams = list(threads.map(lambda _: post_stream(tight, path, body), range(2)))
    return streams[0].events
