"""The class of a request: from its body or from a proxy's header, within what it may claim."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyggml_server.errors import RequestRefusedError, UsageError
from pyggml_server.messages import Submit
from pyggml_server.web.priority import Priorities
from pyggml_server.web.priority_keys import read_key_classes
from starlette.datastructures import Headers

from tests.web.fakes import PATIENCE_S, FakeSettings
from tests.web.running import one_error, running

ALL = Priorities(best=-1_000_000)


def of_body(body: object) -> int:
    return ALL.of(Headers(), json.dumps(body).encode())


def refusal(headers: dict[str, str], body: object) -> str:
    with pytest.raises(RequestRefusedError) as caught:
        ALL.of(Headers(headers), json.dumps(body).encode())
    assert caught.value.status == 400
    return str(json.loads(caught.value.error)["message"])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"prompt": "x"}, 0),
        ({"prompt": "x", "priority": 3}, 3),
        ({"priority": -2}, -2),
        ({"priority": "7"}, 7),
        ({"priority": None}, 0),
        ({"messages": [{"priority": 5}]}, 0),
        (["priority"], 0),
    ],
)
def test_the_bodys_own_field_counts(body: object, expected: int) -> None:
    assert of_body(body) == expected


def test_a_body_that_is_no_json_is_left_to_its_parser() -> None:
    assert ALL.of(Headers(), b'{"priority": ') == 0


def test_a_proxys_header_counts_for_more_than_the_body() -> None:
    assert ALL.of(Headers({"X-Request-Priority": "4"}), b'{"priority": -9}') == 4


@pytest.mark.parametrize("value", [1.5, True, "high", "", "--1", "\u0663", [1], {}])
def test_what_is_no_whole_number_is_refused_by_its_name(value: object) -> None:
    assert json.dumps(value) in refusal({}, {"priority": value})


@pytest.mark.parametrize("value", [1_000_001, -1_000_001, "9" * 5000])
def test_numbers_out_of_range_are_refused(value: object) -> None:
    assert "give a whole number between -1000000 and 1000000" in refusal({}, {"priority": value})


def test_a_header_that_is_no_number_is_refused() -> None:
    assert "x-request-priority is 'soon'" in refusal({"x-request-priority": "soon"}, {})


@pytest.mark.parametrize(("best", "claimed", "got"), [(0, -5, 0), (0, 5, 5), (-2, -5, -2), (3, 0, 3)])
def test_a_request_gets_no_better_class_than_it_may_claim(best: int, claimed: int, got: int) -> None:
    priorities = Priorities(best)
    assert priorities.of(Headers(), json.dumps({"priority": claimed}).encode()) == got
    assert priorities.of(Headers({"X-Request-Priority": str(claimed)}), b"{}") == got


# --- classes of keys


@pytest.mark.parametrize("key", [{"Authorization": "Bearer batch"}, {"X-Api-Key": "batch"}])
def test_a_keys_class_is_what_its_requests_get_and_the_best_that_they_may_claim(key: dict[str, str]) -> None:
    priorities = Priorities(0, {b"batch": 2, b"staff": -1})
    got = [priorities.of(Headers(key), json.dumps(body).encode()) for body in ({}, {"priority": 5}, {"priority": 0})]
    assert got == [2, 5, 2]
    assert priorities.of(Headers({"X-Api-Key": "staff"}), b"{}") == -1
    assert priorities.of(Headers({"X-Api-Key": "other"}), b"{}") == 0


def classes_of(folder: Path, text: str, api_keys: list[str] | None) -> object:
    path = folder / "classes.txt"
    path.write_text(text, encoding="utf-8")
    return read_key_classes(str(path), api_keys)


def test_the_file_has_a_number_and_a_key_on_each_line(tmp_path: Path) -> None:
    text = "# who goes first\n\n-1 staff\n5  night batch\n"
    assert classes_of(tmp_path, text, ["staff", "night batch", "guest"]) == {b"staff": -1, b"night batch": 5}
    assert classes_of(tmp_path, "1 whoever", None) == {b"whoever": 1}
    assert read_key_classes(None, []) == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("staff -1", "line 1: give a whole number, a space and a key"),
        ("\n2000000 staff", "line 2: 2000000 is not between"),
        ("1 secret", "line 1: this key is not in --api-key"),
    ],
)
def test_what_is_wrong_in_the_file_is_named_and_no_key_is(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        classes_of(tmp_path, text, ["staff"])
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.txt cannot be read"):
        read_key_classes(str(tmp_path / "nowhere.txt"), [])


# --- over HTTP


def test_the_engine_is_told_the_class_of_a_request() -> None:
    settings = FakeSettings(api_keys=("staff", "guest"))
    with running(settings, priorities=Priorities(0, {b"staff": -1})) as server:
        for key, expected in (("staff", -1), ("guest", 3)):
            body = '{"priority": -5}' if key == "staff" else '{"priority": 3}'
            with server.raw_post("/completion", body, {"Authorization": f"Bearer {key}"}):
                submitted = server.engine.inbound.get(timeout=PATIENCE_S)
            assert isinstance(submitted, Submit)
            assert submitted.priority == expected
            server.engine.next_cancelled_id()


def test_a_claim_that_is_no_number_is_answered_400() -> None:
    with running() as server:
        code, kind, message = one_error(server.post("/completion", data='{"priority": "soon"}'))
    assert (code, kind) == (400, "invalid_request_error")
    assert "'priority' is \"soon\"" in message
