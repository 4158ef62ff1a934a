"""langchain-openai against the server at $URL: prints what it got (`works`), or its exceptions (`mistakes`)."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import openai
from langchain_openai import ChatOpenAI  # type: ignore[import-not-found,unused-ignore]


def model(key: str = os.environ["KEY"], url: str = os.environ["URL"], max_tokens: int = 5) -> Any:
    return ChatOpenAI(base_url=url, api_key=key, model="any", temperature=0, max_tokens=max_tokens, max_retries=0)


def works() -> dict[str, object]:
    weather = {"name": "rain", "description": "Weather", "parameters": json.loads(os.environ["WEATHER"])}
    caller = model(max_tokens=100).bind_tools([{"type": "function", "function": weather}], tool_choice="required")
    caller = caller.bind(extra_body={"cache_prompt": False})  # what is reused of a prompt changes the text a little
    answer = caller.invoke([("user", os.environ["QUESTION"]), ("assistant", os.environ["OPENING"])])
    return {
        "whole": model().invoke(os.environ["HELLO"]).content,
        "stream": "".join(chunk.content for chunk in model().stream(os.environ["HELLO"])),
        "tools": [call["args"] for call in answer.tool_calls],
    }


def mistakes() -> dict[str, object]:
    return {
        "wrong key": mistake(model(key="wrong"), os.environ["HELLO"]),
        "too long": mistake(model(), os.environ["TOO_LONG"]),
        "loading": mistake(model(url=os.environ["LOADING_URL"]), os.environ["HELLO"]),
    }


def mistake(asked: Any, text: str) -> list[object]:
    try:
        asked.invoke(text)
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, str(error)]
    return []


if __name__ == "__main__":
    print(json.dumps({"works": works, "mistakes": mistakes}[sys.argv[1]]()))
