"""The hub as llama.cpp's code reaches it: through a forwarder, at an address that is good for as long as it is open."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

import httpx2

from pyggml_server.download.answers import Failures
from pyggml_server.download.forwarder import Forwarder
from pyggml_server.download.http_client import new_client
from pyggml_server.download.ports import DownloadError
from pyggml_server.download.relay import Outside, Route, TellProgress

ENDPOINT = "MODEL_ENDPOINT"  # what llama.cpp asks in place of the hub
DEFAULT_ENDPOINT = "https://huggingface.co/"


class Hub:
    """A client, a forwarder, and what failed on their way. Serves from `with` to its end; any thread."""

    def __init__(self, environ: Mapping[str, str], tell_progress: TellProgress | None = None) -> None:
        """Raises DownloadError for an environment that cannot be used."""
        self.endpoint = environ.get(ENDPOINT) or environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT
        if not self.endpoint.startswith(("https://", "http://")):
            raise DownloadError(f"{ENDPOINT} or HF_ENDPOINT is {self.endpoint!r}: expected an address with https://")
        self.failures = Failures()
        self.client = new_client()
        self.forwarder = Forwarder(Outside(self.client, self.failures, tell_progress))
        base = self.endpoint.rstrip("/") + "/"
        self.address = self.forwarder.add("hub", Route(base, takes_token=True, is_folder=False))

    def is_at(self, url: httpx2.URL) -> bool:
        """Whether it is the hub that answers there."""
        hub = httpx2.URL(self.endpoint)
        return (url.scheme, url.host, url.port) == (hub.scheme, hub.host, hub.port)

    def __enter__(self) -> Hub:
        self.forwarder.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.forwarder.__exit__(kind, error, at)
        self.client.close()
