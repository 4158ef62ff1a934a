"""Engines with everything on a device, and the chats that they get. A test that fails lets go of what it held."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyggml_server.config import PreemptOptions, StepOptions
from pyggml_server.messages import Finished

from tests.engine.harness import EngineHarness, Running
from tests.native.engine_on_simdev.background_copies import release_helpers
from tests.native.simdev_library import SimdevLibrary


class EngineOnSimdev(EngineHarness):
    """Its end waits for copies: where a test fails, nobody else would release them."""

    def __exit__(self, *exc: object) -> None:
        if exc[0] is not None:
            SimdevLibrary().reset()
            release_helpers()
        super().__exit__(*exc)


def engine(
    model: Path, *flags: str, n_ctx: int = 512, n_slots: int = 4, runs_ahead: bool | None = None, **options: Any
) -> EngineHarness:
    options.setdefault(
        "staging_mib", 0
    )  # parks that need their cells until they complete; tests of staging name theirs
    size = ["-c", str(n_ctx), "-np", str(n_slots), "--kv-unified", "-fa", "on", "-t", "1", "-ngl", "99"]
    step = StepOptions(runs_ahead=runs_ahead)
    return EngineOnSimdev(["-m", str(model), *size, *flags], PreemptOptions(**options), step)


def chat(number: int, n_predict: int, n_prompt: int = 12, **more: object) -> dict[str, object]:
    """A seeded chat with a prompt of its own; another bit in its logits gives it another text soon."""
    prompt = [1000 + 37 * number + 3 * i for i in range(n_prompt)]
    body: dict[str, object] = {"prompt": prompt, "n_predict": n_predict, "seed": number, "temperature": 1.0}
    return body | {"ignore_eos": True, "cache_prompt": False} | more


def is_at_rest(harness: EngineHarness) -> bool:
    """No slot works and no memory is held by or for a task."""
    snapshot = harness.engine.snapshot()
    return not any(slot.is_processing for slot in snapshot.slots) and snapshot.counters.preempt_ram_bytes == 0


def n_finished(chats: Sequence[Running]) -> int:
    return sum(isinstance(running.last(), Finished) for running in chats)
