"""An agent: the model calls tools until it can answer. Two tools run here, the answer comes from the model.

    ./scripts/serve --jinja                                # in another terminal
    .venv/bin/python examples/agent_with_tools.py QUESTION [URL]      # URL: http://127.0.0.1:8080/v1

Prints each call with its result, then the answer. A small model needs help: the first turn *must* call a tool
(`tool_choice="required"`), later turns may.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openai import OpenAI

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam, ChatCompletionToolParam

URL = "http://127.0.0.1:8080/v1"
MAX_TURNS = 4
MAX_TOKENS = 200


def current_time() -> str:
    """The time now, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def list_files(folder: str = ".") -> list[str]:
    """The names of the files in a folder."""
    return sorted(path.name for path in Path(folder).iterdir() if path.is_file())


TOOLS: dict[str, Callable[..., object]] = {"current_time": current_time, "list_files": list_files}
PARAMETERS: dict[str, dict[str, object]] = {
    "current_time": {},
    "list_files": {"folder": {"type": "string", "description": "a path; . is the current folder"}},
}


def declarations() -> list[ChatCompletionToolParam]:
    """The tools in OpenAI's form."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": tool.__doc__ or "",
                "parameters": {"type": "object", "properties": PARAMETERS[name]},
            },
        }
        for name, tool in TOOLS.items()
    ]


def call(name: str, arguments: str) -> str:
    """Runs a tool; an error is a result too, so that the model can try again."""
    try:
        result = TOOLS[name](**json.loads(arguments or "{}"))
    except (KeyError, TypeError, ValueError, OSError) as error:
        result = f"error: {error!r}"
    return json.dumps(result)


def run_tools(message: ChatCompletionMessage) -> list[ChatCompletionMessageParam]:
    """One message for each call of the model's message."""
    results: list[ChatCompletionMessageParam] = []
    for one in message.tool_calls or []:
        if one.type == "function":
            result = call(one.function.name, one.function.arguments)
            print(f"{one.function.name}({one.function.arguments}) -> {result}")
            results.append({"role": "tool", "tool_call_id": one.id, "content": result})
    return results


def main(question: str, url: str = URL) -> None:
    client = OpenAI(base_url=url, api_key="none")
    messages: list[Any] = [{"role": "user", "content": question}]
    for turn in range(MAX_TURNS):
        message = (
            client.chat.completions.create(
                model="default",
                messages=messages,
                tools=declarations(),
                tool_choice=("required", "auto")[min(turn, 1)] if turn < MAX_TURNS - 1 else "none",
                max_tokens=MAX_TOKENS,
            )
            .choices[0]
            .message
        )
        messages.append(message.to_dict())
        results = run_tools(message)
        if not results:
            print(message.content)
            return
        messages += results
    print(f"no answer after {MAX_TURNS} turns")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:3])
