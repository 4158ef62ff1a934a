"""Slot actions and control: what the engine is asked, and what becomes of its answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyggml_server.errors import error_object
from pyggml_server.messages import Answered, EndReasoning, Failed, HoldSlot, SlotAction, SlotVerb

from tests.web.fakes import FakeSettings
from tests.web.running import Running, one_error, running


@pytest.fixture
def keeping() -> Iterator[Running]:
    """A server with a folder for slots."""
    with running(FakeSettings(slot_save_path="/slots/")) as started:
        yield started


@pytest.mark.parametrize("action", ["save", "restore"])
def test_a_slot_action_with_a_file_names_it_and_its_path(keeping: Running, action: str) -> None:
    posting = keeping.posting(f"/slots/2?action={action}", '{"filename":"a.bin"}')
    call = keeping.engine.next_call()
    assert call == SlotAction(call.task_id, SlotVerb(action), 2, "a.bin", "/slots/a.bin")
    keeping.engine.say(Answered(call.task_id, b'{"id_slot":2}'))
    response = posting.response()
    assert (response.status_code, response.json()) == (200, {"id_slot": 2})


def test_erasing_a_slot_needs_no_body(keeping: Running) -> None:
    posting = keeping.posting("/slots/0?action=erase", "")
    call = keeping.engine.next_call()
    assert call == SlotAction(call.task_id, SlotVerb.ERASE, 0)
    keeping.engine.say(Answered(call.task_id, b'{"n_erased":3}'))
    response = posting.response()
    assert (response.status_code, response.json()) == (200, {"n_erased": 3})


def test_an_action_that_fails_is_answered_with_the_engines_error(keeping: Running) -> None:
    posting = keeping.posting("/slots/9?action=erase", "")
    call = keeping.engine.next_call()
    keeping.engine.say(Failed(call.task_id, *error_object("Invalid slot ID", "invalid_request_error")))
    assert one_error(posting.response()) == (400, "invalid_request_error", "Invalid slot ID")


@pytest.mark.parametrize(
    ("query", "is_held", "seconds"),
    [("action=park", True, 0.0), ("action=park&seconds=2.5", True, 2.5), ("action=unpark", False, 0.0)],
)
def test_a_slot_is_parked_by_hand_without_a_folder_for_slots(
    server: Running, query: str, is_held: bool, seconds: float
) -> None:
    posting = server.posting(f"/slots/2?{query}", "")
    call = server.engine.next_call()
    assert call == HoldSlot(call.task_id, 2, is_held, seconds)
    server.engine.say(Answered(call.task_id, b'{"id_slot":2}'))
    assert posting.response().json() == {"id_slot": 2}


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "soon", ""])
def test_a_time_that_is_none_is_refused(server: Running, seconds: str) -> None:
    response = server.post(f"/slots/2?action=park&seconds={seconds}")
    message = f"'seconds' is '{seconds}': give a number, 0 or more"
    assert one_error(response) == (400, "invalid_request_error", message)
    assert server.engine.inbound.empty()


def test_what_hides_the_slots_parks_none() -> None:
    with running(FakeSettings(endpoint_slots=False)) as server:
        assert server.post("/slots/0?action=park").status_code == 501
        assert server.engine.inbound.empty()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/slots/x?action=save", "Invalid slot ID"),
        ("/slots/?action=save", "Invalid slot ID"),
        ("/slots/99999999999?action=save", "Invalid slot ID"),
        ("/slots/0?action=burn", "Invalid action"),
        ("/slots/0", "Invalid action"),
    ],
)
def test_a_mistake_in_the_address_never_reaches_the_engine(keeping: Running, path: str, message: str) -> None:
    assert one_error(keeping.post(path, json={"filename": "a"})) == (400, "invalid_request_error", message)
    assert keeping.engine.inbound.empty()


def test_a_slash_behind_the_id_does_not_matter_and_a_path_within_a_slot_is_not_there(keeping: Running) -> None:
    posting = keeping.posting("/slots/1/?action=erase", "")
    call = keeping.engine.next_call()
    assert call == SlotAction(call.task_id, SlotVerb.ERASE, 1)
    keeping.engine.say(Answered(call.task_id, b"{}"))
    assert posting.response().status_code == 200
    assert one_error(keeping.post("/slots/1/2?action=erase")) == (404, "not_found_error", "File Not Found")


def test_without_a_folder_for_slots_there_are_no_actions(server: Running) -> None:
    message = "This server does not support slots action. Start it with `--slot-save-path`"
    assert one_error(server.post("/slots/0?action=erase")) == (501, "not_supported_error", message)


def test_a_control_request_names_the_completion_to_the_engine(server: Running) -> None:
    posting = server.posting("/v1/chat/completions/control", '{"id":"chatcmpl-1","action":"reasoning_end"}')
    call = server.engine.next_call()
    assert call == EndReasoning(call.task_id, "chatcmpl-1")
    server.engine.say(Answered(call.task_id, b'{"success":true}'))
    assert posting.response().json() == {"success": True}


def test_a_client_that_leaves_takes_its_call_back(keeping: Running) -> None:
    connection = keeping.raw_post("/slots/0?action=erase", "")
    call = keeping.engine.next_call()
    connection.close()
    assert keeping.engine.next_cancelled_id() == call.task_id


def test_a_call_that_is_open_when_the_server_stops_is_told_so(keeping: Running) -> None:
    posting = keeping.posting("/slots/0?action=erase", "")
    keeping.engine.next_call()
    keeping.end()
    assert one_error(posting.response()) == (503, "unavailable_error", "The server is stopping")
