"""What the server answers before the model is loaded."""

from __future__ import annotations

import pytest

from tests.web.running import one_error, running


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/health"),
        ("GET", "/v1/health"),
        ("GET", "/v1/models"),
        ("GET", "/slots"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/embeddings"),
        ("GET", "/no/such/path"),
    ],
)
def test_every_route_is_unavailable_while_the_model_loads(method: str, path: str) -> None:
    with running(is_loaded=False) as server:
        assert one_error(server.request(method, path)) == (503, "unavailable_error", "Loading model")


def test_the_page_is_there_while_the_model_loads() -> None:
    with running(is_loaded=False) as server:
        response = server.get("/")
        assert response.status_code == 200
        assert "<!doctype html>" in response.text


def test_health_is_ok_once_the_model_is_loaded() -> None:
    with running(is_loaded=False) as server:
        server.finish_loading()
        for path in ("/health", "/v1/health"):
            response = server.get(path)
            assert response.status_code == 200
            assert response.text == '{"status":"ok"}'
            assert response.headers["content-type"] == "application/json; charset=utf-8"
