"""Parks one running chat by hand, lets another have the whole machine, and calls the first one back.

    ./scripts/serve -c 2048 -np 2 --kv-unified            # in another terminal
    .venv/bin/python examples/park_by_hand.py [URL]       # URL: http://127.0.0.1:8080

Prints what is said of both, and the first chat's text from before and after it was parked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import httpx2

URL = "http://127.0.0.1:8080"
PROMPT = {"n_predict": 64, "ignore_eos": True}


def stream(client: httpx2.Client, prompt: str, slot_id: int) -> Iterator[str]:
    """The pieces of an answer, and the comments `: preempted` and `: resumed` between them."""
    body = {**PROMPT, "prompt": prompt, "id_slot": slot_id, "stream": True}
    with client.stream("POST", "/completion", json=body) as response:
        for line in response.iter_lines():
            if line.startswith(":"):
                yield line
            elif line:
                yield json.loads(line.removeprefix("data: "))["content"]


def act(client: httpx2.Client, slot_id: int, action: str) -> None:
    """Park what the slot works on, or call it back. Raises httpx2.HTTPStatusError, whose response says why not."""
    answer = client.post(f"/slots/{slot_id}", params={"action": action}).raise_for_status().json()
    print(f"{action}: slot {slot_id} is {answer['state']}")


def main(url: str = URL) -> None:
    with httpx2.Client(base_url=url, timeout=None) as client:
        first = stream(client, "Once upon a time", 0)
        begin = [next(first) for _ in range(8)]
        act(client, 0, "park")
        answer = client.post("/completion", json={**PROMPT, "prompt": "The sea", "id_slot": 1}).raise_for_status()
        print("meanwhile: The sea" + answer.json()["content"])
        act(client, 0, "unpark")
        print("Once upon a time" + "".join(begin) + "".join(first))


if __name__ == "__main__":
    main(*sys.argv[1:2])
