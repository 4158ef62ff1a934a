"""Rows are sampled side by side: what each gives is the same for any number of threads, and an error is a row's own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyggml_server.native.command_line import CommandLine
from pyggml_server.native.log import flush_log
from pyggml_server.native.runtime import BatchArrays, Row, Runtime, Sample, StopType
from pyggml_server.native.task import Task
from pyggml_server.request_kind import RequestKind

PROMPT = "The keeper of the lighthouse said that the keeper of the light was the keeper of the"
NGRAMS = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "2", "--spec-ngram-simple-size-m", "4")
FAILS = {"temperature": 0, "grammar": 'root ::= " keeper"', "ignore_eos": True}  # nothing may follow the grammar's end
BODIES: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.9, "seed": 7},
    {"temperature": 0.9, "seed": 8, "grammar": "root ::= [a-z ]+"},
    {"temperature": 0, "logit_bias": [[216, 5.0], [30, False]], "ignore_eos": True},
    {"temperature": 0.7, "seed": 9, "n_probs": 3},
    {"temperature": 0.7, "seed": 9, "n_probs": 3, "post_sampling_probs": True},
    {"temperature": 0.7, "seed": 10, "top_k": 0, "repeat_penalty": 1.2},
    {"temperature": 0.8, "seed": 11, "n": 2},
    FAILS,
]
N_TOKENS = 16
N_SLOTS = 12


@dataclass
class Chat:
    """One task in its slot."""

    task: Task
    slot: int
    tokens: list[int]
    said: list[Any] = field(default_factory=list)
    is_over: bool = False

    def take(self, sample: Sample) -> None:
        """Note what a step gave."""
        events = [event for event in sample.events.decode().split("\n\n") if event]
        self.said.append((sample.tokens, sample.stop, sample.error, [_content(event) for event in events]))
        self.is_over = sample.stop is not StopType.NONE or sample.error is not None
        self.tokens += sample.tokens


def _content(event: str) -> tuple[object, object]:
    told = json.loads(event.removeprefix("data: "))
    return told["content"], told.get("completion_probabilities")


@contextmanager
def loaded(model: Path, n_threads: int, flags: Sequence[str]) -> Iterator[Runtime]:
    size = ["-c", "1024", "-np", str(N_SLOTS), "--kv-unified", "-t", "1", "--no-warmup"]
    runtime = Runtime.load(CommandLine.parse(["-m", str(model), *size, *flags]), 0, n_threads)
    yield runtime
    runtime.close()


def batch_of(
    chats: Sequence[Chat], parts: Sequence[Sequence[int]], n_past: Sequence[int], n_last: Sequence[int]
) -> Any:
    """The arrays for these tokens of each chat, the last `n_last` of which have outputs."""
    return BatchArrays(
        np.array([t for part in parts for t in part], dtype=np.int32),
        np.concatenate([n + np.arange(len(part)) for n, part in zip(n_past, parts, strict=True)]).astype(np.int32),
        np.repeat([chat.slot for chat in chats], [len(part) for part in parts]).astype(np.int32),
        np.concatenate([np.arange(len(p)) >= len(p) - n for p, n in zip(parts, n_last, strict=True)]).astype(np.int8),
    )


def begin(runtime: Runtime, bodies: Sequence[dict[str, Any]]) -> list[Chat]:
    """All prompts in one batch; an answer that shares another's prompt gets it by reference."""
    chats: list[Chat] = []
    for body in bodies:
        whole = {"prompt": PROMPT, "stream": True, "n_predict": N_TOKENS, **body}
        request = runtime.translator.request(RequestKind.COMPLETION, json.dumps(whole).encode())
        for task in request.tasks:
            chats.append(Chat(task, len(chats), task.tokens.tolist()))
    for chat in chats:
        chat.task.start(chat.slot, 256, 0)
    parents = [chat for chat in chats if chat.task.parent is None]
    rows: list[Row] = []
    n_before = 0
    for chat in parents:
        n_before += len(chat.tokens)
        rows.append(Row(chat.task, n_before - 1, len(chat.tokens), len(chat.tokens), len(chat.tokens)))
    ends = {id(row.task): row for row in rows}
    children = [chat for chat in chats if chat.task.parent is not None]
    for child in children:
        assert child.task.parent is not None
        end = ends[id(child.task.parent)]
        rows.append(Row(child.task, end.i_batch, 0, end.n_past, end.n_pos, parent=child.task.parent))
    prompts = [chat.tokens for chat in parents]
    arrays = batch_of(parents, prompts, [0] * len(parents), [1] * len(parents))
    take(runtime, [*parents, *children], arrays, rows)
    for child in children:
        slot = next(chat.slot for chat in parents if chat.task is child.task.parent)
        runtime.context.seq_copy(slot, child.slot, 0, len(child.task.tokens))
    return chats


def take(runtime: Runtime, chats: Sequence[Chat], arrays: BatchArrays, rows: list[Row]) -> None:
    status, samples = runtime.step(arrays, rows)
    assert status == 0
    for chat, sample in zip(chats, samples, strict=True):
        chat.take(sample)


def go_on(runtime: Runtime, chats: Sequence[Chat]) -> None:
    """One step of every chat that has not ended, with its guesses."""
    running = [chat for chat in chats if not chat.is_over]
    drafts: list[list[int]] = [[] for _ in running]
    if runtime.speculates:
        drafts = runtime.draft([chat.task for chat in running], [4] * len(running))
    parts = [[chat.tokens[-1], *draft] for chat, draft in zip(running, drafts, strict=True)]
    n_past = [len(chat.tokens) - 1 for chat in running]
    arrays = batch_of(running, parts, n_past, [len(part) for part in parts])
    rows, n_before = [], 0
    for chat, part, n in zip(running, parts, n_past, strict=True):
        rows.append(Row(chat.task, n_before, 0, n + 1, n + 1, len(part) - 1))
        n_before += len(part)
    take(runtime, running, arrays, rows)


def said_with(model: Path, n_threads: int, flags: Sequence[str], bodies: Sequence[dict[str, Any]]) -> list[Any]:
    """What each chat said, step by step."""
    with loaded(model, n_threads, flags) as runtime:
        chats = begin(runtime, bodies)
        for _ in range(N_TOKENS):
            if all(chat.is_over for chat in chats):
                break
            go_on(runtime, chats)
        assert all(chat.is_over for chat in chats)
        said = [chat.said for chat in chats]
        for chat in chats:
            chat.task.close()
        return said


@pytest.mark.parametrize("flags", [(), NGRAMS], ids=["plain", "with drafts"])
def test_any_number_of_threads_gives_the_same_tokens_and_events(smollm2_path: Path, flags: Sequence[str]) -> None:
    on_one = said_with(smollm2_path, 1, flags, BODIES)
    assert any(len(tokens) > 1 for said in on_one for tokens, *_ in said) == bool(flags)
    for n_threads in (2, 5):
        assert said_with(smollm2_path, n_threads, flags, BODIES) == on_one


def test_what_a_row_throws_is_its_own(smollm2_path: Path) -> None:
    plain = said_with(smollm2_path, 4, (), [BODIES[0], BODIES[0]])
    said = said_with(smollm2_path, 4, (), [BODIES[0], FAILS, BODIES[0], FAILS])
    assert [steps[-1][2] is not None for steps in said] == [False, True, False, True]
    assert [said[0], said[2]] == plain


def test_a_server_samples_on_no_more_threads_than_it_has_slots(
    smollm2_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with loaded(smollm2_path, 1000, ()):
        flush_log()  # another thread writes it
    assert f"sampling on {N_SLOTS} threads" in capfd.readouterr().err
