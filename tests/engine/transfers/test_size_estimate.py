"""How much memory the states of the whole pool would take, by their cells."""

from __future__ import annotations

from typing import cast

from pyggml_server.engine.transfers.size_estimate import SizeEstimate
from pyggml_server.native.runtime import Runtime


class FakeRuntime:
    n_slots, n_ctx = 4, 100


def test_the_states_of_the_whole_pool_are_locked_at_load_within_a_quarter_of_the_limit() -> None:
    runtime, sizes = cast(Runtime, FakeRuntime()), SizeEstimate(head_bytes=10, cell_bytes=2)
    assert sizes.first_bytes(runtime, 10_000) == 4 * 10 + 100 * 2
    assert sizes.first_bytes(runtime, 400) == 100
