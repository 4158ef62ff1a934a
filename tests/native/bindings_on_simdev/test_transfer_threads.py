"""Whose thread a `pyggml.Transfer` and a `PinnedPool` are: the context's, whether a copy is in flight or not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from pyggml import Context, PinnedPool, Transfer, WrongThreadError

PIECE = 1 << 13
Calls = dict[str, Callable[[], object]]


@pytest.fixture
def idle(staged: Context) -> Iterator[Transfer]:
    """Sequence 0's state, nothing in flight."""
    with Transfer(staged, is_staged=True) as made:
        made.save(0)
        made.wait()
        yield made


def calls_of(transfer: Transfer) -> Calls:
    """All that is to be called on the context's thread."""
    return {
        "save": lambda: transfer.save(1),
        "frees_on_issue": lambda: transfer.frees_on_issue(0),
        "prefetch": transfer.prefetch,
        "prefetch a part": lambda: transfer.prefetch(500),
        "drop_prefetch": transfer.drop_prefetch,
        "restore": lambda: transfer.restore(1),
        "done": transfer.done,
        "wait": transfer.wait,
        "cancel": transfer.cancel,
        "await": lambda: next(transfer.__await__()),
        "state": lambda: transfer.state,
        "load": lambda: transfer.load(b"ggsq"),
        "blank": lambda: transfer.blank(10),
        "reserve": lambda: transfer.reserve(10**7),
        "shrink_buffer": transfer.shrink_buffer,
        "release_buffer": transfer.release_buffer,
        "leave_buffer": transfer.leave_buffer,
        "can_pin": lambda: transfer.can_pin,
        "close": transfer.close,
    }


def on_another_thread(calls: Calls) -> dict[str, str]:
    """What each call raised there, or "nothing"."""
    raised: dict[str, str] = {}

    def run() -> None:
        for name, call in calls.items():
            try:
                call()
                raised[name] = "nothing"
            except Exception as error:
                raised[name] = type(error).__name__

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised


def all_refused(calls: Calls) -> dict[str, str]:
    return dict.fromkeys(calls, WrongThreadError.__name__)


def test_a_transfer_with_a_copy_in_flight_is_its_contexts_threads(held: Transfer) -> None:
    calls = calls_of(held)
    assert on_another_thread(calls) == all_refused(calls)
    assert (held.closed, held.done()) == (False, False)


def test_a_transfer_without_a_copy_in_flight_is_too(idle: Transfer) -> None:
    before, calls = bytes(idle.state), calls_of(idle)
    assert on_another_thread(calls) == all_refused(calls)
    assert (idle.closed, bytes(idle.state)) == (False, before)


def test_a_transfer_with_more_parts_to_prefetch_is_too(staged: Context, idle: Transfer) -> None:
    staged.seq_remove(0)
    assert idle.prefetch(1000)
    left_bytes, calls = idle.prefetch_left_bytes, calls_of(idle)
    assert left_bytes > 0
    assert on_another_thread(calls) == all_refused(calls)
    assert idle.prefetch_left_bytes == left_bytes
    idle.restore(0)
    idle.wait()
    assert staged.seq_pos_max(0) == 19


def test_a_transfer_that_uses_a_range_is_too(staged: Context) -> None:
    with PinnedPool(staged, 16 * PIECE, PIECE) as pool, Transfer(staged) as transfer, Transfer(staged) as other:
        pool.fill(16 * PIECE)
        used, unused = pool.take(10 * PIECE), pool.take(100)
        assert used is not None
        assert unused is not None
        transfer.use(used)
        transfer.save(0)
        transfer.wait()
        held_bytes = pool.held_bytes
        calls = calls_of(transfer) | {"use": lambda: other.use(unused)}
        assert on_another_thread(calls) == all_refused(calls)
        assert (transfer.buffer_bytes, pool.held_bytes) == (10 * PIECE, held_bytes)
        unused.give_back()


def test_a_pool_is_its_threads(staged: Context) -> None:
    with PinnedPool(staged, 2 * PIECE, PIECE) as pool:
        pool.fill(PIECE)
        calls: Calls = {
            "held_bytes": lambda: pool.held_bytes,
            "grow": lambda: pool.grow(2 * PIECE),
            "advance": pool.advance,
            "fill": lambda: pool.fill(2 * PIECE),
            "take": lambda: pool.take(1),
            "end_for": lambda: pool.end_for(1),
            "trim": pool.trim,
            "close": pool.close,
        }
        assert on_another_thread(calls) == all_refused(calls)
        assert (pool.pinned_bytes, pool.held_bytes) == (PIECE, 0)


@pytest.mark.filterwarnings("error")
def test_a_pool_that_is_made_on_another_thread_leaves_nothing_behind(staged: Context) -> None:
    calls: Calls = {"make": lambda: PinnedPool(staged, PIECE, PIECE)}
    assert on_another_thread(calls) == all_refused(calls)


def test_any_thread_can_release_what_outlives_its_context(staged: Context, idle: Transfer) -> None:
    staged.close()
    calls: Calls = {name: calls_of(idle)[name] for name in ("done", "wait", "release_buffer", "leave_buffer", "close")}
    assert on_another_thread(calls) == dict.fromkeys(calls, "nothing")
    assert idle.closed


def test_what_another_thread_forgets_while_the_context_closes_is_freed(
    staged: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, close = [Transfer(staged)], staged._handle.close

    def forget_and_close() -> None:
        assert on_another_thread({"forget": box.clear}) == {"forget": "nothing"}
        close()

    monkeypatch.setattr(staged._handle, "close", forget_and_close)
    staged.close()
    assert len(staged._left_over) == 0
