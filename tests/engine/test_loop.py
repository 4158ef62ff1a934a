"""The engine's loop on a real model: the line moves, and a fault in one request stays with it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyggml_server.engine import loop
from pyggml_server.engine.admission import queue
from pyggml_server.engine.batch.decode import STATUS_NO_ROOM
from pyggml_server.engine.lifecycle import snapshot
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.slots.kv_pool import KvPool
from pyggml_server.engine.slots.slot import Job, Slot
from pyggml_server.messages import Failed, Finished
from pyggml_server.native.runtime import BatchArrays, Row, Runtime, Sample
from pyggml_server.native.task import Task
from pyggml_server.published import Snapshot

from tests.engine.harness import TIMEOUT_S, EngineHarness, Running


@pytest.fixture(scope="module")
def one_slot(smollm2_path: Path) -> Iterator[EngineHarness]:
    with EngineHarness(["-m", str(smollm2_path), "-c", "256", "-np", "1", "-t", "1"]) as harness:
        yield harness


@pytest.fixture(scope="module")
def three_slots(smollm2_path: Path) -> Iterator[EngineHarness]:
    argv = ["-m", str(smollm2_path), "-c", "512", "-np", "3", "--kv-unified", "-t", "1"]
    with EngineHarness(argv) as harness:
        yield harness


class Gate:
    """Holds the engine in its first decode until `open`, so that what is submitted meanwhile starts in one pass."""

    def __init__(self, harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        self._is_held = threading.Event()
        self._may_go = threading.Event()
        step = Runtime.step

        def held_step(
            runtime: Runtime, batch: BatchArrays, rows: Sequence[Row], *overlapped: Callable[[], None]
        ) -> tuple[int, list[Sample]]:
            self._is_held.set()
            assert self._may_go.wait(TIMEOUT_S)
            return step(runtime, batch, rows, *overlapped)

        monkeypatch.setattr(Runtime, "step", held_step)
        self._first = harness.start(prompt="One", n_predict=1)
        assert self._is_held.wait(TIMEOUT_S)

    def open(self) -> None:
        self._may_go.set()


def numbered(harness: EngineHarness, n_requests: int, **body: object) -> list[Running]:
    return [harness.start(prompt=[100 + i] * 9, n_predict=3, ignore_eos=True, **body) for i in range(n_requests)]


def message_of(running: Running) -> str:
    last = running.last()
    return json.loads(last.error)["message"] if isinstance(last, Failed) else ""


def test_the_line_moves_up_when_the_only_slot_ends_and_nothing_else_arrives(one_slot: EngineHarness) -> None:
    requests = [one_slot.start(prompt=f"Number {i}:", n_predict=3) for i in range(4)]
    one_slot.wait(*requests)
    assert all(request.result()["stop"] is True for request in requests)


@pytest.mark.parametrize("payload", ["final_payload", "progress_event"])
def test_a_payload_that_cannot_be_made_ends_its_own_request_only(
    payload: str, three_slots: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = getattr(Task, payload)

    def make_but_one(task: Task, n_past: int) -> bytes:
        if task.tokens[0] == 101:
            raise RuntimeError("no payload for this one")
        return bytes(make(task, n_past))

    gate = Gate(three_slots, monkeypatch)
    monkeypatch.setattr(Task, payload, make_but_one)
    requests = numbered(three_slots, 3, stream=True, return_progress=True)
    gate.open()
    three_slots.wait(*requests)
    assert message_of(requests[1]) == "got exception: no payload for this one"
    assert [type(requests[i].last()) for i in (0, 2)] == [Finished, Finished]


def test_a_task_that_cannot_be_taken_in_ends_alone(three_slots: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def make_job(task_id: int, task: Task, order: int, prompt: list[int], *more: Any) -> Job:
        if prompt[0] == 101:
            raise MemoryError("no memory for its prompt")
        return Job(task_id, task, order, prompt, *more)

    gate = Gate(three_slots, monkeypatch)
    monkeypatch.setattr(queue, "Job", make_job)
    requests = numbered(three_slots, 3)
    gate.open()
    three_slots.wait(*requests)
    assert message_of(requests[1]) == "got exception: no memory for its prompt"
    assert [type(requests[i].last()) for i in (0, 2)] == [Finished, Finished]


def test_those_in_the_line_keep_their_places_when_a_pass_fails_while_it_places_tasks(
    three_slots: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    reusable_prefix = KvPool.reusable_prefix

    def fail_for_one(pool: KvPool, slot: Slot, prompt: list[int], *flags: Any) -> int:
        if prompt[0] == 101:
            raise RuntimeError("this one is not placed")
        return reusable_prefix(pool, slot, prompt, *flags)

    gate = Gate(three_slots, monkeypatch)
    monkeypatch.setattr(KvPool, "reusable_prefix", fail_for_one)
    waits = numbered(three_slots, 1, id_slot=2)
    behind = numbered(three_slots, 1, id_slot=2)
    bad = three_slots.start(prompt=[101] * 9, n_predict=3)
    gate.open()
    three_slots.wait(*waits, *behind, bad)
    assert message_of(bad) == "got exception: this one is not placed"
    assert [type(request.last()) for request in (*waits, *behind)] == [Finished, Finished]


def test_only_the_request_that_finds_no_room_ends_when_several_finish_their_prompt_in_one_batch(
    three_slots: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_cells_really = 28
    gate = Gate(three_slots, monkeypatch)
    step = Runtime.step

    def step_in_a_smaller_pool(
        runtime: Runtime, batch: BatchArrays, rows: Sequence[Row], *overlapped: Callable[[], None]
    ) -> tuple[int, list[Sample]]:
        if runtime.context.n_cells_used() + len(batch.token) > n_cells_really:
            return STATUS_NO_ROOM, []
        return step(runtime, batch, rows, *overlapped)

    monkeypatch.setattr(Runtime, "step", step_in_a_smaller_pool)
    prompts = ([101] * 9, [102] * 9, [103] * 40)
    requests = [three_slots.start(prompt=prompt, n_predict=3, ignore_eos=True) for prompt in prompts]
    gate.open()
    three_slots.wait(*requests)
    assert [type(requests[i].last()) for i in (0, 1)] == [Finished, Finished]
    assert message_of(requests[2]) == "Context size has been exceeded."


def test_an_engine_that_ends_by_itself_says_so(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = EngineHarness(["-m", str(smollm2_path), "-c", "256", "-np", "1", "-t", "1"])
    with harness:
        monkeypatch.setattr(loop, "take_snapshot", lambda *_: 1 / 0)
        harness.start(prompt="One", n_predict=1)
        assert harness.engine.join(TIMEOUT_S)
    assert harness.failure() == "the engine ended: division by zero"


def test_a_slot_says_whether_its_text_has_a_new_line_while_it_runs(
    one_slot: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    take_snapshot = snapshot.take_snapshot

    def watch(*arguments: object) -> object:
        taken = take_snapshot(*arguments)  # type: ignore[arg-type]
        seen.extend(slot.has_new_line for slot in taken.slots if slot.is_processing)
        return taken

    monkeypatch.setattr(loop, "take_snapshot", watch)
    body = {"prompt": "A", "n_predict": 6, "ignore_eos": True}
    one_slot.run(**body, grammar='root ::= "a" "\\n" "b" "c" "d" "e"')
    assert seen[0] is False
    assert seen[-1] is True


def test_a_snapshot_is_taken_once_for_several_tokens_and_for_everything_else_at_once(
    one_slot: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []
    take_snapshot = snapshot.take_snapshot

    def watch(state: EngineState, *arguments: object) -> Snapshot:
        if not taken:
            now_s = state.clock()
            monkeypatch.setattr(state, "clock", lambda: now_s)  # from now on no time passes
        made = take_snapshot(state, *arguments)  # type: ignore[arg-type]
        taken.extend(slot.is_processing for slot in made.slots)
        return made

    monkeypatch.setattr(loop, "take_snapshot", watch)
    running = one_slot.run(prompt="A", n_predict=30, ignore_eos=True, stream=True)
    assert running.n_tokens() > 20
    assert len(taken) <= 5
    assert taken[-1] is False
