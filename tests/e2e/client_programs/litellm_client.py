"""litellm against the server at $URL: prints what it got (`works`), or its exceptions (`mistakes`)."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import litellm  # type: ignore[import-not-found,unused-ignore]
import openai


def ask(
    text: str = os.environ["HELLO"], key: str = os.environ["KEY"], url: str = os.environ["URL"], **options: object
) -> Any:
    request = {"messages": [{"role": "user", "content": text}], "max_tokens": 5, "temperature": 0, **options}
    return litellm.completion(model="openai/any", api_base=url, api_key=key, max_retries=0, **request)


def works() -> dict[str, object]:
    asked = [
        {"role": "user", "content": os.environ["QUESTION"]},
        {"role": "assistant", "content": os.environ["OPENING"]},
    ]
    tool = {"type": "function", "function": {"name": "rain", "parameters": json.loads(os.environ["WEATHER"])}}
    answer = ask(
        messages=asked,
        tools=[tool],
        tool_choice="required",
        max_tokens=100,
        extra_body={"cache_prompt": False},  # what is reused of a prompt changes the text a little
    )
    return {
        "whole": ask().choices[0].message.content,
        "stream": "".join(chunk.choices[0].delta.content or "" for chunk in ask(stream=True)),
        "tools": [json.loads(call.function.arguments) for call in answer.choices[0].message.tool_calls],
    }


def mistakes() -> dict[str, object]:
    return {
        "wrong key": mistake(key="wrong"),
        "too long": mistake(text=os.environ["TOO_LONG"]),
        "loading": mistake(url=os.environ["LOADING_URL"]),
    }


def mistake(**options: Any) -> list[object]:
    try:
        ask(**options)
    except openai.APIStatusError as error:  # what all of its own derive from
        return [type(error).__name__, error.status_code, str(error)]
    return []


if __name__ == "__main__":
    print(json.dumps({"works": works, "mistakes": mistakes}[sys.argv[1]]()))
