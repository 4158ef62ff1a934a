"""Without preemption both servers reuse the same prompts, token for token, whatever came before: which slot a request
gets, which prompts others lose and what the prompt cache brings back are llama-server's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.comparing import ask, differences
from tests.e2e.conftest import StartServer
from tests.e2e.program import ServerProcess

N_REQUESTS = 30
N_CELLS = 256
SEED = 7

Pair = tuple[ServerProcess, ServerProcess]


@pytest.fixture(scope="module", params=["0", "8192"], ids=["slots only", "prompt cache"])
def servers(request: pytest.FixtureRequest, start_ours: StartServer, start_stock: StartServer) -> Iterator[Pair]:
    """Ours and stock, fresh ones: what they hold is what this test gave them."""
    flags = ("-c", str(N_CELLS), "--cache-ram", request.param)
    with ExitStack() as stack:
        yield (
            stack.enter_context(start_ours(*flags, "--preempt-ram", "0")),
            stack.enter_context(start_stock(*flags)),
        )


def conversations() -> Iterator[dict[str, Any]]:
    """Prompts that begin alike, go on from each other's answers, are too long, want a slot or several answers; more of
    them than the pool holds."""
    draw = random.Random(SEED)
    openings = [[draw.randrange(1000, 2000) for _ in range(draw.randrange(15, 45))] for _ in range(9)]
    for _ in range(N_REQUESTS):
        opening = draw.choice(openings)
        rest = [draw.randrange(2000, 3000) for _ in range(draw.randrange(1, 20))]
        prompt = opening[: draw.randrange(len(opening) // 3, len(opening) + 1)] + rest
        kind = draw.choice(["plain", "plain", "plain", "grows", "slot", "too long", "several", "uncached"])
        if kind == "grows":
            opening += rest[:10]
        options: dict[str, dict[str, Any]] = {
            "slot": {"id_slot": draw.randrange(4)},
            "too long": {"prompt": prompt * (N_CELLS // len(prompt) + 1)},
            "several": {"n_cmpl": 2},
            "uncached": {"cache_prompt": False},
        }
        body = {"prompt": prompt, "n_predict": 3, "n_probs": 1, "temperature": 0, "ignore_eos": True}
        yield {**body, **options.get(kind, {})}


def test_as_much_of_each_prompt_is_reused(servers: Pair) -> None:
    n_reused, found = 0, []
    for i, body in enumerate(conversations()):
        ours, stock = (ask(server, "POST", "/completion", body) for server in servers)
        lines = list(differences(ours, stock))
        if lines:
            found.append(f"request {i}, {len(body['prompt'])} tokens:\n    " + "\n    ".join(lines[:5]))
        if isinstance(ours[2], dict):
            n_reused += ours[2].get("timings", {}).get("cache_n", 0)
    assert not found, "\n".join(found)
    assert n_reused > 0
