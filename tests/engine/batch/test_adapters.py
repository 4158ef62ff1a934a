"""Which adapter scales each token is decoded with, and which cached tokens stand for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyggml_server.native.adapters import Adapters

from tests.engine.harness import EngineHarness

PLAIN = Adapters(scales=(1.0,), base=(1.0,))
OFF = Adapters(scales=(0.0,), base=(0.0,))
FROM_FIVE = Adapters(scales=(1.0,), base=(0.0,), start=5)
FROM_EIGHT = Adapters(scales=(1.0,), base=(0.0,), start=8)


@pytest.mark.parametrize(
    ("one", "other", "n_common"),
    [
        (PLAIN, PLAIN, 20),
        (PLAIN, OFF, 0),
        (FROM_FIVE, FROM_FIVE, 20),
        (FROM_FIVE, OFF, 5),
        (FROM_FIVE, FROM_EIGHT, 5),
        (FROM_FIVE, PLAIN, 0),
    ],
)
def test_tokens_are_common_as_far_as_both_have_the_same_scales(one: Adapters, other: Adapters, n_common: int) -> None:
    assert one.n_common(other, 20) == n_common
    assert other.n_common(one, 20) == n_common
    assert one.n_common(other, 3) == min(n_common, 3)


@pytest.mark.parametrize(("position", "n"), [(0, 5), (3, 2), (4, 1), (5, 20), (9, 20)])
def test_a_prompt_is_cut_where_an_activated_adapter_begins(position: int, n: int) -> None:
    assert FROM_FIVE.n_until_change(position, 20) == n
    assert FROM_FIVE.n_until_change(position, 1) == 1
    assert len({FROM_FIVE.at(i) for i in range(position, position + n)}) == 1


def test_a_start_that_an_adapter_spoils_says_where_to_look(narrow_path: Path, tmp_path: Path) -> None:
    no_adapter = tmp_path / "model.gguf"
    no_adapter.symlink_to(narrow_path)
    argv = ["-m", str(narrow_path), "-c", "256", "-np", "1", "-t", "1", "--lora", str(no_adapter)]
    with pytest.raises(RuntimeError, match=r"failed to apply lora adapter: expect general\.type"), EngineHarness(argv):
        pass
