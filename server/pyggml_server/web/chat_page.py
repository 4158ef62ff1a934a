"""llama.cpp's chat page at `/`, served as llama-server serves it: compressed, with tags and caching rules.

Its files need no API key and are served while the model loads. The build puts them into the folder chat_page in this
package, compressed and with an index. Event loop thread; files are read on worker threads.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

FOLDER = Path(__file__).with_name("chat_page")
INDEX = "files.json"
SUFFIX = ".gz"
FIRST = "index.html"
# revalidated by the browser: these keep their name in every version of the page
UNTAGGED = frozenset({"sw.js", "manifest.webmanifest", "_app/version.json", "build.json"})
REVALIDATED = "no-cache"
IMMUTABLE = "public, max-age=31536000, immutable"
ISOLATION = {"cross-origin-embedder-policy": "require-corp", "cross-origin-opener-policy": "same-origin"}
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css",
    "js": "application/javascript",
    "json": "application/json",
    "webmanifest": "application/manifest+json",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "ico": "image/x-icon",
    "woff": "font/woff",
    "woff2": "font/woff2",
    "txt": "text/plain; charset=utf-8",
}


class ChatPage:
    """The files of one built page: the content's hash by name."""

    def __init__(self, folder: Path, hashes: Mapping[str, str]) -> None:
        self._folder = folder
        self._hashes = hashes

    @classmethod
    def in_folder(cls, folder: Path = FOLDER) -> ChatPage | None:
        """The page that was built into that folder, or None where none was."""
        index = folder / INDEX
        return cls(folder, json.loads(index.read_text(encoding="ascii"))) if index.is_file() else None

    @property
    def paths(self) -> frozenset[str]:
        """Where its files are, without --api-prefix."""
        return frozenset({"/", *(f"/{name}" for name in self._hashes)})

    def routes(self, prefix: str) -> list[BaseRoute]:
        return [Route(prefix + path, self._file(path[1:] or FIRST).answer) for path in sorted(self.paths)]

    def unpack(self, folder: Path) -> None:
        """Write its files there as they are, for a server that compresses none."""
        for name in self._hashes:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.decompress((self._folder / (name + SUFFIX)).read_bytes()))

    def _file(self, name: str) -> PageFile:
        return PageFile(self._folder / (name + SUFFIX), name, f'"{self._hashes[name]}"')


class PageFile:
    """One file: what is sent of it and with what."""

    def __init__(self, path: Path, name: str, tag: str) -> None:
        self._path = path
        self._tag = tag
        self._headers = {
            "content-type": TYPES.get(name.rpartition(".")[2], "application/octet-stream"),
            "cache-control": REVALIDATED if name == FIRST or name in UNTAGGED else IMMUTABLE,
            "vary": "accept-encoding",
        }
        if name == FIRST:
            self._headers |= ISOLATION
        if name not in UNTAGGED:
            self._headers["etag"] = tag

    async def answer(self, request: Request) -> Response:
        """The file, or 304 for who has it. Compressed, but for a client that cannot read that."""
        known = request.headers.get("if-none-match")
        if "etag" in self._headers and known in (self._tag, f"W/{self._tag}"):
            return Response(status_code=304, headers=self._headers)
        content = await anyio.Path(self._path).read_bytes()
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(content, headers={**self._headers, "content-encoding": "gzip"})
        return Response(await anyio.to_thread.run_sync(gzip.decompress, content), headers=self._headers)
