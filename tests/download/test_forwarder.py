"""What the forwarder lets through, to whom, and what it brings back."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from pyggml_server.download.answers import Failures
from pyggml_server.download.forwarder import Forwarder
from pyggml_server.download.http_client import new_client
from pyggml_server.download.ports import DownloadError
from pyggml_server.download.relay import Outside, Route

from tests.download.look_alike import TOKEN, Answer, Hub, Proxy, file_answer

PATIENCE_S = 60.0
AUTHORIZATION = {"Authorization": f"Bearer {TOKEN}"}
CONTENT = bytes(range(256)) * 1024


@pytest.fixture(autouse=True)
def _environment(authority_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority_file))


@contextmanager
def forwarding(base: str, *, takes_token: bool = True, is_folder: bool = False) -> Iterator[tuple[str, Failures]]:
    """The address that stands for `base`, and what failed."""
    failures = Failures()
    with new_client() as client, Forwarder(Outside(client, failures)) as forwarder:
        yield forwarder.add("it", Route(base, takes_token=takes_token, is_folder=is_folder)), failures


def ask(url: str, method: str = "GET", **headers: str) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        return session.request(method, url, headers=headers, timeout=PATIENCE_S)


def test_a_file_comes_whole_in_parts_and_as_headers_only(hub: Hub) -> None:
    hub.repositories["a/b"] = {"x.gguf": CONTENT}
    with forwarding(hub.site.url + "/") as (url, _):
        whole = ask(url + "a/b/resolve/main/x.gguf")
        part = ask(url + "a/b/resolve/main/x.gguf", Range="bytes=1000-")
        head = ask(url + "a/b/resolve/main/x.gguf", "HEAD")
    assert (whole.status_code, whole.content) == (200, CONTENT)
    assert (part.status_code, part.content) == (206, CONTENT[1000:])
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Length"] == str(len(CONTENT))
    assert head.headers["Accept-Ranges"] == "bytes"
    assert head.headers["ETag"] == whole.headers["ETag"]


def test_the_token_goes_to_the_hub_and_not_to_the_host_that_it_redirects_to(hub: Hub) -> None:
    hub.repositories["a/b"] = {"x.gguf": CONTENT}
    with forwarding(hub.site.url + "/") as (url, _):
        ask(url + "a/b/resolve/main/x.gguf", **AUTHORIZATION)
    assert [request.headers.get("authorization") for request in hub.site.requests] == [AUTHORIZATION["Authorization"]]
    assert [request.headers.get("authorization") for request in hub.files.requests] == [None]


def test_the_token_does_not_go_to_a_host_that_is_not_the_hub(hub: Hub) -> None:
    hub.loose["/x.gguf"] = file_answer(CONTENT)
    with forwarding(hub.site.url + "/", takes_token=False) as (url, _):
        ask(url + "x.gguf", **AUTHORIZATION)
    assert [request.headers.get("authorization") for request in hub.site.requests] == [None]


@pytest.mark.parametrize("change", [lambda url: url.replace("/it/", "/other/"), lambda url: url[:30] + "!" + url[31:]])
def test_nobody_gets_through_without_the_prefix(hub: Hub, change: object) -> None:
    with forwarding(hub.site.url + "/") as (url, _):
        assert callable(change)
        assert ask(change(url) + "x").status_code == 404
    assert hub.site.requests == []


@pytest.mark.parametrize("rest", ["deeper/x.gguf", "%2e%2e/x.gguf", "..%2fx.gguf"])
def test_a_folder_gives_only_what_lies_directly_in_it(hub: Hub, rest: str) -> None:
    with forwarding(hub.site.url + "/folder/", is_folder=True) as (url, _), requests.Session() as session:
        session.trust_env = False
        request = session.prepare_request(requests.Request("GET", url))
        request.url = url + rest  # as it is: requests would take the dots out
        assert session.send(request, timeout=PATIENCE_S).status_code == 404
    assert hub.site.requests == []


def test_a_query_goes_with_its_path(hub: Hub) -> None:
    hub.loose["/x.gguf"] = file_answer(CONTENT)
    with forwarding(hub.site.url + "/", is_folder=True) as (url, _):
        assert ask(url + "x.gguf?download=true&a=%2F").content == CONTENT
    assert hub.site.paths("GET") == ["/x.gguf?download=true&a=%2F"]


def test_a_body_that_breaks_off_ends_the_connection_early(hub: Hub) -> None:
    hub.loose["/x.gguf"] = file_answer(CONTENT)
    hub.site.cut_after = [1000]
    with forwarding(hub.site.url + "/") as (url, failures), pytest.raises(requests.exceptions.ChunkedEncodingError):
        ask(url + "x.gguf")
    assert f"GET {hub.site.url}/x.gguf: " in str(failures.latest)


def test_a_host_that_takes_only_get_still_tells_about_its_file(hub: Hub) -> None:
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()

    def answer(request: object) -> Answer:
        asked.put(request.method)  # type: ignore[attr-defined]
        return Answer(status=403) if request.method == "HEAD" else file_answer(CONTENT)  # type: ignore[attr-defined]

    hub.site.answer = answer
    with forwarding(hub.site.url + "/") as (url, failures):
        head = ask(url + "x.gguf?X-Signature=of-get", "HEAD")
    assert (head.status_code, head.headers["Content-Length"]) == (200, str(len(CONTENT)))
    assert [asked.get_nowait(), asked.get_nowait()] == ["HEAD", "GET"]
    assert failures.latest is None


def test_what_follows_the_last_byte_is_empty_and_no_error(hub: Hub) -> None:
    hub.loose["/x.gguf"] = file_answer(CONTENT)
    with forwarding(hub.site.url + "/") as (url, failures):
        rest = ask(url + "x.gguf", Range=f"bytes={len(CONTENT)}-")
        beyond = ask(url + "x.gguf", Range=f"bytes={len(CONTENT) + 1}-")
    assert (rest.status_code, rest.content) == (206, b"")
    assert beyond.status_code == 416
    assert "416" in str(failures.latest)


def test_a_host_that_cannot_be_reached_is_a_502_that_says_so(hub: Hub) -> None:
    hub.site.stop()
    with forwarding(hub.site.url + "/") as (url, failures):
        answer = ask(url + "x?signature=secret")
    assert answer.status_code == 502
    assert answer.json()["error"] == str(failures.latest)
    assert str(failures.latest).startswith(f"GET {hub.site.url}/x: ")
    assert "secret" not in answer.text
    assert "--offline" in answer.text


def test_a_certificate_that_nobody_vouches_for_is_refused(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with forwarding(hub.site.url + "/") as (url, failures):
        assert ask(url + "x").status_code == 502
    assert "certificate" in str(failures.latest)
    assert "SSL_CERT_FILE" in str(failures.latest)
    assert hub.site.requests == []


def test_the_proxy_of_the_environment_is_asked_for_a_tunnel(
    hub: Hub, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    hub.loose["/x.gguf"] = file_answer(CONTENT)
    with forwarding(hub.site.url + "/") as (url, _):
        assert ask(url + "x.gguf").content == CONTENT
    assert proxy.targets == [hub.site.url.removeprefix("https://")]


def test_no_proxy_is_asked_for_the_hosts_of_no_proxy(hub: Hub, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    monkeypatch.setenv("NO_PROXY", "localhost")
    hub.loose["/x.gguf"] = file_answer(CONTENT)
    with forwarding(hub.site.url + "/") as (url, _):
        assert ask(url + "x.gguf").content == CONTENT
    assert proxy.targets == []


@pytest.mark.parametrize(("variable", "value"), [("HTTPS_PROXY", "gopher://x"), ("SSL_CERT_FILE", "/no/such/file")])
def test_an_environment_that_cannot_be_used_is_named(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(DownloadError, match=r"proxy|SSL_CERT_FILE"):
        new_client()
