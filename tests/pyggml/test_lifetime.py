"""Closing, dropping and sharing between threads: never a crash, always an exception that says what is wrong."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyggml import Batch, ClosedError, Context, ContextParams, InvalidArgumentError, Model, Sampler, WrongThreadError
from pyggml.ffi import ffi
from tests.pyggml.conftest import MakeContext, Tokens

SMALL = ContextParams(n_ctx=256, n_threads=1, n_threads_batch=1)


def in_another_thread(run: Callable[[], object]) -> BaseException | None:
    caught: list[BaseException] = []

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    return caught[0] if caught else None


def test_a_model_closed_before_its_context_leaves_the_context_working(smollm2_path: Path, story: Tokens) -> None:
    with Model(smollm2_path) as model:
        context = Context(model, SMALL)
        sampler = Sampler(model).greedy()
    assert model.closed
    context.decode(Batch.from_arrays(story, range(len(story))))
    assert sampler.sample(context) == context.logits().argmax()
    context.restore_state(context.save_state(0), 0)
    context.close()
    sampler.close()


def test_a_closed_model_makes_nothing_new(smollm2_path: Path) -> None:
    model = Model(smollm2_path, vocab_only=True)
    model.close()
    model.close()
    for use in (
        lambda: model.n_layer,
        lambda: model.vocab.tokenize("a"),
        lambda: model.vocab.bos,
        lambda: Sampler(model),
        lambda: model.metadata,
    ):
        with pytest.raises(ClosedError, match="this model is closed"):
            use()


def test_a_closed_context_refuses_every_use(model: Model, story: Tokens) -> None:
    context = Context(model, SMALL)
    context.close()
    context.close()
    for use in (
        lambda: context.decode(Batch.from_arrays(story, range(len(story)))),
        context.logits,
        context.n_cells_used,
        context.clear,
        lambda: context.can_shift,
        lambda: context.save_state(0),
        lambda: context.restore_state(b"", 0),
        lambda: context.seq_remove(0),
        lambda: context.load_state_file("nowhere", 0),
        context.request_abort,
        context.synchronize,
    ):
        with pytest.raises(ClosedError, match="this context is closed"):
            use()


def test_a_closed_sampler_refuses_every_use(model: Model, context: Context) -> None:
    context.decode(Batch.from_arrays([1], [0]))
    sampler = Sampler(model).greedy()
    sampler.close()
    for use in (lambda: sampler.sample(context), lambda: sampler.accept(1), sampler.reset, sampler.clone):
        with pytest.raises(ClosedError, match="this sampler is closed"):
            use()


def test_logits_can_be_read_after_the_context_was_closed(model: Model, story: Tokens) -> None:
    with Context(model, SMALL) as context:
        context.decode(Batch.from_arrays(story, range(len(story))))
        logits = context.logits()
        expected = logits.copy()
    assert np.array_equal(logits[100:], expected[100:])
    part = logits[:5]
    del logits
    gc.collect()
    assert np.array_equal(part, expected[:5])


def test_a_context_refuses_another_thread(context: Context, story: Tokens) -> None:
    batch = Batch.from_arrays(story, range(len(story)))
    context.decode(batch)
    for use in (
        lambda: context.decode(batch),
        context.logits,
        context.n_cells_used,
        lambda: context.seq_remove(0),
        lambda: context.save_state(0),
        lambda: context.can_shift,
        context.close,
    ):
        assert isinstance(in_another_thread(use), WrongThreadError)
    assert context.seq_pos_max(0) == len(story) - 1


def test_a_vocabulary_serves_many_threads_at_once(model: Model) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 20
    expected = model.vocab.tokenize(text).tolist()
    results: list[bool] = []

    def work() -> None:
        results.extend(model.vocab.tokenize(text).tolist() == expected for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 160


def test_closing_a_model_under_a_tokenizing_thread_is_safe(smollm2_path: Path) -> None:
    model = Model(smollm2_path, vocab_only=True)
    text = "word " * 20_000
    started = threading.Event()
    ended_by: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                model.vocab.tokenize(text)
                started.set()
        except ClosedError as error:
            ended_by.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    model.close()
    thread.join()
    assert len(ended_by) == 1


def test_a_context_that_was_never_closed_warns_and_is_freed(model: Model) -> None:
    kept = [Context(model, SMALL)]
    with pytest.warns(ResourceWarning, match="Context object .* was not closed"):
        kept.clear()


def test_a_borrowed_context_is_not_freed_and_keeps_its_owner(
    model: Model, make_context: MakeContext, story: Tokens
) -> None:
    owner = make_context()
    pointer = owner._handle.pointer()
    borrowed_model = Model.from_pointer(model.handle.pointer(), model)
    with Context.from_pointer(pointer, borrowed_model, owner, kv_unified=True) as borrowed:
        borrowed.decode(Batch.from_arrays(story, range(len(story))))
        expected = borrowed.logits().copy()
    borrowed_model.close()
    owner.note_decoded()
    assert np.array_equal(owner.logits(), expected)
    assert owner.seq_pos_max(0) == len(story) - 1


def test_null_pointers_are_not_borrowed(model: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="NULL"):
        Model.from_pointer(ffi.NULL, None)
    with pytest.raises(InvalidArgumentError, match="NULL"):
        Context.from_pointer(ffi.NULL, model, None, kv_unified=True)
