"""Cells that a window masks go to others while a copy in flight still reads or writes them, and nothing is spoilt.

What is done with copies, which simdev runs as late as their order allows, is done in a second context with the
synchronous calls: every state, and the logits of the neighbour whose prompt takes those cells, have to be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pyggml import Batch, Context, ContextParams, FlashAttention, Model, StateError, Transfer, UnsupportedError
from tests.native.simdev_library import SimdevLibrary
from tests.pyggml.tiny_models import (
    CHUNK,
    N_VOCAB,
    WINDOW,
    write_chunked_model,
    write_window_model,
    write_windowed_hybrid_model,
)

N_TOKENS = 40  # of a sequence that is copied, more than its window has
N_FIRST = 4  # of the sequence that has the cells before it
FIRST, COPIED = 2, (0, 1)
NEIGHBOUR = 3

MEMORIES: dict[str, Callable[[Path], Path]] = {
    "window": partial(write_window_model, has_full_layers=False),
    "chunked-window": write_chunked_model,
    "iswa": write_window_model,
    "hybrid-with-window": write_windowed_hybrid_model,
}
# All at once, one chunk after the other, run by run. Half of the staging memory is for each direction.
STAGING_BYTES = {"staged": 1 << 20, "in-chunks": 1536, "plain": 0}
TOO_FEW_BYTES = 256  # for a row of the recurrent part


class AtOnce:
    """The synchronous calls."""

    def __init__(self, context: Context):
        self._context = context
        self.states: dict[int, bytes] = {}

    def save(self, seq_id: int) -> None:
        self.states[seq_id] = bytes(self._context.save_state(seq_id))

    def prefetch(self, seq_id: int) -> None:
        pass

    def restore(self, seq_id: int) -> None:
        self._context.restore_state(self.states[seq_id], seq_id)

    def end(self) -> None:
        pass


class Overlapped:
    """A `Transfer` for each sequence that is copied."""

    def __init__(self, context: Context, is_staged: bool):
        self._transfers = {seq_id: Transfer(context, is_staged=is_staged) for seq_id in COPIED}

    def save(self, seq_id: int) -> None:
        self._transfers[seq_id].save(seq_id)

    def prefetch(self, seq_id: int) -> None:
        self._transfers[seq_id].prefetch()

    def restore(self, seq_id: int) -> None:
        self._transfers[seq_id].restore(seq_id)

    def end(self) -> None:
        """Until here simdev has done only what the graphs had to wait for. In the order of issue all would end well."""
        for transfer in reversed(self._transfers.values()):
            transfer.wait()

    @property
    def states(self) -> dict[int, bytes]:
        return {seq_id: bytes(transfer.state) for seq_id, transfer in self._transfers.items() if transfer.n_state_bytes}


Copies = AtOnce | Overlapped


class Chats:
    """A context whose copied sequences end where the window of the next position begins."""

    def __init__(self, context: Context, copied_from: int):
        self.context = context
        self._n_past = dict.fromkeys(COPIED, copied_from) | {FIRST: 0, NEIGHBOUR: 0}
        for seq_id, n_tokens in ((FIRST, N_FIRST), *((seq_id, N_TOKENS) for seq_id in COPIED)):
            self.go_on(seq_id, n_tokens)

    def go_on(self, seq_id: int, n_tokens: int) -> None:
        first = self._n_past[seq_id]
        self._n_past[seq_id] += n_tokens
        tokens = [(3 + 7 * seq_id + i) % N_VOCAB for i in range(first, first + n_tokens)]
        self.context.decode(Batch.from_arrays(tokens, range(first, first + n_tokens), seq_id))

    def neighbour_comes(self, n_tokens: int) -> None:
        """Takes the cells that come before those of the copied sequences, and then what it may have of theirs."""
        self.context.seq_remove(FIRST)
        self.go_on(NEIGHBOUR, n_tokens)


def saves(chats: Chats, copies: Copies, seq_ids: tuple[int, ...]) -> None:
    for seq_id in seq_ids:
        copies.save(seq_id)
    chats.neighbour_comes(N_TOKENS)  # through those that the window masked before, to the first that is saved


def restores(chats: Chats, copies: Copies, seq_ids: tuple[int, ...], is_prefetched: bool = False) -> None:
    for seq_id in seq_ids:
        copies.save(seq_id)
        copies.end()
    for seq_id in seq_ids:
        chats.context.seq_remove(seq_id)
    for seq_id in seq_ids if is_prefetched else ():
        copies.prefetch(seq_id)
    copies.restore(seq_ids[0])
    if len(seq_ids) > 1:
        chats.context.seq_remove(FIRST)  # the next one comes into its cells and those behind
        copies.restore(seq_ids[1])
    chats.neighbour_comes(WINDOW)  # what it takes is in its own window


STORIES = {
    "save": partial(saves, seq_ids=(0,)),
    "two-saves": partial(saves, seq_ids=COPIED),
    "restore": partial(restores, seq_ids=(0,)),
    "prefetch-and-restore": partial(restores, seq_ids=(0,), is_prefetched=True),
    "two-restores": partial(restores, seq_ids=COPIED),
    "two-prefetches-and-restores": partial(restores, seq_ids=COPIED, is_prefetched=True),
}


@pytest.fixture(params=MEMORIES)
def memory(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_window_context(simdev: SimdevLibrary, memory: str, tmp_path: Path) -> Iterator[Callable[[int], Context]]:
    """Contexts of a model with such a memory, with so much staging memory."""
    assert simdev.n_held == 0
    made: list[Context] = []
    with Model(MEMORIES[memory](tmp_path / "tiny.gguf"), n_gpu_layers=99) as model:

        def make(n_bytes_staging: int) -> Context:
            params = ContextParams(
                n_ctx=512,
                n_seq_max=4,
                n_batch=64,
                n_ubatch=64,
                n_threads=1,
                n_threads_batch=1,
                swa_full=False,
                flash_attention=FlashAttention.ON,
                n_bytes_staging=n_bytes_staging,
            )
            made.append(Context(model, params))
            return made[-1]

        yield make
        for context in made:
            context.close()


def tell(chats: Chats, copies: Copies, story: Callable[[Chats, Copies], None]) -> list[object]:
    """All that can be seen of it."""
    story(chats, copies)
    seen: list[object] = [np.array(chats.context.logits()).tobytes()]
    copies.end()
    seen += [bytes(chats.context.save_state(seq_id)) for seq_id in (*COPIED, NEIGHBOUR)]
    for seq_id in (NEIGHBOUR, *COPIED):
        chats.go_on(seq_id, 1)
        seen.append(np.array(chats.context.logits()).tobytes())
    return [*seen, copies.states]


@pytest.mark.parametrize("route", STAGING_BYTES)
@pytest.mark.parametrize("story", STORIES)
def test_a_neighbours_prompt_and_a_copy_in_flight_leave_each_other_alone(
    make_window_context: Callable[[int], Context], memory: str, story: str, route: str
) -> None:
    if memory == "hybrid-with-window" and (route == "plain" or (route, story) == ("in-chunks", "two-saves")):
        return  # refused, see the test below: there is no room for the recurrent parts of two
    copied_from = CHUNK - N_TOKENS if memory == "chunked-window" else 0
    twin = Chats(make_window_context(0), copied_from)
    chats = Chats(make_window_context(STAGING_BYTES[route]), copied_from)
    overlapped = Overlapped(chats.context, is_staged=route != "plain")
    assert tell(chats, overlapped, STORIES[story]) == tell(twin, AtOnce(twin.context), STORIES[story])


@pytest.mark.parametrize("memory", ["hybrid-with-window"], indirect=True)
def test_the_recurrent_part_of_a_state_is_staged_at_once_or_the_copy_is_refused(
    make_window_context: Callable[[int], Context],
) -> None:
    with pytest.raises(UnsupportedError, match="recurrent, which takes staging memory"):
        Transfer(make_window_context(STAGING_BYTES["plain"]))
    chats = Chats(make_window_context(STAGING_BYTES["in-chunks"]), 0)
    with Transfer(chats.context, is_staged=True) as transfer:
        transfer.save(0)
        assert not transfer.freed_on_issue
    chats = Chats(make_window_context(TOO_FEW_BYTES), 0)
    with (
        Transfer(chats.context, is_staged=True) as transfer,
        pytest.raises(StateError, match="the recurrent part of sequence 0 does not fit"),
    ):
        transfer.save(0)
