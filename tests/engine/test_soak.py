"""Random traffic over a pool and a budget that are too small for it: whatever comes, the books agree after every pass
and every request ends once. The seed is printed; PYGGML_SOAK_SEED repeats a run."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.engine.harness import EngineHarness
from tests.engine.invariants import watched
from tests.engine.random_traffic import KINDS, Traffic, drive, is_expected


@pytest.fixture(scope="session")
def seed() -> str:
    return os.environ.get("PYGGML_SOAK_SEED") or str(random.SystemRandom().randrange(2**32))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_books_agree_after_every_pass_and_every_request_ends_once(
    kind: Traffic,
    seed: str,
    narrow_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    print(f"PYGGML_SOAK_SEED={seed}")
    rng = random.Random(f"{seed} {kind.name}")
    kind = kind.in_folder(tmp_path)
    argv = ["-m", str(narrow_path), "--kv-unified", "-fa", "on", "-t", "1", *kind.argv]
    with watched(monkeypatch, caplog), EngineHarness(argv, kind.preempt, serve=kind.serve) as harness:
        everyone = drive(harness, rng, kind)
        harness.wait_until_nothing_is_held()
    endings = [request.last(i) for request in everyone for i in range(len(request.task_ids))]
    assert [ending for ending in endings if not is_expected(ending)] == []
    assert all(harness.n_endings[task_id] == 1 for request in everyone for task_id in request.task_ids)
