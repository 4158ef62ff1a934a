"""The comparison itself: what it must find, and what it must let pass."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.comparing import by_index, differences, normalised
from tests.e2e.sse import EventStream


@pytest.mark.parametrize(
    ("ours", "stock"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"b": 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": True}, {"a": 1}),
        ({"a": None}, {}),
        ([1], [1, 2]),
        ([[{"a": 0.5}]], [[{"a": 0.6}]]),
    ],
)
def test_what_differs_is_found(ours: Any, stock: Any) -> None:
    assert list(differences(ours, stock))
    assert not list(differences(ours, ours))


def test_times_and_random_ids_do_not_count_but_their_types_do() -> None:
    assert normalised({"id": "a", "predicted_ms": 1.5}) == normalised({"id": "b", "predicted_ms": 99.0})
    assert normalised({"id": "a"}) != normalised({"id": 1})


def test_a_slot_is_a_slot_but_none_is_none() -> None:
    assert normalised({"id_slot": 0}) == normalised({"id_slot": 3}) != normalised({"id_slot": -1})


def test_choices_are_compared_one_by_one_and_what_closes_the_stream_stays_last() -> None:
    first, second = {"choices": [{"index": 0}]}, {"choices": [{"index": 1}]}
    usage: dict[str, Any] = {"choices": []}
    assert by_index(EventStream([second, first, usage]))["events"] == [first, second, usage]
