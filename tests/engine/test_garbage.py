"""No chat waits while the collector goes through what was there before it began."""

from __future__ import annotations

import gc
from pathlib import Path

from pyggml_server.engine.slots.slot import Slot

from tests.engine.harness import EngineHarness


def visited_slots() -> list[object]:
    """The slots that the next full collection would look at."""
    return [found for found in gc.get_objects() if isinstance(found, Slot)]


def test_no_collection_visits_what_was_loaded_until_the_engine_has_ended(smollm2_path: Path) -> None:
    gc.collect()
    assert not visited_slots(), "left by another test"
    with EngineHarness(["-m", str(smollm2_path), "-c", "256", "-np", "2", "-t", "1"]) as harness:
        harness.run(prompt="Once upon a time", n_predict=2)
        assert gc.get_freeze_count() > 0
        assert not visited_slots()
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert not visited_slots(), "an engine that has ended leaves nothing"
