"""Users in conversation with one replica, on the planner's own `decide`. No clock and no model: the same everywhere.

Conversations stay on their replica, so what one replica does with its share of the users is what all do. To be quick
the model engine counts in blocks of 16 tokens: a block is a cell, and a pass is 16 steps.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from statistics import mean
from typing import Any

from pyggml_server.planner import Policy

from tests.planner.model_engine import ModelEngine
from tests.planner.model_pool import Copies, Setup
from tests.planner.model_slot import ModelSlot, Request

N_BLOCK_TOKENS = 16
STEP_S = 64 / 5001  # of 64 chats: throughput-h200.json, greedy
CELL_BYTES = 147_456  # a model of a 4B's shape: docs/measurements.md
PASS_S = STEP_S * N_BLOCK_TOKENS
DURATION_S = 600.0
WARM_UP_S = 120.0  # what ends before it is not counted: all users begin together

# all in blocks
N_OPENING = 32
FEWEST_ASKED, MOST_ASKED = 3, 25
FEWEST_ANSWERED, MOST_ANSWERED = 6, 38
N_TURNS = 8
MEAN_THINK_S = 40.0


@dataclass(frozen=True, slots=True)
class Replica:
    """What one replica has."""

    n_cells: int = 65536
    n_slots: int = 64
    host_bytes: int = 16 << 30

    def setup(self) -> Setup:
        return Setup(
            n_cells=self.n_cells // N_BLOCK_TOKENS,
            n_slots=self.n_slots,
            n_batch=512,  # tokens of prompts in each step, 16 steps
            copies=Copies.STAGED,
            n_passes_per_copy=1,
            ram_limit=self.host_bytes // (CELL_BYTES * N_BLOCK_TOKENS),
            pass_s=PASS_S,
        )


class ConversationEngine(ModelEngine):
    """A model engine whose requests belong to conversations: each gets the slot that holds most of its prompt."""

    def __init__(self, setup: Setup, policy: Policy) -> None:
        super().__init__(setup, policy)
        self.conversation_of: dict[int, int] = {}  # by the request's order
        self._held: dict[int, int] = {}  # the conversation of a slot's cells, by slot
        self.n_reused: dict[int, int] = {}  # blocks that a request found, by order
        self.largest_ram_held = 0
        self.used: list[int] = []

    def ask(self, conversation: int, n_prompt: int, n_generate: int) -> Request:
        request = self.submit(n_prompt, n_generate)
        self.conversation_of[request.order] = conversation
        return request

    def step(self) -> None:
        super().step()
        self.largest_ram_held = max(self.largest_ram_held, self.ram_held)
        self.used.append(sum(s.n_cells for s in self.slots if s.request and s.is_in_pool))

    def _seat(self, family: list[Request], free: list[ModelSlot]) -> None:
        request = family[0]
        conversation = self.conversation_of[request.order]
        own = [slot for slot in free if self._held.get(slot.slot_id) == conversation]
        slot = max(own, key=lambda slot: slot.n_cells, default=free[0])
        free.remove(slot)
        n_found = min(slot.n_cells, request.n_prompt - 1) if own else 0
        super()._seat(family, [slot])
        slot.n_kept = n_found
        self.n_reused[request.order] = n_found
        self._held[slot.slot_id] = conversation


@dataclass(slots=True)
class _User:
    conversation: int
    n_turns: int = 0
    n_context: int = N_OPENING


def simulate_users(n_users: int, replica: Replica, seed: int = 5) -> dict[str, Any]:
    """What users get of one replica, times in seconds, rates in tokens per second. Raises InvariantError when the
    planner breaks a rule."""
    draw = random.Random(seed)
    engine = ConversationEngine(replica.setup(), Policy(rotate_s=30.0))
    users = [_User(i) for i in range(n_users)]
    coming = [(draw.expovariate(1 / MEAN_THINK_S), i) for i in range(n_users)]
    heapq.heapify(coming)
    asked: dict[int, int] = {}  # the user by the request's order
    n_seen = 0
    while engine.now_s < DURATION_S:
        while coming and coming[0][0] <= engine.now_s:
            _, i = heapq.heappop(coming)
            user = users[i]
            user.n_context += draw.randint(FEWEST_ASKED, MOST_ASKED)
            request = engine.ask(user.conversation, user.n_context, draw.randint(FEWEST_ANSWERED, MOST_ANSWERED))
            asked[request.order] = i
        engine.step()
        for order in [order for order in asked if engine.requests[order - 1].endings]:
            i = asked.pop(order)
            _read(users[i], engine.requests[order - 1], n_users + n_seen)
            n_seen += 1
            heapq.heappush(coming, (engine.now_s + draw.expovariate(1 / MEAN_THINK_S), i))
    return {"users": n_users, **_numbers(engine, replica)}


def _read(user: _User, request: Request, next_conversation: int) -> None:
    """The user reads the answer, and begins anew after some turns."""
    user.n_turns += 1
    user.n_context += request.n_generate
    if user.n_turns == N_TURNS:
        user.conversation, user.n_turns, user.n_context = next_conversation, 0, N_OPENING


def _numbers(engine: ConversationEngine, replica: Replica) -> dict[str, Any]:
    ended = [r for r in engine.requests if r.ended_s is not None and r.ended_s > WARM_UP_S]
    finished = [r for r in ended if r.endings == ["finished"]]
    first_s = [r.first_token_s - r.arrived_s for r in finished if r.first_token_s is not None]
    rates = [
        r.n_generate * N_BLOCK_TOKENS / (r.ended_s - r.first_token_s + PASS_S)
        for r in finished
        if r.ended_s is not None and r.first_token_s is not None
    ]
    again = [r for r in finished if r.n_prompt > N_OPENING + MOST_ASKED]  # not the first of their conversation
    n_reused = sum(engine.n_reused[r.order] for r in again)
    return {
        "answers": len(finished),
        "failed": len(ended) - len(finished),
        "unfinished": sum(not r.endings for r in engine.requests),
        "first_token_p50_s": _part(first_s, 0.5),
        "first_token_p95_s": _part(first_s, 0.95),
        "rate_p50": _part(rates, 0.5),
        "rate_p5": _part(rates, 0.05),
        "parks_per_answer": round(engine.counts.get("Park", 0) / max(1, len(engine.requests)), 3),
        "longest_parked_s": round(engine.longest_wait_s, 1),
        "recomputes": engine.counts.get("Recompute", 0),
        "cached_share": round(n_reused / sum(r.n_prompt for r in again), 3) if again else None,
        "pool_share_of_running": round(mean(engine.used) * N_BLOCK_TOKENS / replica.n_cells, 3),
        "most_host_gib": round(engine.largest_ram_held * N_BLOCK_TOKENS * CELL_BYTES / (1 << 30), 2),
    }


def _part(values: list[float], part: float) -> float:
    """The value that so large a part of them does not exceed."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 2) if ordered else 0.0
