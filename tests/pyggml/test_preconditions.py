"""What llama.cpp asserts or aborts on, or silently does wrong: each case is an exception, and the context works on.

Without the check, most of these cases end the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pyggml import (
    Batch,
    Context,
    ContextParams,
    InvalidArgumentError,
    InvalidBatchError,
    Model,
    NoRoomError,
    Sampler,
    StateError,
    StateFlags,
    UnappliedUpdateError,
    UnsupportedError,
)
from tests.pyggml.conftest import MakeContext, Tokens


def one(token: int = 1, pos: int = 0, seq_id: int = 0) -> Batch:
    return Batch.from_arrays([token], [pos], seq_id)


def tokens(n: int, seq_id: int = 0, output: bool = False) -> Batch:
    return Batch.from_arrays([1] * n, range(n), seq_id, [output] * (n - 1) + [True])


def in_no_sequence() -> Batch:
    batch = one()
    batch.n_seq_id[0] = 0
    return batch


def after(first: Callable[[Context], object], then: Callable[[Context], object]) -> Callable[[Context], object]:
    return lambda context: (first(context), then(context))


@dataclass(frozen=True)
class Case:
    """`run` must raise `error` with `match` in a context of `params`; what the tree does otherwise is in the id."""

    run: Callable[[Context], object]
    error: type[Exception]
    match: str
    params: dict[str, object] | None = None


BATCHES = {
    "no tokens: GGML_ASSERT(n_tok > 0)": Case(lambda c: c.decode(Batch(4)), InvalidBatchError, "empty"),
    "more than n_batch: GGML_ASSERT(n_tokens_all <= n_batch)": Case(
        lambda c: c.decode(tokens(40)), InvalidBatchError, "takes 32 at once", {"n_batch": 32}
    ),
    "more outputs than room: GGML_ASSERT(n_outputs_max <= cparams.n_outputs_max)": Case(
        lambda c: c.decode(tokens(20, output=True)), InvalidBatchError, "20 outputs.* 8", {"n_outputs_max": 8}
    ),
    "all outputs of an embedding context": Case(
        lambda c: c.decode(tokens(20)), InvalidBatchError, "20 outputs.* 8", {"n_outputs_max": 8, "embeddings": True}
    ),
    "a token outside the vocabulary": Case(lambda c: c.decode(one(token=49152)), InvalidBatchError, "token 49152"),
    "a negative token": Case(lambda c: c.decode(one(token=-1)), InvalidBatchError, "token -1"),
    "a negative position: an unusable cell": Case(lambda c: c.decode(one(pos=-1)), InvalidBatchError, "position -1"),
    "a sequence of no context": Case(lambda c: c.decode(one(seq_id=4)), InvalidBatchError, "sequence 4 at index 0"),
    "a negative sequence": Case(lambda c: c.decode(one(seq_id=-1)), InvalidBatchError, "sequence -1 at index 0"),
    "a token in no sequence: reads seq_id[0]": Case(
        lambda c: c.decode(in_no_sequence()), InvalidBatchError, "in 0 sequences"
    ),
    "a token in two streams: GGML_ASSERT(n_seq_id == 1)": Case(
        lambda c: c.decode(Batch.from_arrays([1], [0], np.array([[0, 1]]))),
        InvalidBatchError,
        "allowed is 1 to 1",
        {"kv_unified": False},
    ),
}

SEQUENCES = {
    f"{name} of sequence {seq_id}: GGML_ASSERT(seq_id < seq_to_stream.size())": Case(run, error, f"sequence {seq_id}")
    for seq_id in (-1, 4, 256)
    for name, run, error in (
        ("remove", lambda c, s=seq_id: c.seq_remove(s), InvalidArgumentError),
        ("keep", lambda c, s=seq_id: c.seq_keep(s), InvalidArgumentError),
        ("copy from", lambda c, s=seq_id: c.seq_copy(s, 0), InvalidArgumentError),
        ("copy to", lambda c, s=seq_id: c.seq_copy(0, s), InvalidArgumentError),
        ("shift", lambda c, s=seq_id: c.seq_add(s, 0, None, 1), InvalidArgumentError),
        ("divide", lambda c, s=seq_id: c.seq_divide(s, 0, None, 2), InvalidArgumentError),
        ("smallest position", lambda c, s=seq_id: c.seq_pos_min(s), InvalidArgumentError),
        ("largest position", lambda c, s=seq_id: c.seq_pos_max(s), InvalidArgumentError),
        ("cells", lambda c, s=seq_id: c.seq_n_cells(s), InvalidArgumentError),
        ("state size", lambda c, s=seq_id: c.state_size(s), InvalidArgumentError),
        ("save", lambda c, s=seq_id: c.save_state(s), InvalidArgumentError),
        ("save to file", lambda c, s=seq_id: c.save_state_file("never-written", s), InvalidArgumentError),
        ("load file", lambda c, s=seq_id: c.load_state_file("never-read", s), InvalidArgumentError),
        ("restore", lambda c, s=seq_id: c.restore_state(c.save_state(0), s), InvalidArgumentError),
    )
}

RANGES = {
    "a range that is crossed": Case(lambda c: c.seq_remove(0, 5, 5), InvalidArgumentError, "not a range"),
    "a negative start": Case(lambda c: c.seq_remove(0, -1, 5), InvalidArgumentError, "not a range"),
    "a division by one": Case(lambda c: c.seq_divide(0, 0, None, 1), InvalidArgumentError, "divisor"),
    "a division by zero": Case(lambda c: c.seq_divide(0, 0, None, 0), InvalidArgumentError, "divisor"),
    "a shift out of range": Case(lambda c: c.seq_add(0, 0, None, 2**31 - 1), InvalidArgumentError, "leaves the range"),
    "part of a stream: GGML_ASSERT(is_full)": Case(
        lambda c: c.seq_copy(0, 1, 2, 5), UnsupportedError, "whole sequence", {"kv_unified": False}
    ),
    "a copy onto positions that exist: two cells of one position": Case(
        after(lambda c: c.decode(tokens(4, seq_id=1)), lambda c: c.seq_copy(0, 1)),
        InvalidArgumentError,
        "already has positions",
    ),
}

STATES = {
    "a state cut off": Case(lambda c: c.restore_state(c.save_state(0)[:-1], 1), StateError, "cannot restore"),
    "a state cut off in its cells": Case(lambda c: c.restore_state(c.save_state(0)[:30], 1), StateError, "cannot"),
    "bytes that are no state": Case(lambda c: c.restore_state(b"x" * 64, 1), StateError, "not a sequence state"),
    "no bytes": Case(lambda c: c.restore_state(b"", 1), StateError, "not a sequence state"),
    "an unknown device state: GGML_ASSERT(mem_storage.find(...))": Case(
        lambda c: c.restore_state(c.save_state(0), 1, StateFlags.ON_DEVICE), StateError, "no longer on the device"
    ),
    "a device state overwritten since": Case(
        lambda c: restore_overwritten_device_state(c), StateError, "no longer on the device"
    ),
    "a save with a shift waiting: silently corrupt": Case(
        after(lambda c: c.seq_add(0, 0, None, 3), lambda c: c.save_state(0)), UnappliedUpdateError, "decode first"
    ),
    "a save with a division waiting: silently corrupt": Case(
        after(lambda c: c.seq_divide(0, 0, None, 2), lambda c: c.save_state(0)), UnappliedUpdateError, "decode first"
    ),
    "a save of a copy that waits: silently corrupt": Case(
        after(lambda c: c.seq_copy(0, 1), lambda c: c.save_state(1)),
        UnappliedUpdateError,
        "decode first",
        {"kv_unified": False},
    ),
    "a restore over the source of a copy that waits: silently corrupt": Case(
        after(lambda c: c.seq_copy(0, 1), lambda c: c.restore_state(c.save_state(0), 0)),
        UnappliedUpdateError,
        "decode first",
        {"kv_unified": False},
    ),
    "a buffer too small": Case(lambda c: c.save_state(0, out=bytearray(10)), InvalidArgumentError, "has 10"),
    "a read-only buffer": Case(lambda c: c.save_state(0, out=bytes(10**6)), InvalidArgumentError, "read-only"),
    "a strided buffer": Case(
        lambda c: c.save_state(0, out=np.zeros(2 * 10**6, np.uint8)[::2]), InvalidArgumentError, "contiguous"
    ),
}


def restore_overwritten_device_state(context: Context) -> None:
    first = context.save_state(0, flags=StateFlags.ON_DEVICE)
    context.decode(one(pos=8))
    context.save_state(0, flags=StateFlags.ON_DEVICE)
    context.restore_state(first, 1, StateFlags.ON_DEVICE)


CASES = BATCHES | SEQUENCES | RANGES | STATES


@pytest.fixture(scope="module")
def context_of(model: Model) -> Iterator[Callable[[Case], Context]]:
    """An empty context with the case's parameters; cases with equal parameters share one, one after another."""
    made: dict[str, Context] = {}

    def make(case: Case) -> Context:
        params = {"n_ctx": 256, "n_seq_max": 4, "n_threads": 1, "n_threads_batch": 1} | (case.params or {})
        if repr(params) not in made:
            made[repr(params)] = Context(model, ContextParams(**params))  # type: ignore[arg-type]
        made[repr(params)].clear()
        return made[repr(params)]

    yield make
    for context in made.values():
        context.close()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_llama_cpp_would_assert_is_an_exception(context_of: Callable[[Case], Context], case: Case) -> None:
    context = context_of(case)
    context.decode(tokens(8))
    with pytest.raises(case.error, match=case.match):
        case.run(context)
    end = context.seq_pos_max(0)
    assert end is not None
    context.decode(one(pos=end + 1))
    assert np.isfinite(context.logits()).all()


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"n_seq_max": 0}, "n_seq_max is 0"),
        ({"n_seq_max": 257}, "allowed is 1 to 256"),
        ({"n_batch": 0}, "n_batch is 0"),
        ({"n_ctx": -1}, "n_ctx is -1"),
        ({"n_threads": 0}, "n_threads is 0"),
        ({"n_threads_batch": 513}, "n_threads_batch is 513"),
        ({"cache_type_k": 999}, "CacheType"),
        ({"pooling": 77}, "Pooling"),
        ({"flash_attention": 5}, "FlashAttention"),
    ],
)
def test_parameters_out_of_range_are_refused(params: dict[str, int], match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        ContextParams(**params)  # type: ignore[arg-type]


@pytest.mark.parametrize("params", [{"n_batch": 2}, {"n_outputs_max": 3}, {"n_ctx": 3}])
def test_more_sequences_than_outputs_are_refused(make_context: MakeContext, params: dict[str, int]) -> None:
    with pytest.raises(InvalidArgumentError, match="n_seq_max is 4"):
        make_context(**params)


def test_a_shift_of_a_context_that_cannot_is_refused(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(context), "can_shift", property(lambda _: False))
    context.decode(tokens(8))
    with pytest.raises(UnsupportedError, match="cannot shift"):
        context.seq_add(0, 0, None, 1)
    with pytest.raises(UnsupportedError, match="cannot shift"):
        context.seq_divide(0, 0, None, 2)


def test_a_sampler_that_selects_nothing_is_refused(model: Model, context: Context) -> None:
    context.decode(tokens(2))
    with Sampler(model).top_k(40) as sampler, pytest.raises(InvalidArgumentError, match="greedy\\(\\) or dist"):
        sampler.sample(context)


def test_sampling_without_logits_is_refused(model: Model, context: Context) -> None:
    context.decode(tokens(2))
    with Sampler(model).greedy() as sampler, pytest.raises(InvalidArgumentError, match="no output at index 0"):
        sampler.sample(context, 0)


def test_a_grammar_is_not_given_what_it_would_abort_on(model: Model, context: Context) -> None:
    (end,) = model.vocab.tokenize("<|im_end|>", parse_special=True)
    with Sampler(model).grammar('root ::= "yes" | "no"').greedy() as sampler:
        with pytest.raises(InvalidArgumentError, match="grammar does not allow"):
            sampler.accept(int(end))
        context.decode(tokens(2))
        assert model.vocab.piece(sampler.sample(context)) in (b"yes", b"no", b"y", b"n", b"ye")


def test_a_state_file_is_refused_where_it_is_damaged(context: Context, tmp_path: Path, story: Tokens) -> None:
    context.decode(Batch.from_arrays(story, range(len(story))))
    path = tmp_path / "state.bin"
    context.save_state_file(path, 0, story)
    whole = path.read_bytes()
    for damaged in (
        b"",
        whole[:8],
        whole[:20],
        whole[:200],
        whole[:-1],
        b"GGUF" + whole[4:],
    ):
        path.write_bytes(damaged)
        with pytest.raises(StateError, match=r"state\.bin"):
            context.load_state_file(path, 1)
        assert context.seq_pos_max(1) is None
    with pytest.raises(FileNotFoundError):
        context.load_state_file(tmp_path / "nowhere.bin", 1)


def test_a_damaged_state_never_ends_the_process(context: Context, story: Tokens) -> None:
    context.decode(Batch.from_arrays(story, range(len(story))))
    whole = context.save_state(0)
    random = np.random.default_rng(7)
    for _ in range(200):
        damaged = whole.copy()
        at = random.integers(8, 16 + 12 * len(story) + 30, 3)  # the part that is not rows
        damaged[at] = random.integers(0, 256, 3)
        try:
            context.restore_state(damaged, 1)
        except (StateError, NoRoomError):
            assert context.seq_pos_max(1) is None
        context.seq_remove(1)
    context.restore_state(whole, 1)
    assert context.seq_pos_max(1) == len(story) - 1
