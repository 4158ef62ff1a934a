"""The predict route of Vertex AI: each instance is answered by the route that it names."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator

import pytest
from pyggml_server.app import Server
from pyggml_server.web.vertex import VertexError, VertexRoutes, alias

from tests.web.fakes import FakeSettings, engine_factory
from tests.web.running import Running, one_error, running

VERTEX = VertexRoutes("/predict", "/alive", 8080)


@pytest.fixture
def server() -> Iterator[Running]:
    with running(FakeSettings(api_prefix="/llm"), vertex=VERTEX) as started:
        yield started


def predictions(server: Running, *instances: object) -> list[object]:
    response = server.post("/llm/predict", json={"instances": list(instances)})
    assert response.status_code == 200
    body = response.json()
    assert list(body) == ["predictions"]
    answers: list[object] = body["predictions"]
    return answers


def test_instances_are_answered_in_their_order_by_the_routes_they_name(server: Running) -> None:
    assert predictions(
        server,
        {"@requestFormat": "tokenize", "content": "hi"},
        {"@requestFormat": "/apply-template", "messages": []},
        {"@requestFormat": "health"},
        {"@requestFormat": "chatCompletionsInputTokens", "stream": True},
    ) == [
        {"tokens": [1, 2]},
        {"prompt": {"messages": []}},
        {"status": "ok"},
        {"kind": "OAI_CHAT", "input_tokens": len('{"stream": false}')},
    ]


def test_completions_run_side_by_side_and_are_never_streamed(server: Running) -> None:
    instance = {"@requestFormat": "chatCompletions", "stream": True}
    posting = server.posting("/llm/predict", json.dumps({"instances": [instance, instance]}))
    first, second = server.engine.next_task_ids(2)
    server.engine.finish(second, b'{"id":2}')
    server.engine.finish(first, b'{"id":1}')
    found = posting.response().json()["predictions"]
    assert sorted(answer["id"] for answer in found) == [1, 2]
    requests = [server.engine.translator.requests.get() for _ in range(2)]
    assert [(request.kind.name, request.stream) for request in requests] == [("OAI_CHAT", False)] * 2


def test_an_instance_that_is_wrong_is_answered_in_its_place(server: Running) -> None:
    found = predictions(
        server,
        5,
        {},
        {"@requestFormat": "nope"},
        {"@requestFormat": "tokenize"},
        {"@requestFormat": "detokenize"},
    )
    messages = [answer["error"]["message"] for answer in found[:4]]  # type: ignore[index]
    assert messages == [
        "each instance must be a JSON object",
        "each instance must include a string @requestFormat",
        "no handler registered for @requestFormat: nope",
        "no content",
    ]
    assert found[4] == {"content": {}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[]", "request body must be a JSON object"),
        ("{}", "request body must include an array field named instances"),
        ('{"instances":5}', "request body must include an array field named instances"),
        (json.dumps({"instances": [{}] * 129}), "instances array exceeds maximum size of 128"),
    ],
    ids=["array", "empty", "number", "too many"],
)
def test_a_body_that_is_no_prediction(server: Running, body: str, message: str) -> None:
    assert one_error(server.post("/llm/predict", data=body)) == (400, "invalid_request_error", message)


def test_a_client_that_leaves_cancels_all_its_instances(server: Running) -> None:
    instance = {"@requestFormat": "completions"}
    connection = server.raw_post("/llm/predict", json.dumps({"instances": [instance, instance]}))
    tasks = set(server.engine.next_task_ids(2))
    connection.close()
    assert {server.engine.next_cancelled_id(), server.engine.next_cancelled_id()} == tasks


def test_vertex_has_a_health_route_of_its_own(server: Running) -> None:
    assert server.get("/llm/alive").text == '{"status":"ok"}'


@pytest.mark.parametrize("path", ["/predict", "/alive"])
def test_without_vertex_its_routes_are_not_there(path: str) -> None:
    with running() as server:
        assert server.post(path).status_code == 404


def test_a_predict_route_that_is_taken_ends_the_start() -> None:
    server = Server(FakeSettings(), engine_factory(queue.SimpleQueue()), VertexRoutes("/health", "", 1))
    assert server.run() == 1


def test_the_environment_says_what_vertex_wants() -> None:
    from_environment = VertexRoutes.from_environment
    assert from_environment({}) is None
    assert from_environment({"AIP_MODE": "TRAINING", "AIP_HTTP_PORT": "x"}) is None
    assert from_environment({"AIP_MODE": "PREDICTION"}) == VertexRoutes("/predict", "", 8080)
    wanted = {"AIP_PREDICT_ROUTE": "go", "AIP_HEALTH_ROUTE": "alive", "AIP_HTTP_PORT": "9000"}
    assert from_environment({"AIP_MODE": "PREDICTION", **wanted}) == VertexRoutes("/go", "/alive", 9000)
    with pytest.raises(VertexError, match="AIP_HTTP_PORT=x is not a port number"):
        from_environment({"AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": "x"})


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chat/completions", "chatCompletions"),
        ("/apply-template", "applyTemplate"),
        ("/v1/messages/count_tokens", "messagesCountTokens"),
        ("/health", "health"),
        ("/slots/{id_slot}", "slots"),
    ],
)
def test_paths_have_names_in_camel_case(path: str, name: str) -> None:
    assert alias(path) == name


def test_the_body_is_written_as_llama_server_writes_json() -> None:
    with running(vertex=VERTEX) as server:
        answer = server.post("/predict", json={"instances": [{"@requestFormat": "tokenize", "content": "a"}]})
        assert answer.text == '{"predictions":[{"tokens":[1,2]}]}'
