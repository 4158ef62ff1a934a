"""Pages and numbers of one replica, asked of another."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyggml_server.ray.all_replicas import AllReplicas, Answer, Question, ask
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

POOL = {"n_cells": 100, "n_cells_used": 30, "n_deferred": 2}
SLOTS = [{"id_task": 1, "is_preempted": True}, {"id_task": None, "is_preempted": False}]


def application(name: str) -> Starlette:
    async def numbers(request: Request) -> Response:
        if request.headers.get("authorization") != "Bearer key":
            return Response("no key", 401)
        return Response(json.dumps({"pool": POOL, "slots": SLOTS, "of": name, "q": request.url.query}))

    return Starlette(routes=[Route("/x/pool.json", numbers), Route("/x/pool", lambda _: Response("one pool"))])


@pytest.fixture
def client() -> TestClient:
    """Replica a of a and b, with --api-prefix /x."""

    async def broadcast(question: Question) -> list[Answer]:
        return [Answer(name, 7, *await ask(application(name), question)) for name in ("b", "a")]

    return TestClient(AllReplicas(application("a"), "a", "/x", broadcast), headers={"authorization": "Bearer key"})


def test_the_list_has_what_each_pool_holds(client: TestClient) -> None:
    listed: list[dict[str, Any]] = client.get("/x/replicas.json").json()["replicas"]
    assert [replica["id"] for replica in listed] == ["a", "b"]
    assert listed[0] == {"id": "a", "process_id": 7, "pool": POOL, "n_slots": 2, "n_running": 1, "n_parked": 1}


def test_without_a_key_the_list_is_refused_as_the_numbers_are(client: TestClient) -> None:
    refused = client.get("/x/replicas.json", headers={"authorization": ""})
    assert (refused.status_code, refused.text) == (401, "no key")


def test_a_named_replica_answers_whoever_is_asked(client: TestClient) -> None:
    assert client.get("/x/pool.json?replica=b").json()["of"] == "b"
    assert client.get("/x/pool.json?replica=a").json()["of"] == "a"
    assert client.get("/x/pool.json?replica=b").json()["q"] == "replica=b"


def test_a_replica_that_is_not_there_is_named_in_the_refusal(client: TestClient) -> None:
    refused = client.get("/x/pool.json?replica=c")
    assert refused.status_code == 404
    assert "no replica is called c" in refused.json()["error"]["message"]


def test_the_page_lists_replicas_and_shows_one_that_is_named(client: TestClient) -> None:
    assert "replicas.json" in client.get("/x/pool").text
    assert client.get("/x/pool?replica=b").text == "one pool"


def test_a_replica_that_is_too_slow_is_told_as_that() -> None:
    async def broadcast(_question: Question) -> list[Answer]:
        raise TimeoutError

    refused = TestClient(AllReplicas(application("a"), "a", "", broadcast)).get("/replicas.json")
    assert refused.status_code == 503


def test_everything_else_is_the_server_s(client: TestClient) -> None:
    assert client.post("/x/pool.json?replica=b").status_code == 405
    assert client.get("/pool.json").status_code == 404
