"""Images and sounds that a chat names by http(s) address: fetched here, and handed over in the body as data URIs.

Event loop thread. As in llama-server one may have 10 MB and take 10 s. Only public addresses are fetched from,
also behind redirects, and the connection goes to the very address that was looked at: a client gets nothing out of this
server's network. Proxies of the environment are not used, since they would look names up by themselves.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import anyio.to_thread
import httpx2

from pyggml_server.errors import RequestRefusedError
from pyggml_server.web.errors import refused
from pyggml_server.web.public_address import addresses_of, is_public

log = logging.getLogger(__name__)

MAX_BYTES = 10 * 1024 * 1024
TIMEOUT_S = 10.0
N_REDIRECTS_MAX = 5
_REMEDY = "send it as a data URI"


class RemoteMedia:
    """`is_allowed`: whether an IP address may be connected to."""

    def __init__(self, is_allowed: Callable[[str], bool] = is_public) -> None:
        self._is_allowed = is_allowed

    async def fetch_into(self, body: bytes) -> bytes:
        """The body of a chat with every image and sound in it that it names by address. Raises RequestRefusedError."""
        if b"http" not in body:
            return body
        chat = await anyio.to_thread.run_sync(_parsed, body)
        places = list(_places(chat))
        if not places:
            return body
        for holder, key in places:
            holder[key] = await self._fetched(holder[key])
        return await anyio.to_thread.run_sync(_written, chat)

    async def _fetched(self, url: str) -> str:
        log.info("downloading media from '%s'", url.partition("?")[0])
        try:
            async with asyncio.timeout(TIMEOUT_S):
                content = await self._get(httpx2.URL(url))
        except TimeoutError:
            raise _failed(f"it took more than {TIMEOUT_S:.0f} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise _failed(str(error) or type(error).__name__) from None
        log.info("downloaded %d bytes", len(content))
        return "data:image/unknown;base64," + base64.b64encode(content).decode("ascii")

    async def _get(self, url: httpx2.URL) -> bytes:
        # of the environment only SSL_CERT_FILE and SSL_CERT_DIR count, which the context reads
        context = ssl.create_default_context()
        async with httpx2.AsyncClient(trust_env=False, verify=context, timeout=TIMEOUT_S) as client:
            for _ in range(N_REDIRECTS_MAX + 1):
                request = await self._request(client, url)
                response = await client.send(request, stream=True)
                try:
                    if not response.has_redirect_location:
                        return await _content_of(response)
                    url = url.join(response.headers["location"])
                finally:
                    await response.aclose()
        raise _failed(f"more than {N_REDIRECTS_MAX} redirects")

    async def _request(self, client: httpx2.AsyncClient, url: httpx2.URL) -> httpx2.Request:
        """A request to the address behind the name, in the name's name."""
        if url.scheme not in ("http", "https") or not url.host:
            raise _failed(f"'{url.scheme}' is no address of the web")
        port = url.port or (443 if url.scheme == "https" else 80)
        addresses = await addresses_of(url.host, port)
        if not addresses or not all(map(self._is_allowed, addresses)):
            raise _failed(f"{url.host} is an address of a private network, which is not fetched from")
        headers = {"host": url.netloc.decode("ascii"), "user-agent": "pyggml-server", "accept-encoding": "identity"}
        at = url.copy_with(host=addresses[0], userinfo=b"", fragment=None)
        return client.build_request("GET", at, headers=headers, extensions={"sni_hostname": url.host})


async def _content_of(response: httpx2.Response) -> bytes:
    if not response.is_success:
        raise _failed(f"answered with {response.status_code}")
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > MAX_BYTES:
            raise _failed(f"it has more than {MAX_BYTES} bytes")
    return bytes(content)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None  # the translation says what is wrong with it


def _written(chat: Any) -> bytes:
    return json.dumps(chat, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _places(chat: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Where addresses of images and sounds stand: in the parts of chat completions, of Responses, of Messages."""
    left = [chat]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left.extend(value.values())
            match value:
                case {"type": "image_url", "image_url": {"url": str(url)}} if url.startswith("http"):
                    yield value["image_url"], "url"
                case {"type": "input_audio", "input_audio": {"data": data}}:
                    if isinstance(data, str) and data.startswith("http"):
                        yield value["input_audio"], "data"
                case {"type": "input_audio", "input_audio": {"url": str(url)}} if url.startswith("http"):
                    yield value["input_audio"], "url"
                case {"type": "input_image", "image_url": str(url)} if url.startswith("http"):
                    yield value, "image_url"
                case {"type": "image", "source": {"type": "url", "url": str(url)}} if url.startswith("http"):
                    yield value["source"], "url"
        elif isinstance(value, list):
            left.extend(value)


def _failed(why: str) -> RequestRefusedError:
    return refused(f"Failed to download image: {why}; {_REMEDY}", "invalid_request_error")
