"""One round of this measurement on one server, and the rounds of both in turns. Standard library only."""

from __future__ import annotations

import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tests.bench.stall.servers import running
from tests.bench.throughput.rounds import turns

REQUEST_TIMEOUT_S = 300
N_SHORT = 8  # tokens of the prompt of a new request
MEASURED = {
    "slot_save_ms": "slot save, as the server says",
    "slot_restore_ms": "slot restore, as the server says",
    "new_first_token_ms": "first token, idle slots saved",
    "control_first_token_ms": "first token, nothing to save",
    "back_first_token_ms": "first token, prompt loaded",
}


@dataclass(frozen=True)
class Load:
    """Tokens of each prompt and of each answer."""

    model: str
    n_chats: int
    n_prompt: int
    n_tokens: int
    server_flags: tuple[str, ...]

    def argv(self, program: Sequence[str], folder: str) -> list[str]:
        n_cells = (self.n_chats + 1) * (self.n_prompt + self.n_tokens + 64)
        size = ("-c", str(n_cells), "-np", str(self.n_chats), "--kv-unified", "--slot-save-path", folder)
        return [*program, "-m", self.model, *size, "--port", "0", "--host", "127.0.0.1", *self.server_flags]


def measure(programs: Mapping[str, Sequence[str]], load: Load, n_rounds: int) -> dict[str, list[dict[str, float]]]:
    """Of each program a dictionary for each round. Raises RuntimeError where a server does not answer as it should."""
    rounds: dict[str, list[dict[str, float]]] = {program: [] for program in programs}
    with ExitStack() as started:
        folder = started.enter_context(tempfile.TemporaryDirectory())
        servers = {
            program: started.enter_context(running(load.argv(words, folder), {})) for program, words in programs.items()
        }
        for i_round, program in turns(list(servers), n_rounds):
            rounds[program].append(run_round(servers[program].url, load, i_round))
            print(json.dumps({program: rounds[program][-1]}), file=sys.stderr, flush=True)
    return rounds


def run_round(url: str, load: Load, i_round: int) -> dict[str, float]:
    """The chats, which leave all slots idle, then each step once. Milliseconds."""
    first = i_round * (load.n_chats + 2)
    prompts = [prompt(first + i, load.n_prompt) for i in range(load.n_chats)]
    with ThreadPoolExecutor(load.n_chats) as pool:
        answers = list(pool.map(lambda of: complete(url, of, load.n_tokens), prompts))
    saved = post(url, "/slots/0?action=save", {"filename": "slot.bin"})
    restored = post(url, "/slots/0?action=restore", {"filename": "slot.bin"})
    new_ms, _ = timed(url, prompt(first + load.n_chats, N_SHORT))
    control_ms, _ = timed(url, prompt(first + load.n_chats + 1, N_SHORT))
    whole = [*prompts[1], *answers[1]["tokens"]]
    back_ms, back = timed(url, whole)
    n_cached = int(back["timings"]["cache_n"])
    if 2 * n_cached < len(whole):
        raise RuntimeError(
            f"of the {len(whole)} tokens of a chat that came back the server had {n_cached}: is --cache-ram on?"
        )
    return {
        "n_saved_bytes": saved["n_written"],
        "n_cached": n_cached,
        "slot_save_ms": saved["timings"]["save_ms"],
        "slot_restore_ms": restored["timings"]["restore_ms"],
        "new_first_token_ms": new_ms,
        "control_first_token_ms": control_ms,
        "back_first_token_ms": back_ms,
    }


def timed(url: str, tokens: Sequence[int]) -> tuple[float, dict[str, Any]]:
    """From the request to its first token, in milliseconds, and the answer."""
    begin_s = time.monotonic()
    answer = complete(url, tokens, 1)
    return round(1e3 * (time.monotonic() - begin_s), 3), answer


def prompt(number: int, n_tokens: int) -> list[int]:
    """One that no other number begins with."""
    return [1000 + number % 500, *(1000 + (7 * number + i) % 500 for i in range(1, n_tokens))]


def complete(url: str, tokens: Sequence[int], n_predict: int) -> dict[str, Any]:
    body = {"prompt": list(tokens), "n_predict": n_predict, "temperature": 0, "ignore_eos": True, "return_tokens": True}
    return post(url, "/completion", body)


def post(url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Raises urllib.error.URLError for an answer that is an error."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as response:
        found: dict[str, Any] = json.load(response)
    return found
