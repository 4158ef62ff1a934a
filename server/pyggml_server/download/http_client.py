"""The HTTP client of downloads: the environment's proxies and certificates, redirects, time-outs. Any thread."""

from __future__ import annotations

import httpx2

from pyggml_server.download.ports import DownloadError

CONNECT_TIMEOUT_S = 15.0
READ_TIMEOUT_S = 60.0  # between two pieces of an answer, not for all of it
N_REDIRECTS_MAX = 10


def new_client() -> httpx2.Client:
    """A client that follows redirects, and drops Authorization on the way to another host.

    It reads HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR; without the latter two the
    system's certificates count. Raises DownloadError where one of them cannot be used.
    """
    try:
        return httpx2.Client(
            # identity: a file's length has to be that of its bytes
            headers={"Accept-Encoding": "identity"},
            follow_redirects=True,
            max_redirects=N_REDIRECTS_MAX,
            timeout=httpx2.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        )
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        raise DownloadError(f"the proxy set in the environment cannot be used: {error}") from None
    except OSError as error:
        raise DownloadError(f"the certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {error}") from None
