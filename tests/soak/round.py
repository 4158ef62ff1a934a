"""One round of the soak: an engine, its random load, and what must have held when it is through."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pyggml_server.config import StepOptions
from pyggml_server.engine.background.disk import DEFAULT_FOLDER as DISK
from pyggml_server.engine.transfers import link_pace
from pyggml_server.history import EventKind

from tests.engine import harness as harness_module
from tests.engine.harness import EngineHarness
from tests.engine.invariants import broken_after_passes
from tests.engine.random_traffic import KINDS, drive, is_expected
from tests.soak.faults import Refusals, choose_pageable

#: Of a round: enough for its parks to meet each other, and long enough to be parked.
N_REQUESTS, MAX_PROMPT, MAX_PREDICT = 30, 250, 120
#: In every other round the pool is the smallest that there is: somebody is short nearly all the time.
SMALLEST_POOL_CELLS = "256"
#: In every other one states come back in many parts: a cell has 22.5 KiB.
SMALL_PART_BYTES = 300_000
#: Before a request counts as stuck. A machine with much else to do takes minutes for what an idle one does in seconds.
PATIENCE_S = 600.0
_log = logging.getLogger("pyggml_server")


def run_round(model: Path, seed: str, *, has_everything: bool = False) -> str:
    """Raises AssertionError when something did not hold; else says in a line what happened.

    has_everything  with classes, a short line, slots that are parked by hand and files, whatever else the round has.
    """
    rng = random.Random(seed)
    step = StepOptions(runs_ahead=random.Random(f"{seed} step").choice([True, False]))
    kind = rng.choice(KINDS)
    if has_everything:
        kind = kind.with_everything()
    load = replace(kind, n_requests=N_REQUESTS, max_prompt=MAX_PROMPT, max_predict=MAX_PREDICT)
    device = choose_pageable(rng)
    words, is_small = [*kind.argv], rng.choice([True, False])
    if is_small:
        words[words.index("-c") + 1] = SMALLEST_POOL_CELLS
    argv = ["-m", str(model), "--kv-unified", "-fa", "on", "-t", "1", "-ngl", "99", *words]
    with pytest.MonkeyPatch.context() as patch, _tracebacks() as failed, TemporaryDirectory(dir=DISK) as folder:
        kind = kind.in_folder(Path(folder))
        patch.setattr(harness_module, "TIMEOUT_S", PATIENCE_S)
        if rng.choice([True, False]):
            patch.setattr(link_pace, "FIRST_PART_BYTES", SMALL_PART_BYTES)
            patch.setattr(link_pace, "LEAST_PART_BYTES", SMALL_PART_BYTES)
        refusals = Refusals(patch, rng)
        with broken_after_passes(patch) as broken, EngineHarness(argv, kind.preempt, step, kind.serve) as harness:
            everyone = drive(harness, rng, load)
            harness.wait_until_nothing_is_held()
            counters, history = harness.engine.snapshot().counters, harness.engine.snapshot().history
        n_left_bytes = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        assert n_left_bytes <= kind.preempt.cache_disk_mib << 20, "prompts have more than --cache-disk"
    assert not broken, broken
    assert not failed, failed
    endings = [request.last(i) for request in everyone for i in range(len(request.task_ids))]
    unexpected = [ending for ending in endings if not is_expected(ending)]
    assert not unexpected, unexpected
    assert all(harness.n_endings[task_id] == 1 for request in everyone for task_id in request.task_ids)
    n_by_hand = sum(event.kind is EventKind.PARK and event.reason == "by hand" for event in history.events)
    where = f"{kind.name!r} in the smallest pool {device}" if is_small else f"{kind.name!r} {device}"
    more = f"{counters.requests_refused_total} refused in line, {n_by_hand} parked by hand, "
    more += f"{counters.spills_total} states written, {counters.fetches_total} read, "
    more += f"{counters.cache_disk_written_total} prompts written, {counters.cache_disk_read_total} read"
    return (
        f"{where}, {'runs ahead' if step.runs_ahead else 'step by step'}: "
        f"{len(endings)} requests, {counters.preemptions_total} parks, {refusals.n} refused, "
        f"{counters.recomputes_total} computed again, {counters.requests_failed_total} without room, "
        f"{counters.requests_cancelled_total} cancelled" + (f", {more}" if has_everything else "")
    )


@contextmanager
def _tracebacks() -> Iterator[list[str]]:
    """What was logged with a traceback."""
    said: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                said.append(f"{record.getMessage()}\n{logging.Formatter().formatException(record.exc_info)}")

    handler = Keep()
    _log.addHandler(handler)
    try:
        yield said
    finally:
        _log.removeHandler(handler)
