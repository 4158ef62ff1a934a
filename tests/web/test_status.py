"""The routes that only look: models, props, slots, metrics."""

from __future__ import annotations

from pyggml_server.published import Counters, SlotSnapshot, Snapshot

from tests.web.fakes import FakeSettings
from tests.web.running import Running, one_error, running

IDLE = SlotSnapshot(id=0, n_ctx=256, is_processing=False)
PARKED = SlotSnapshot(
    id=1,
    n_ctx=256,
    is_processing=True,
    id_task=7,
    params_json=b'{"temperature":0.800000011920929}',
    n_prompt_tokens=12,
    n_prompt_tokens_processed=10,
    n_prompt_tokens_cache=2,
    has_next_token=True,
    n_remain=5,
    n_decoded=3,
    state="preempted",
    is_preempted=True,
    parked_bytes=4096,
    parked_ms=1.5,
    n_preempted=2,
)


def test_models_and_props_are_what_the_translation_says(server: Running) -> None:
    assert server.get("/models").text == server.get("/v1/models").text == '{"object":"list"}'
    assert server.get("/props").text == '{"total_slots":4}'


def test_changing_props_needs_its_flag(server: Running) -> None:
    message = "This server does not support changing global properties. Start it with `--props`"
    assert one_error(server.post("/props", json={})) == (501, "not_supported_error", message)


def test_changing_props_succeeds_with_its_flag() -> None:
    with running(FakeSettings(endpoint_props=True)) as server:
        assert server.post("/props", json={}).text == '{"success":true}'


def test_slots_show_llama_servers_fields_and_those_of_preemption(server: Running) -> None:
    server.engine.published = Snapshot(slots=(IDLE, PARKED))
    idle, parked = server.get("/slots").json()
    assert idle == {
        "id": 0,
        "n_ctx": 256,
        "speculative": False,
        "is_processing": False,
        "state": "idle",
        "n_cells": 0,
        "is_preempted": False,
        "is_transferring": False,
        "parked_bytes": 0,
        "parked_ms": 0.0,
        "n_preempted": 0,
        "is_held": False,
        "is_on_disk": False,
        "priority": 0,
    }
    assert parked == {
        "id": 1,
        "n_ctx": 256,
        "speculative": False,
        "is_processing": True,
        "id_task": 7,
        "n_prompt_tokens": 12,
        "n_prompt_tokens_processed": 10,
        "n_prompt_tokens_cache": 2,
        "params": {"temperature": 0.800000011920929},
        "next_token": [{"has_next_token": True, "has_new_line": False, "n_remain": 5, "n_decoded": 3}],
        "state": "preempted",
        "n_cells": 0,
        "is_preempted": True,
        "is_transferring": False,
        "parked_bytes": 4096,
        "parked_ms": 1.5,
        "n_preempted": 2,
        "is_held": False,
        "is_on_disk": False,
        "priority": 0,
    }


def test_fail_on_no_slot_fails_only_when_every_slot_is_busy(server: Running) -> None:
    server.engine.published = Snapshot(slots=(IDLE, PARKED))
    assert server.get("/slots?fail_on_no_slot=1").status_code == 200
    server.engine.published = Snapshot(slots=(PARKED,))
    assert one_error(server.get("/slots?fail_on_no_slot=1")) == (503, "unavailable_error", "no slot available")
    assert server.get("/slots").status_code == 200


def test_slots_can_be_switched_off() -> None:
    with running(FakeSettings(endpoint_slots=False)) as server:
        message = "This server does not support slots endpoint. Start it with `--slots`"
        assert one_error(server.get("/slots")) == (501, "not_supported_error", message)


def test_metrics_need_their_flag(server: Running) -> None:
    message = "This server does not support metrics endpoint. Start it with `--metrics`"
    assert one_error(server.get("/metrics")) == (501, "not_supported_error", message)


def test_metrics_show_the_snapshot_and_start_new_rate_windows() -> None:
    with running(FakeSettings(endpoint_metrics=True)) as server:
        server.engine.published = Snapshot(counters=Counters(preemptions_total=3), time_started_s=1234.9)
        response = server.get("/metrics")
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/plain; version=0.0.4"
        assert response.headers["Process-Start-Time-Unix"] == "1234"
        assert "llamacpp:preemptions_total 3.0\n" in response.text
        assert server.engine.n_window_resets == 1
