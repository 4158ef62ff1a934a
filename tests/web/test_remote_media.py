"""Images by address: which ones of a chat are fetched, from whom, and what of it goes wrong."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pyggml_server.errors import RequestRefusedError
from pyggml_server.web import public_address, remote_media
from pyggml_server.web.public_address import is_public
from pyggml_server.web.remote_media import MAX_BYTES, RemoteMedia

IMAGE = b"\x89PNG and so on"
AS_DATA = "data:image/unknown;base64," + base64.b64encode(IMAGE).decode()
Answer = Callable[[BaseHTTPRequestHandler], None]


def anywhere(_address: str) -> bool:
    return True


@contextmanager
def site(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer_with(content: bytes, status: int = 200, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        try:
            request.wfile.write(content)
        except OSError:
            request.close_connection = True  # the other side has read enough

    return answer


def fetched(chat: object, is_allowed: Callable[[str], bool] = anywhere) -> Any:
    return json.loads(asyncio.run(RemoteMedia(is_allowed).fetch_into(json.dumps(chat).encode())))


def refusal_of(url: str, is_allowed: Callable[[str], bool] = anywhere) -> str:
    part = {"type": "image_url", "image_url": {"url": url}}
    with pytest.raises(RequestRefusedError) as refused:
        fetched({"messages": [{"role": "user", "content": [part]}]}, is_allowed)
    assert refused.value.status == 400
    message: str = json.loads(refused.value.error)["message"]
    assert message.startswith("Failed to download image: ")
    assert message.endswith("; send it as a data URI")
    return message


def test_images_and_sounds_of_all_three_chat_apis_are_put_in_their_places() -> None:
    with site(answer_with(IMAGE)) as url:
        chat = [
            {"type": "image_url", "image_url": {"url": f"{url}/a", "detail": "low"}},
            {"type": "input_image", "image_url": f"{url}/b"},
            {"type": "image", "source": {"type": "url", "url": f"{url}/c"}},
            {"type": "input_audio", "input_audio": {"data": f"{url}/d", "format": "wav"}},
            {"type": "input_audio", "input_audio": {"url": f"{url}/e"}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "url": f"{url}/f"}},
        ]
        assert fetched(chat) == [
            {"type": "image_url", "image_url": {"url": AS_DATA, "detail": "low"}},
            {"type": "input_image", "image_url": AS_DATA},
            {"type": "image", "source": {"type": "url", "url": AS_DATA}},
            {"type": "input_audio", "input_audio": {"data": AS_DATA, "format": "wav"}},
            {"type": "input_audio", "input_audio": {"url": AS_DATA}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "url": f"{url}/f"}},  # llama-server takes the data
        ]


def test_what_is_no_image_s_address_stays_as_it_is() -> None:
    chat = {"messages": [{"role": "user", "content": [{"type": "text", "text": "http://127.0.0.1:1/"}]}], "n": 1e300}
    body = json.dumps(chat).encode()
    assert asyncio.run(RemoteMedia(anywhere).fetch_into(body)) is body


def test_a_body_that_is_no_json_is_left_to_the_translation() -> None:
    body = b'{"http": '
    assert asyncio.run(RemoteMedia(anywhere).fetch_into(body)) is body


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f000001", "127.1", "[::ffff:127.0.0.1]"]
)
def test_an_address_of_a_private_network_is_not_asked(host: str) -> None:
    asked: list[str] = []

    def note(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        answer_with(IMAGE)(request)

    with site(note) as url:
        port = url.rpartition(":")[2]
        assert "is an address of a private network" in refusal_of(f"http://{host}:{port}/x", is_public)
    assert asked == []


def test_a_redirect_is_followed_and_looked_at_anew() -> None:
    with site(answer_with(IMAGE)) as there, site(answer_with(b"", 302, Location=f"{there}/image")) as here:
        part = {"type": "input_image", "image_url": f"{here}/x"}
        assert fetched(part)["image_url"] == AS_DATA
        allowed = iter([True, False])
        assert "private network" in refusal_of(f"{here}/x", lambda _: next(allowed))


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "[::ffff:127.0.0.1]", "169.254.169.254", "public.example"])
def test_a_redirect_to_a_private_network_is_not_followed(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also to a name that stands for a public address and for a private one."""
    asked: list[str] = []
    look_up = public_address.addresses_of

    async def addresses_of(name: str, port: int) -> list[str]:
        return ["1.1.1.1", "10.0.0.1"] if name == "public.example" else await look_up(name, port)

    def redirect(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        location = f"http://{host}:{request.server.server_address[1]}/secret"  # type: ignore[index]
        answer_with(b"", 302, Location=location)(request)

    monkeypatch.setattr(remote_media, "addresses_of", addresses_of)
    first = iter([True])
    with site(redirect) as url:
        assert "private network" in refusal_of(f"{url}/x", lambda address: next(first, False) or is_public(address))
    assert asked == ["/x"]


def test_a_name_is_looked_up_once_and_connected_to_at_that_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it could stand for a public address when it is judged, and for another one when it is connected to."""
    answers = iter([["127.0.0.1"]])

    async def addresses_of(_name: str, _port: int) -> list[str]:
        return next(answers)

    monkeypatch.setattr(remote_media, "addresses_of", addresses_of)
    with site(answer_with(IMAGE)) as url:
        port = url.rpartition(":")[2]
        part = {"type": "input_image", "image_url": f"http://photos.example:{port}/x"}
        assert fetched(part)["image_url"] == AS_DATA


def test_redirects_come_to_an_end() -> None:
    with site(answer_with(b"", 302, Location="/again")) as url:
        assert "more than 5 redirects" in refusal_of(url)


def test_a_redirect_to_a_file_is_none() -> None:
    with site(answer_with(b"", 302, Location="file:///etc/passwd")) as url:
        assert "'file' is no address of the web" in refusal_of(url)


def test_an_error_of_the_other_side_is_told() -> None:
    with site(answer_with(b"gone", 410)) as url:
        assert "answered with 410" in refusal_of(url)


def test_an_image_beyond_the_limit_is_not_read_to_its_end() -> None:
    with site(answer_with(bytes(MAX_BYTES + 1))) as url:
        assert f"it has more than {MAX_BYTES} bytes" in refusal_of(url)


def test_an_image_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    def keep_waiting(_request: BaseHTTPRequestHandler) -> None:
        assert may_end.wait(60)

    monkeypatch.setattr(remote_media, "TIMEOUT_S", 0.2)
    with site(keep_waiting) as url:
        assert "it took more than 0 s" in refusal_of(url)
        may_end.set()


@pytest.mark.parametrize("url", ["http://", "https://no.such.host.invalid/x", "http://127.0.0.1:1/x"])
def test_an_address_that_leads_nowhere_is_an_error_of_the_request(url: str) -> None:
    refusal_of(url)
