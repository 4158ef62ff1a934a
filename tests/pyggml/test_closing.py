"""A `with` block closes what it was given, however it ends, and hides no error."""

from __future__ import annotations

import pytest

from pyggml import Context, Model, PinnedPool, Sampler, Transfer
from pyggml.closing import Closing


class Door(Closing):
    """Counts how often it is closed."""

    n_closed = 0

    def close(self) -> None:
        self.n_closed += 1


def test_a_block_gives_the_object_and_closes_it_at_its_end() -> None:
    door = Door()
    with door as same:
        assert (same, door.n_closed) == (door, 0)
    assert door.n_closed == 1


def test_a_block_that_ends_with_an_error_closes_too_and_lets_it_through() -> None:
    door = Door()
    with pytest.raises(KeyError, match="gone"), door:
        raise KeyError("gone")
    assert door.n_closed == 1


@pytest.mark.parametrize("kind", [Context, Model, PinnedPool, Sampler, Transfer])
def test_all_that_has_to_be_closed_is_closed_by_the_one_block(kind: type) -> None:
    assert issubclass(kind, Closing)
    assert kind.__exit__ is Closing.__exit__
