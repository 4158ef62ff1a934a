"""A chat in the terminal with the openai package. Each line that you type is a question; an empty line ends it.

    ./scripts/serve                                        # in another terminal
    .venv/bin/python examples/chat.py [URL]                # URL: http://127.0.0.1:8080/v1

The answer appears while it is generated. If the pool is full, the server may park your chat: the answer pauses and then
continues. Your code needs nothing for that.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from openai import OpenAI

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam

URL = "http://127.0.0.1:8080/v1"
MAX_TOKENS = 200


def answer(client: OpenAI, messages: list[ChatCompletionMessageParam]) -> str:
    """Prints the answer as it comes; returns all of it."""
    text = ""
    stream = client.chat.completions.create(model="default", messages=messages, max_tokens=MAX_TOKENS, stream=True)
    for chunk in stream:
        new = (chunk.choices[0].delta.content if chunk.choices else None) or ""
        print(new, end="", flush=True)
        text += new
    print()
    return text


def main(url: str) -> None:
    # The server asks for a key only if it was started with --api-key.
    client = OpenAI(base_url=url, api_key="none")
    messages: list[ChatCompletionMessageParam] = []
    while question := read_question():
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": answer(client, messages)})


def read_question() -> str:
    print("> ", end="", flush=True)
    return sys.stdin.readline().strip()


if __name__ == "__main__":
    main(*sys.argv[1:2] or [URL])
