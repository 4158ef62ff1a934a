"""Who is one too many in the line, and what a refused client is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from pyggml_server.engine.admission.line_limits import has_waited_too_long, one_too_many, retry_after_s
from pyggml_server.engine.slots.slot import Job
from pyggml_server.native.task import Task


def job(order: int, priority: int = 0, n_children: int = 0, arrived_at_s: float = 0.0) -> Job:
    task = cast(Task, SimpleNamespace(n_children=n_children))
    return Job(order, task, order, [1], priority, arrived_at_s)


def order_of_one_too_many(line: list[Job], n_idle: int, max_queue: int | None) -> int | None:
    found = one_too_many(line, n_idle, max_queue)
    return None if found is None else found.order


@pytest.mark.parametrize(
    ("n_jobs", "n_idle", "max_queue", "expected"),
    [(3, 0, 3, None), (4, 0, 3, 4), (1, 0, 0, 1), (2, 2, 0, None), (3, 2, 0, 3), (99, 0, None, None)],
)
def test_those_for_whom_a_slot_is_idle_do_not_wait(
    n_jobs: int, n_idle: int, max_queue: int | None, expected: int | None
) -> None:
    line = [job(order) for order in range(1, n_jobs + 1)]
    assert order_of_one_too_many(line, n_idle, max_queue) == expected


def test_a_request_of_several_answers_needs_as_many_slots_and_is_one_in_line() -> None:
    several = [job(1, n_children=2), job(2, n_children=2)]
    assert order_of_one_too_many(several, 3, 1) is None
    assert order_of_one_too_many(several, 3, 0) == 2
    assert order_of_one_too_many(several, 2, 1) == 2


def test_of_the_lowest_class_the_latest_leaves_whoever_came_last() -> None:
    line = [job(4), job(1, priority=1), job(2, priority=1), job(3, priority=0)]
    assert order_of_one_too_many(line, 0, 3) == 2
    assert order_of_one_too_many(line, 1, 2) == 2


def test_who_waits_longer_than_the_limit_has_waited_too_long_and_0_is_no_limit() -> None:
    assert has_waited_too_long(job(1, arrived_at_s=10.0), 15.1, 5.0)
    assert not has_waited_too_long(job(1, arrived_at_s=10.0), 15.0, 5.0)
    assert not has_waited_too_long(job(1), 1e9, 0.0)


@pytest.mark.parametrize(("wait_s", "told_s"), [(0.0, 1), (0.2, 1), (7.2, 8), (3600.0, 60)])
def test_a_client_is_told_to_come_back_after_as_long_as_others_waited_within_a_minute(
    wait_s: float, told_s: int
) -> None:
    assert retry_after_s(wait_s) == told_s
