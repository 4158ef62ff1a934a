"""The numbers behind the page at `/pool`, and how the page is served."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from pyggml_server.history import PoolEvent
from pyggml_server.published import Asleep, Counters, Snapshot
from pyggml_server.web.pool import PoolJson
from pyggml_server.web.pool_files import models_page, pool_page

from tests.web.fakes import FakeSettings
from tests.web.pool_snapshots import MIB, busy_pool
from tests.web.running import Running, one_error, running


def read(snapshot: Snapshot, now_s: float) -> Any:
    return json.loads(PoolJson().render(snapshot, now_s))


def test_a_parked_slot_shows_its_bytes_its_tokens_and_for_how_long_it_has_waited() -> None:
    slot = read(busy_pool(now_s=1000.0), 1001.5)["slots"][3]
    assert slot == {
        "id": 3,
        "state": "preempted",
        "id_task": 13,
        "is_preempted": True,
        "is_transferring": False,
        "n_cells": 0,
        "n_tokens": 300,
        "n_decoded": 0,
        "n_preempted": 2,
        "is_held": False,
        "is_on_disk": False,
        "priority": 0,
        "parked_bytes": 6 * MIB,
        "parked_ms": 500.0,
        "waiting_s": 10.5,
    }


def test_a_slot_in_the_pool_waits_for_nothing_and_an_idle_one_has_no_task() -> None:
    running_slot, idle = read(busy_pool(now_s=1000.0), 1000.0)["slots"][:2]
    assert (running_slot["n_cells"], running_slot["waiting_s"], running_slot["id_task"]) == (512, None, 10)
    assert (idle["n_cells"], idle["waiting_s"], idle["id_task"]) == (128, None, None)


def test_events_are_told_oldest_first_in_the_clock_of_now_s() -> None:
    shown = read(busy_pool(now_s=1000.0), 1001.0)
    assert shown["now_s"] == 1001.0
    events = shown["events"]
    assert [(e["number"], e["at_s"], e["kind"], e["id_slot"]) for e in events] == [
        (1, 991.0, "park", 3),
        (2, 993.0, "park", 2),
        (3, 995.0, "restore", 2),
        (4, 996.0, "end", 1),
        (5, 998.0, "park", 2),
    ]
    assert events[0]["reason"] == "no room for the next step"
    assert (events[0]["n_cells"], events[0]["n_bytes"], events[0]["took_ms"]) == (300, 6 * MIB, 2.0)


def test_gaps_of_a_second_are_told_by_its_end() -> None:
    gaps = read(busy_pool(now_s=1000.0), 1000.0)["gap_seconds"]
    assert gaps[0] == {"ends_at_s": 989, "n_gaps": 20, "worst_ms": 80.0, "mean_ms": 50.0}


def test_a_history_that_is_new_is_shown_and_one_that_is_not_is_not_made_again() -> None:
    renderer = PoolJson()
    first = busy_pool(now_s=1000.0, reason="first")
    assert b'"reason":"first"' in renderer.render(first, 1000.0)
    renderer._events._fields_of = never_asked
    assert b'"reason":"first"' in renderer.render(replace(first, counters=Counters()), 1001.0)
    with pytest.raises(AssertionError):
        renderer.render(busy_pool(now_s=1000.0, reason="second"), 1002.0)


def never_asked(_event: PoolEvent) -> dict[str, object]:
    raise AssertionError("this was made before")


def test_a_model_that_sleeps_holds_no_cells() -> None:
    awake = busy_pool(now_s=1000.0)
    assert read(awake, 1000.0)["is_asleep"] is False
    shown = read(replace(awake, asleep=Asleep(b"{}", b"{}")), 1000.0)
    assert shown["is_asleep"] is True
    assert (shown["pool"]["n_cells"], shown["pool"]["n_cells_used"]) == (1024, 0)
    assert [slot["n_cells"] for slot in shown["slots"]] == [0] * 4


def test_an_engine_that_has_seen_nothing_yet_gives_an_empty_pool(server: Running) -> None:
    shown = server.get("/pool.json").json()
    assert (shown["slots"], shown["events"], shown["gap_seconds"]) == ([], [], [])


def test_the_numbers_are_those_of_the_latest_snapshot(server: Running) -> None:
    server.engine.published = busy_pool()
    shown = server.get("/pool.json").json()
    assert shown["pool"] == {
        "n_cells": 1024,
        "n_cells_used": 640,
        "n_deferred": 0,
        "held_bytes": 8 * MIB,
        "limit_bytes": 64 * MIB,
        "pinned_bytes": 0,
    }
    assert shown["totals"]["preemptions_total"] == 3


def test_what_switches_slots_off_switches_the_numbers_off_too() -> None:
    with running(FakeSettings(endpoint_slots=False)) as server:
        message = "This server does not support slots endpoint. Start it with `--slots`"
        assert one_error(server.get("/pool.json")) == (501, "not_supported_error", message)


def test_the_numbers_need_the_key_and_the_page_does_not() -> None:
    with running(FakeSettings(api_keys=("secret",))) as server:
        assert server.get("/pool").status_code == 200
        assert server.get("/pool.json").status_code == 401
        assert server.get("/pool.json", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_with_a_prefix_the_page_needs_no_key_either() -> None:
    with running(FakeSettings(api_keys=("secret",), api_prefix="/llm")) as server:
        assert server.get("/llm/pool").status_code == 200
        assert server.get("/llm/pool.json").status_code == 401
        assert server.get("/pool").status_code == 401


def test_the_page_is_there_while_the_model_loads_and_the_numbers_are_not() -> None:
    with running(is_loaded=False) as server:
        assert server.get("/pool").status_code == 200
        assert server.get("/pool.json").status_code == 503


def test_the_page_is_one_file_that_names_no_other(server: Running) -> None:
    response = server.get("/pool")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    links = re.findall(r"""(?:\bsrc|\bhref|@import|url)\s*[=(]\s*["']?([^"'\s)>]+)""", response.text)
    assert set(links) == {"data:,", "#hatch", "pool"}  # the last leads to a router's other models
    assert "http" not in response.text.replace("http://www.w3.org/2000/svg", "")


def test_the_policy_lets_the_page_load_nothing_and_run_nothing_but_itself(server: Running) -> None:
    policy = server.get("/pool").headers["content-security-policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert rules["script-src"].startswith("'sha256-")
    assert rules["style-src"].startswith("'sha256-")


def test_the_policy_follows_the_page() -> None:
    policies = {page.headers["content-security-policy"] for page in (pool_page(), models_page())}
    assert len(policies) == 2


def test_the_page_at_the_root_leads_to_the_pool(server: Running) -> None:
    server.engine.published = Snapshot()
    assert '<a href="pool">' in server.get("/").text
