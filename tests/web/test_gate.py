"""API keys and CORS."""

from __future__ import annotations

import pytest
from pyggml_server.web.gate import KEEP_ALIVE_S, allow_origin

from tests.web.fakes import FakeSettings
from tests.web.running import Running, one_error, running

LOCKED = FakeSettings(api_keys=("first-key", "second-key"))


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer first-key"},
        {"Authorization": "Bearer second-key"},
        {"Authorization": "first-key"},
        {"X-Api-Key": "second-key"},
    ],
)
def test_a_request_with_one_of_the_keys_is_served(headers: dict[str, str]) -> None:
    with running(LOCKED) as server:
        assert server.get("/v1/models", headers=headers).status_code == 200


def test_headers_are_spelled_as_llama_server_spells_them() -> None:
    with running(FakeSettings(endpoint_metrics=True)) as server:
        scraped = dict(server.get("/metrics").headers)
        asked = dict(server.request("OPTIONS", "/props").headers)
    assert {"Content-Type", "Process-Start-Time-Unix", "Access-Control-Allow-Origin"} <= scraped.keys()
    assert {"Access-Control-Allow-Methods", "Access-Control-Allow-Credentials"} <= asked.keys()


@pytest.mark.parametrize("connection", ["keep-alive", "Upgrade"])
def test_a_response_says_how_long_its_connection_stays_open(server: Running, connection: str) -> None:
    for path in ("/health", "/no/such/path"):
        response = server.get(path, headers={"Connection": connection})
        assert response.headers["Keep-Alive"] == f"timeout={KEEP_ALIVE_S}"


def test_a_connection_that_is_closed_says_nothing_of_the_kind(server: Running) -> None:
    assert "Keep-Alive" not in server.get("/health", headers={"Connection": "a, Close"}).headers


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"X-Api-Key": "wrong"},
        {"Authorization": "wrong", "X-Api-Key": "first-key"},
    ],
)
def test_a_request_without_a_key_is_refused(headers: dict[str, str]) -> None:
    with running(LOCKED) as server:
        assert one_error(server.post("/completion", headers=headers)) == (
            401,
            "authentication_error",
            "Invalid API Key",
        )


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/"])
def test_public_paths_need_no_key(path: str) -> None:
    with running(LOCKED) as server:
        assert server.get(path).status_code == 200


def test_options_needs_no_key_and_names_what_is_allowed() -> None:
    with running(LOCKED) as server:
        response = server.request("OPTIONS", "/completions", headers={"Origin": "web.example"})
        assert response.status_code == 200
        assert response.content == b""
        assert response.headers["Access-Control-Allow-Origin"] == "web.example"
        assert response.headers["Access-Control-Allow-Credentials"] == "true"
        assert response.headers["Access-Control-Allow-Methods"] == "GET, POST, DELETE, OPTIONS"
        assert response.headers["Access-Control-Allow-Headers"] == "*"


def test_options_is_answered_while_the_model_loads() -> None:
    with running(is_loaded=False) as server:
        assert server.request("OPTIONS", "/completions").status_code == 200


def test_every_response_names_the_allowed_origin(server: Running) -> None:
    for path in ("/health", "/no/such/path"):
        assert (
            server.get(path, headers={"Origin": "web.example"}).headers["Access-Control-Allow-Origin"] == "web.example"
        )


@pytest.mark.parametrize(
    "origin",
    ["http://localhost", "http://localhost:8080", "http://127.0.0.1:3000", "http://[::1]", "https://[::1]:3000"],
)
def test_local_origins_are_reflected_when_only_they_are_allowed(origin: str) -> None:
    settings = FakeSettings(cors_origins="localhost")
    assert allow_origin(settings, origin.encode()) == [(b"access-control-allow-origin", origin.encode())]


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "localhost",
        "http://evil.example",
        "http://notlocalhost",
        "http://localhost.evil.example",
        "http://[::1",
        "http://localhost:port",
        "http://user@localhost",
        "http://@localhost",
        "http://user:secret@127.0.0.1:8080",
        "capacitor://localhost",
        "ftp://127.0.0.1",
    ],
)
def test_other_origins_get_no_header_when_only_local_ones_are_allowed(origin: str) -> None:
    assert allow_origin(FakeSettings(cors_origins="localhost"), origin.encode()) == []


def test_a_named_origin_is_sent_as_it_is() -> None:
    settings = FakeSettings(cors_origins="https://my.example")
    assert allow_origin(settings, b"http://other") == [(b"access-control-allow-origin", b"https://my.example")]


def test_any_origin_without_credentials_is_a_star() -> None:
    settings = FakeSettings(cors_credentials=False)
    assert allow_origin(settings, b"http://other") == [(b"access-control-allow-origin", b"*")]
