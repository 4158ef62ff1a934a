"""Addresses: several hosts, UNIX sockets, ports that are taken."""

from __future__ import annotations

import http.client
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
import requests
from pyggml_server.web.listen import ListenError, listen

from tests.web.fakes import PATIENCE_S, FakeSettings
from tests.web.running import Running, running


def get_over_unix_socket(path: Path) -> bytes:
    """The body of GET /health on a UNIX socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(path))
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: test\r\n\r\n")
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.read()


def test_a_hostname_ending_in_sock_is_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "server.sock"
    with running(FakeSettings(hostnames=(str(path),))) as server:
        assert server.server.addresses == (f"unix://{path}",)
        assert get_over_unix_socket(path) == b'{"status":"ok"}'
    assert not path.exists()


def test_a_socket_file_that_a_killed_server_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "server.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left_behind:
        left_behind.bind(str(path))
    with running(FakeSettings(hostnames=(str(path),))):
        assert get_over_unix_socket(path) == b'{"status":"ok"}'


def test_a_socket_file_in_use_is_not_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "server.sock"
    with running(FakeSettings(hostnames=(str(path),))):
        with pytest.raises(ListenError, match=r"server\.sock"):
            listen(FakeSettings(hostnames=(str(path),)))
        assert get_over_unix_socket(path) == b'{"status":"ok"}'


def test_a_plain_file_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "precious.sock"
    path.write_text("data")
    with pytest.raises(ListenError):
        listen(FakeSettings(hostnames=(str(path),)))
    assert path.read_text() == "data"


def test_several_hostnames_are_all_listened_on(tmp_path: Path) -> None:
    path = tmp_path / "server.sock"
    with running(FakeSettings(hostnames=("127.0.0.1", str(path)))) as server:
        assert server.get("/health").text == '{"status":"ok"}'
        assert get_over_unix_socket(path) == b'{"status":"ok"}'
        assert server.server.addresses == (server.url, f"unix://{path}")


def test_a_busy_port_is_named(server: Running) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    with pytest.raises(
        ListenError, match=rf"hostname: 127\.0\.0\.1, port: {port} .*Address already in use; choose another --port"
    ):
        listen(FakeSettings(port=port))


def test_an_address_that_cannot_be_bound_frees_those_before_it(tmp_path: Path) -> None:
    path = tmp_path / "server.sock"
    with pytest.raises(ListenError):
        listen(FakeSettings(hostnames=(str(path), "host.invalid")))
    assert not path.exists()


def test_any_free_port_cannot_be_the_same_on_two_addresses() -> None:
    with pytest.raises(ListenError, match="--port 0"):
        listen(FakeSettings(hostnames=("127.0.0.1", "127.0.0.2")))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with the openssl program")
def test_with_key_and_certificate_the_server_speaks_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*make, *names], check=True, capture_output=True)
    with running(FakeSettings(ssl_key_file=str(key), ssl_cert_file=str(certificate))) as server:
        assert server.url.startswith("https://")
        response = requests.get(server.url + "/health", verify=str(certificate), timeout=PATIENCE_S)
        assert response.text == '{"status":"ok"}'


def test_a_key_without_certificate_means_no_tls(tmp_path: Path) -> None:
    with running(FakeSettings(ssl_key_file=str(tmp_path / "key.pem"))) as server:
        assert server.url.startswith("http://")


@pytest.mark.parametrize(
    ("host", "remedy"), [("no.such.host.invalid", "; see --host"), ("192.0.2.1", "of this machine")]
)
def test_an_address_that_is_not_ours_is_told_with_what_to_do(host: str, remedy: str) -> None:
    with pytest.raises(ListenError, match=remedy):
        listen(FakeSettings(hostnames=(host,), port=0))
