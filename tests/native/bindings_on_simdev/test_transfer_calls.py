"""How often a `pyggml.Transfer` calls native code: each call lets go of the GIL, and may wait to have it back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pyggml import BufferTooSmallError, Context, StateError, Transfer
from pyggml.ffi import lib
from tests.native.bindings_on_simdev.conftest import go_on

MIB = 1024**2


class NativeCalls:
    """The names of the native functions that the bindings call, in order; the log's own left out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        for name, module in list(sys.modules.items()):
            if name.startswith("pyggml.") and getattr(module, "lib", None) is lib:
                monkeypatch.setattr(module, "lib", self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(lib, name)
        return self._noted(name, found) if callable(found) else found

    def _noted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            if not name.startswith("pyggml_log_"):
                self.names.append(name)
            return function(*arguments)

        return noted

    def during(self, act: Callable[[], object]) -> list[str]:
        self.names.clear()
        act()
        return list(self.names)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> NativeCalls:
    return NativeCalls(monkeypatch)


def test_a_save_into_a_buffer_that_is_there_and_a_restore_into_no_cells_call_nothing_twice(
    staged: Context, calls: NativeCalls
) -> None:
    with Transfer(staged, is_staged=True) as transfer:
        n_bytes = staged.state_size(0)
        transfer.reserve(n_bytes)
        assert calls.during(lambda: transfer.save(0, n_bytes)) == ["pyggml_transfer_save"]
        assert calls.during(lambda: transfer.freed_on_issue) == []
        assert transfer.freed_on_issue
        staged.seq_remove(0)
        transfer.wait()
        assert calls.during(lambda: transfer.restore(0)) == ["pyggml_memory_seq_pos", "pyggml_transfer_restore"]


def test_a_save_asks_for_no_size_and_makes_a_buffer_that_is_too_small_as_large_as_the_state(
    staged: Context, calls: NativeCalls
) -> None:
    want = staged.save_state(0)
    with Transfer(staged, is_staged=True) as transfer:
        transfer.reserve(1)
        assert calls.during(lambda: transfer.save(0)) == [
            "pyggml_transfer_save",
            "pyggml_transfer_reserve",
            "llama_state_seq_copy_buf_size",
            "llama_state_seq_copy_buf_is_pinned",
            "pyggml_transfer_save",
        ]
        transfer.wait()
        assert transfer.state.tobytes() == want.tobytes()
        assert calls.during(lambda: transfer.save(0)) == ["pyggml_transfer_save"]


def test_a_save_that_may_not_grow_its_buffer_says_how_large_it_would_have_to_be(
    staged: Context, calls: NativeCalls
) -> None:
    n_bytes = staged.state_size(0)
    with Transfer(staged, is_staged=True) as transfer:
        for room_bytes in (0, 1, n_bytes - 1):
            transfer.reserve(room_bytes)
            with pytest.raises(BufferTooSmallError, match=f"the state has {n_bytes} bytes") as refused:
                transfer.save(0, may_grow=False)
            assert (refused.value.n_bytes, transfer.buffer_bytes) == (n_bytes, room_bytes)
            assert (transfer.n_state_bytes, transfer.done(), transfer.freed_on_issue) == (0, True, False)
        transfer.reserve(n_bytes)
        assert calls.during(lambda: transfer.save(0, may_grow=False)) == ["pyggml_transfer_save"]


def test_what_buffer_there_is_needs_no_native_call(staged: Context, calls: NativeCalls) -> None:
    with Transfer(staged) as transfer:
        transfer.reserve(1000)
        assert calls.during(lambda: (transfer.buffer_bytes, transfer.is_pinned, transfer.n_state_bytes)) == []
        assert (transfer.buffer_bytes >= 1000, transfer.is_pinned) == (True, True)


@pytest.mark.parametrize("position", [-1, 2**31 - 1])  # of cells that no range reaches
def test_bytes_from_elsewhere_are_looked_at_before_a_restore(staged: Context, position: int) -> None:
    damaged = staged.save_state(0).copy()
    damaged[16:20].view(np.int32)[0] = position  # the first cell's
    with Transfer(staged) as transfer:
        transfer.save(0)
        transfer.wait()
        transfer.load(damaged)
        with pytest.raises(StateError, match=f"damaged: it has a cell at position {position}"):
            transfer.restore(1)
        with pytest.raises(StateError, match=f"damaged: it has a cell at position {position}"):
            staged.restore_state(damaged, 1)


def test_a_sequence_that_holds_something_is_emptied_before_a_restore(staged: Context) -> None:
    go_on(staged, 1, 0, 30)
    with Transfer(staged) as transfer:
        transfer.save(0)
        transfer.wait()
        transfer.restore(1)
        transfer.wait()
    assert (staged.seq_pos_max(1), staged.n_cells_used()) == (19, 40)
