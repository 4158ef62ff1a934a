"""Chats that are parked by hand and called back, on a real model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyggml_server.config import PreemptOptions, StepOptions
from pyggml_server.messages import Answered, Cancel, Cancelled, EndReasoning, Failed, HoldSlot

from tests.engine.harness import EngineHarness
from tests.engine.invariants import watched

CHAT = {"prompt": [100] * 20, "n_predict": 60, "ignore_eos": True, "stream": True, "temperature": 0}
ENDLESS = {**CHAT, "n_predict": -1, "n_keep": -1}


def engine(model: Path, *, n_slots: int = 2, step: StepOptions | None = None, **options: object) -> EngineHarness:
    size = ["-c", "256", "-np", str(n_slots), "--kv-unified", "-fa", "on", "-t", "1"]
    argv = ["-m", str(model), *size, "--context-shift"]
    return EngineHarness(argv, PreemptOptions(**options), step)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _watch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with watched(monkeypatch, caplog):
        yield


def park(harness: EngineHarness, slot_id: int, seconds: float = 0.0) -> dict[str, object]:
    return harness.call(lambda task_id: HoldSlot(task_id, slot_id, is_held=True, seconds=seconds))


def call_back(harness: EngineHarness, slot_id: int) -> dict[str, object]:
    return harness.call(lambda task_id: HoldSlot(task_id, slot_id, is_held=False))


def test_a_parked_chat_stays_out_until_it_is_called_back_and_says_the_same_as_one_that_never_was(
    smollm2_path: Path,
) -> None:
    with engine(smollm2_path) as harness:
        expected = harness.run(**CHAT, id_slot=0).result()["content"]
        chat = harness.start(**CHAT, id_slot=0)
        harness.wait_for_tokens(chat, 3)
        task_id = chat.task_ids[0]
        assert park(harness, 0) == {"id_slot": 0, "id_task": task_id, "action": "park", "state": "preempted"}
        n_tokens = chat.n_tokens()
        harness.run(**CHAT, id_slot=1)  # there is room for both, and time for many tokens
        snapshot = harness.engine.snapshot()
        assert chat.n_tokens() == n_tokens
        assert [slot.is_held for slot in snapshot.slots] == [True, False]
        assert snapshot.counters.slots_held == 1
        assert call_back(harness, 0)["action"] == "unpark"
        harness.wait(chat)
        assert harness.engine.snapshot().counters.slots_held == 0
    assert chat.notices() == ["preempted", "resumed"]
    assert chat.result()["content"] == expected


def test_who_is_parked_already_is_kept_out_too(smollm2_path: Path) -> None:
    with engine(smollm2_path, rotate_s=0) as harness:
        chats = [harness.start(**ENDLESS, id_slot=i) for i in range(2)]
        while True:
            harness.wait_for_tokens(chats[0], chats[0].n_tokens() + 1)
            away = [slot.id for slot in harness.engine.snapshot().slots if slot.state == "preempted"]
            if away:
                break
        assert park(harness, away[0])["state"] == "preempted"
        harness.cancel(chats[1 - away[0]])
        harness.wait(chats[1 - away[0]])
        assert harness.engine.snapshot().slots[away[0]].is_preempted
        call_back(harness, away[0])
        harness.wait_for_notice(chats[away[0]], "resumed")
        harness.cancel(chats[away[0]])
        harness.wait(*chats)


def test_after_the_given_time_it_comes_back_by_itself(smollm2_path: Path) -> None:
    with engine(smollm2_path) as harness:
        chat = harness.start(**CHAT, id_slot=0)
        harness.wait_for_tokens(chat, 3)
        park(harness, 0, seconds=0.01)
        harness.wait(chat)
    assert chat.notices() == ["preempted", "resumed"]
    assert chat.result()["tokens_predicted"] == 60


def test_its_time_is_over_also_while_another_chat_runs_ahead(smollm2_path: Path) -> None:
    with engine(smollm2_path, step=StepOptions(runs_ahead=True)) as harness:
        chat, other = harness.start(**CHAT, id_slot=0), harness.start(**ENDLESS, id_slot=1)
        harness.wait_for_tokens(chat, 3)
        park(harness, 0, seconds=0.2)
        harness.wait(chat)
        harness.cancel(other)
        harness.wait(other)
    assert chat.notices() == ["preempted", "resumed"]


def test_a_request_that_is_cancelled_meanwhile_gives_everything_back(smollm2_path: Path) -> None:
    with engine(smollm2_path) as harness:
        chat = harness.start(**ENDLESS, id_slot=0)
        harness.wait_for_tokens(chat, 3)
        park(harness, 0)
        harness.cancel(chat)
        harness.wait(chat)
        counters = harness.engine.snapshot().counters
        assert harness.run(**CHAT, id_slot=0).result()["tokens_predicted"] == 60
    assert isinstance(chat.last(), Cancelled)
    assert counters.preempt_ram_bytes == counters.slots_held == 0


def test_answers_that_share_a_prompt_leave_and_return_together(smollm2_path: Path) -> None:
    with engine(smollm2_path, n_slots=3) as harness:
        answers = harness.start(**ENDLESS, n=2)
        harness.wait_for_tokens(answers, 3)
        slots = [slot.id for slot in harness.engine.snapshot().slots if slot.is_processing]
        park(harness, slots[0])
        assert [harness.engine.snapshot().slots[i].state for i in slots] == ["preempted", "preempted"]
        call_back(harness, slots[1])
        harness.wait_for_notice(answers, "resumed")
        harness.cancel(answers)
        harness.wait(answers)
    assert [answers.notices(i) for i in range(2)] == [["preempted", "resumed"]] * 2


def test_a_state_that_host_memory_cannot_hold_is_not_parked_and_runs_on(smollm2_path: Path) -> None:
    with engine(smollm2_path, ram_mib=1) as harness:
        chat = harness.start(**{**ENDLESS, "prompt": [100] * 120}, id_slot=0)
        harness.wait_for_tokens(chat, 3)
        error = park(harness, 0)
        assert not harness.engine.snapshot().slots[0].is_held
        harness.wait_for_tokens(chat, chat.n_tokens() + 2)
        harness.cancel(chat)
        harness.wait(chat)
    assert error["type"] == "unavailable_error"
    assert "--preempt-ram" in str(error["message"])
    assert chat.notices() == []


def test_what_cannot_be_parked_is_refused_with_its_reason(smollm2_path: Path) -> None:
    with engine(smollm2_path) as harness:
        assert "slot 0 is idle" in str(park(harness, 0)["message"])
        assert "slot 0 is idle" in str(call_back(harness, 0)["message"])
        assert park(harness, 7)["message"] == "Invalid slot ID"
        assert park(harness, -1)["message"] == "Invalid slot ID"
        busy = harness.start(**{**ENDLESS, "prompt": [100] * 150}, id_slot=0)
        harness.wait_for_tokens(busy, 1)
        waiting = harness.start(**{**ENDLESS, "prompt": [200] * 200}, id_slot=1)
        while harness.engine.snapshot().slots[1].state != "started":
            harness.call(lambda task_id: EndReasoning(task_id, "nobody"))
        error = park(harness, 1)
        assert error["message"] == "the request of slot 1 has not begun: there is nothing to park"
        assert error["code"] == 400
        for running in (busy, waiting):
            harness.cancel(running)
        harness.wait(busy, waiting)


def test_without_preemption_nobody_is_parked_by_hand(smollm2_path: Path) -> None:
    with engine(smollm2_path, ram_mib=0) as harness:
        assert park(harness, 0)["code"] == 501


def test_whoever_asks_and_leaves_gets_no_answer_and_what_he_asked_for_stays(smollm2_path: Path) -> None:
    with engine(smollm2_path) as harness:
        chat = harness.start(**ENDLESS, id_slot=0)
        harness.wait_for_tokens(chat, 3)
        task_id = harness.start_call(lambda task_id: HoldSlot(task_id, 0, is_held=True))
        harness.engine.submit(Cancel(task_id))
        assert isinstance(harness.last_of_call(task_id), Answered | Cancelled)
        harness.wait_for_notice(chat, "preempted")
        asked = harness.start_call(lambda task_id: HoldSlot(task_id, 0, is_held=True))
        assert isinstance(harness.last_of_call(asked), Answered)
        harness.cancel(chat)
        harness.wait(chat)


def test_a_request_that_ends_before_it_was_parked_is_said_to_have_ended(smollm2_path: Path) -> None:
    with engine(smollm2_path) as harness:
        chat = harness.start(**ENDLESS, id_slot=0)
        harness.wait_for_tokens(chat, 3)
        task_id = harness.start_call(lambda task_id: HoldSlot(task_id, 0, is_held=True))
        harness.cancel(chat)
        harness.wait(chat)
        last = harness.last_of_call(task_id)
    assert isinstance(last, Answered) or (isinstance(last, Failed) and b"ended before it was parked" in last.error)
