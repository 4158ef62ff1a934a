"""The sockets that the server listens on: TCP addresses and UNIX sockets, bound before the model is loaded."""

from __future__ import annotations

import errno
import socket
import stat
from dataclasses import dataclass, field
from pathlib import Path

from pyggml_server.web.ports import WebSettings

BACKLOG = 2048
REMEDIES = {
    errno.EADDRINUSE: "; choose another --port, or --port 0 for any that is free",
    errno.EADDRNOTAVAIL: "; --host has to be an address of this machine",
    errno.EACCES: "; choose a --port above 1023",
}


class ListenError(Exception):
    """An address cannot be listened on; the message names it and the reason."""


class SetupError(ListenError):
    """The HTTP server cannot be what the flags ask for, whatever the addresses are."""


@dataclass(slots=True)
class Listeners:
    """Listening sockets and the addresses to print; `close` also removes the files of UNIX sockets."""

    sockets: list[socket.socket] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    unix_paths: list[str] = field(default_factory=list)

    def close(self) -> None:
        """Stop listening. Idempotent."""
        for sock in self.sockets:
            sock.close()
        for path in self.unix_paths:
            Path(path).unlink(missing_ok=True)
        self.unix_paths.clear()


def listen(settings: WebSettings) -> Listeners:
    """Bind and listen on every hostname of --host; those that end in `.sock` are UNIX sockets. Raises ListenError."""
    n_tcp_hosts = sum(not host.endswith(".sock") for host in settings.hostnames)
    if settings.port == 0 and n_tcp_hosts > 1:
        raise SetupError("--port 0 is not supported with multiple TCP addresses")
    scheme = "https" if uses_tls(settings) else "http"
    listeners = Listeners()
    try:
        for host in settings.hostnames:
            if host.endswith(".sock"):
                listeners.sockets.append(_listen_unix(host))
                listeners.unix_paths.append(host)
                listeners.addresses.append(f"unix://{host}")
            else:
                sock = _listen_tcp(host, settings.port, settings.reuse_port, is_v6_only=n_tcp_hosts > 1)
                listeners.sockets.append(sock)
                shown = f"[{host}]" if ":" in host else host
                listeners.addresses.append(f"{scheme}://{shown}:{sock.getsockname()[1]}")
    except (OSError, OverflowError) as error:
        listeners.close()
        reason = getattr(error, "strerror", None) or error
        raise ListenError(
            f"couldn't bind HTTP server socket, hostname: {host}, port: {settings.port}"
            f" ({host}:{settings.port}: {reason}{_remedy(error)})"
        ) from error
    return listeners


def _remedy(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "; see --host"
    return REMEDIES.get(error.errno or 0, "") if isinstance(error, OSError) else ""


def uses_tls(settings: WebSettings) -> bool:
    """As in llama-server, TLS needs both files; one alone is ignored."""
    return bool(settings.ssl_key_file and settings.ssl_cert_file)


def _listen_tcp(host: str, port: int, reuse_port: bool, *, is_v6_only: bool) -> socket.socket:
    failure: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    ):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse_port:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                # where there are other addresses, [::] must not also claim 0.0.0.0
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(is_v6_only))
            sock.bind(address)
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure or OSError(errno.EADDRNOTAVAIL, "the hostname has no address")


def _listen_unix(path: str) -> socket.socket:
    if _is_stale_socket(path):
        Path(path).unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _is_stale_socket(path: str) -> bool:
    """Whether `path` is a socket that nobody listens on any more, as a killed server leaves it behind."""
    try:
        if not stat.S_ISSOCK(Path(path).stat().st_mode):
            return False
    except OSError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
