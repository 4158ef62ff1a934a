"""The soak itself: a round holds, finds what is planted, and comes again from its seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyggml_server.engine.slots.kv_pool import KvPool
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.messages import Outbound

from tests.engine.harness import EngineHarness
from tests.engine.random_traffic import KINDS, random_body
from tests.soak.__main__ import main
from tests.soak.round import run_round


def test_two_rounds_hold_and_say_what_happened(narrow_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", str(narrow_path), "--rounds", "2"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("soak: seed ")
    assert "soak: 2 rounds, all requests ended once" in said


def test_a_pool_that_keeps_a_cell_of_who_left_is_found_and_the_seed_is_told(
    narrow_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def leak(pool: KvPool, slot: Slot) -> None:
        pool._context.seq_remove(slot.id, 1)

    monkeypatch.setattr(KvPool, "release_cells", leak)
    assert main(["--model", str(narrow_path), "--rounds", "4", "--seed", "7"]) == 1
    assert "failed; repeat with --seed 7 --rounds" in capsys.readouterr().out


def test_a_request_that_ends_twice_is_found(narrow_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = EngineHarness._deliver

    def deliver_twice(harness: EngineHarness, batch: Sequence[Outbound]) -> None:
        deliver(harness, batch)
        deliver(harness, batch)

    monkeypatch.setattr(EngineHarness, "_deliver", deliver_twice)
    with pytest.raises(AssertionError):
        run_round(narrow_path, "any")


def test_one_seed_gives_one_load() -> None:
    loads = [[random_body(rng, KINDS[0]) for _ in range(50)] for rng in (random.Random("a"), random.Random("a"))]
    assert loads[0] == loads[1]
    assert loads[0] != [random_body(rng, KINDS[0]) for rng in [random.Random("b")] for _ in range(50)]
