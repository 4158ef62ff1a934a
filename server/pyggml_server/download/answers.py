"""What was asked of whom and what came back, for messages: the failures of one download, as sentences. Any thread."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http import HTTPStatus

import httpx2

N_SHOWN_CHARACTERS = 200
TOKEN_REMEDY = "set HF_TOKEN to the token of an account that may read it, or look at the spelling"
STATUS_REMEDIES = {
    401: TOKEN_REMEDY,
    403: TOKEN_REMEDY + "; a gated repository also wants its terms accepted on its page",
    404: "look at the spelling",
    407: "HTTPS_PROXY needs the proxy's user name and password",
    429: "too many requests: try again later, or set HF_TOKEN",
}
SERVER_REMEDY = "try again later"
NETWORK_REMEDY = "see to the network or to HTTPS_PROXY; with --offline what is in the cache is enough"
TLS_REMEDY = "SSL_CERT_FILE may name the certificates of a proxy or a mirror"


@dataclass(frozen=True, slots=True)
class Failure:
    """One request that failed. `str` gives the sentence."""

    asked: str
    came_back: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.asked}: {self.came_back}: {self.remedy}"


class Failures:
    """The latest failure, if there was one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: Failure | None = None

    def add(self, failure: Failure) -> None:
        """Remember it."""
        with self._lock:
            self._latest = failure

    @property
    def latest(self) -> Failure | None:
        """The one that was added last."""
        with self._lock:
            return self._latest


def of_response(response: httpx2.Response, body: bytes) -> Failure:
    """What a status of 400 or more means. `body` is as much of it as was read."""
    first = response.history[0].request if response.history else response.request
    who = f" by {response.url.host}" if response.url.host != first.url.host else ""
    try:
        phrase = f" {HTTPStatus(response.status_code).phrase}"
    except ValueError:
        phrase = ""
    reason = response.headers.get("x-error-message") or reason_in(body)
    told = f' "{shorten(reason)}"' if reason else ""
    remedy = STATUS_REMEDIES.get(response.status_code, SERVER_REMEDY)
    return Failure(request_line(first), f"answered{who} with {response.status_code}{phrase}{told}", remedy)


def of_error(request: httpx2.Request | None, url: str, error: Exception) -> Failure:
    """What an exchange that broke off means."""
    asked = request_line(request) if request is not None else f"GET {shown(httpx2.URL(url))}"
    reason = str(error) or type(error).__name__
    if "certificate" in reason.lower() or "ssl" in reason.lower():
        return Failure(asked, shorten(reason), TLS_REMEDY)
    return Failure(asked, shorten(reason), NETWORK_REMEDY)


def request_line(request: httpx2.Request) -> str:
    """Method and address."""
    return f"{request.method} {shown(request.url)}"


def shown(url: httpx2.URL) -> str:
    """The address without what is secret in it: user, password and query."""
    return str(url.copy_with(username=None, password=None, query=None, fragment=None))


def reason_in(body: bytes) -> str:
    """The message of an error body: the hub's, or a registry's."""
    try:
        said = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(said, dict):
        return ""
    if isinstance(said.get("error"), str):
        return str(said["error"])
    errors = said.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else None
    return str(first.get("message") or "") if isinstance(first, dict) else ""


def shorten(text: str) -> str:
    """One line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= N_SHOWN_CHARACTERS else line[: N_SHOWN_CHARACTERS - 1] + "…"
