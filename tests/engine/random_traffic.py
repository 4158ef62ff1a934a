"""Random requests for an engine whose pool and budget are too small for them. The same seed gives the same ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyggml_server.config import PreemptOptions, ServeOptions
from pyggml_server.messages import Cancelled, Failed, Finished, HoldSlot

from tests.engine.harness import EngineHarness, Running

PREFIXES = ["The lighthouse keeper wrote in his diary that ", "List of all colours: ", "Dear Sir, ", ""]
ROOM_ERRORS = (
    "Context size has been exceeded.",
    "exceeds the available context size",
    # llama-server's own: several answers to one prompt, one of which has filled its context where contexts are shifted
    "context shift cannot be used for shared prompt",
    "the server is busy: ",
)


@dataclass(frozen=True)
class Traffic:
    """One kind of server and its load."""

    name: str
    argv: Sequence[str]
    preempt: PreemptOptions
    n_requests: int = 10
    max_prompt: int = 150
    max_predict: int = 30
    serve: ServeOptions = field(default_factory=ServeOptions)
    priorities: Sequence[int] = (0,)
    by_hand_share: float = 0.0  # of requests at whose start a slot is parked by hand, or called back

    def with_everything(self) -> Traffic:
        """The same with classes that age, a short line, slots parked by hand, and states and prompts in files."""
        preempt = replace(self.preempt, priority_age_s=0.5, disk_mib=20, cache_disk_mib=8)
        serve = ServeOptions(max_queue=6, max_queue_s=20.0)
        argv = [*self.argv, "--cache-ram", "3"]  # one prompt, or a few short ones
        return replace(self, argv=argv, preempt=preempt, serve=serve, priorities=(-1, 0, 0, 3), by_hand_share=0.4)

    def in_folder(self, folder: Path) -> Traffic:
        """The same with its files there."""
        return replace(self, preempt=replace(self.preempt, disk_path=str(folder)))


KINDS = [
    Traffic("tiny budget", ["-c", "512", "-np", "4"], PreemptOptions(ram_mib=5)),
    Traffic("one mebibyte", ["-c", "512", "-np", "4"], PreemptOptions(ram_mib=1)),
    Traffic("small batches", ["-c", "512", "-np", "4", "-b", "64", "-ub", "64"], PreemptOptions(), max_prompt=480),
    Traffic("sixteen slots", ["-c", "512", "-np", "16"], PreemptOptions(), n_requests=20),
    Traffic("forced", ["-c", "768", "-np", "4"], PreemptOptions(every_n_tokens=2)),
    Traffic("forced, tiny budget", ["-c", "512", "-np", "4"], PreemptOptions(every_n_tokens=3, ram_mib=2)),
    Traffic("rotation", ["-c", "512", "-np", "4"], PreemptOptions(rotate_s=0.05), max_predict=80),
    Traffic(
        "rotation, budget for one", ["-c", "512", "-np", "4"], PreemptOptions(rotate_s=0.02, ram_mib=9), max_predict=80
    ),
    Traffic("shifts", ["-c", "256", "-np", "3", "--context-shift", "-b", "64"], PreemptOptions(), max_predict=200),
    Traffic(
        "shifts, forced", ["-c", "256", "-np", "3", "--context-shift"], PreemptOptions(every_n_tokens=5), n_requests=10
    ),
    Traffic("no continuous batching", ["-c", "512", "-np", "4", "-nocb"], PreemptOptions()),
    Traffic("oldest first", ["-c", "512", "-np", "4"], PreemptOptions(policy="oldest")),
    Traffic(
        "everything", ["-c", "512", "-np", "4"], PreemptOptions(ram_mib=5, rotate_s=0.05), n_requests=20
    ).with_everything(),
    Traffic("off", ["-c", "512", "-np", "4"], PreemptOptions(ram_mib=0)),
]


def random_body(rng: random.Random, kind: Traffic) -> dict[str, object]:
    n_prompt = rng.choice([rng.randrange(1, 12), rng.randrange(1, kind.max_prompt)])
    prompt: object = rng.choice(PREFIXES) + rng.choice(["", "and so on " * rng.randrange(1, 8)])
    if rng.random() < 0.5:
        prompt = [rng.choice((100, 200))] * (n_prompt // 2) + [300 + rng.randrange(4)] * (n_prompt - n_prompt // 2)
    body: dict[str, object] = {
        "prompt": prompt,
        "n_predict": rng.choice([0, 1, *(rng.randrange(1, kind.max_predict) for _ in range(3)), kind.max_predict]),
        "ignore_eos": rng.random() < 0.7,
        "cache_prompt": rng.random() < 0.7,
        "stream": rng.random() < 0.5,
        "seed": rng.randrange(1000),
    }
    if rng.random() < 0.1:
        body["id_slot"] = rng.randrange(4)
    if rng.random() < 0.1:
        body["n"] = 2
    if rng.random() < 0.1:
        body["stop"] = ["e", "\n"]
    if rng.random() < 0.05:
        body["json_schema"] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        body["ignore_eos"] = False  # a grammar that is through allows nothing but the end
    return body


def drive(harness: EngineHarness, rng: random.Random, kind: Traffic) -> list[Running]:
    """Start and cancel at random, at most a dozen at once, and wait for the rest."""
    everyone: list[Running] = []
    live: list[Running] = []
    for _ in range(kind.n_requests):
        request = harness.start(**random_body(rng, kind), priority=rng.choice(kind.priorities))
        everyone.append(request)
        live.append(request)
        if rng.random() < 0.3:
            harness.wait_for_tokens(rng.choice(live), rng.randrange(1, 8))
        if rng.random() < kind.by_hand_share:
            harness.start_call(random_hold(rng))
        if rng.random() < 0.25:
            harness.cancel(live.pop(rng.randrange(len(live))))
        if len(live) > 12:
            harness.wait(live.pop(0))
    harness.wait(*everyone)
    return everyone


def random_hold(rng: random.Random) -> Callable[[int], HoldSlot]:
    """Parks a slot for a moment, or calls one back; what has nothing to park refuses."""
    slot_id, is_held, seconds = rng.randrange(4), rng.random() < 0.7, rng.uniform(0.01, 0.3)
    return lambda task_id: HoldSlot(task_id, slot_id, is_held, seconds)


def is_expected(message: object) -> bool:
    """Ended well, was cancelled, or did not fit."""
    if isinstance(message, Failed):
        return any(text in message.error.decode() for text in ROOM_ERRORS)
    return isinstance(message, Finished | Cancelled)
