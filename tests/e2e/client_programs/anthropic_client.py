"""anthropic-python against the server at $URL: prints its exceptions (`mistakes`)."""

from __future__ import annotations

import json
import os

import anthropic


def mistakes() -> dict[str, object]:
    return {
        "wrong key": mistake(key="wrong"),
        "too long": mistake(text=os.environ["TOO_LONG"]),
        "loading": mistake(url=os.environ["LOADING_URL"]),
    }


def mistake(
    text: str = os.environ["HELLO"], key: str = os.environ["KEY"], url: str = os.environ["URL"]
) -> list[object]:
    with anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key=key, max_retries=0) as client:
        try:
            client.messages.create(model="any", messages=[{"role": "user", "content": text}], max_tokens=5)
        except anthropic.APIStatusError as error:
            return [type(error).__name__, error.status_code, str(error)]
    return []


if __name__ == "__main__":
    print(json.dumps(mistakes()))
