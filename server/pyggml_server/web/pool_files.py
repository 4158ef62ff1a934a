"""The page of one pool, and those that list the models of a router or replicas. Pure, but for reading package files.

Each is one HTML file: style and scripts of `pool_page/` are put into it here, and its Content-Security-Policy lets it
load nothing else and talk to this server only.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

# each uses those before it
POOL_SCRIPTS = ("words.js", "ask.js", "picture.js", "timeline.js", "page.js")
MODELS_SCRIPTS = ("words.js", "ask.js", "models.js")
REPLICAS_SCRIPTS = ("words.js", "ask.js", "replicas.js")


@dataclass(frozen=True, slots=True)
class Page:
    """One HTML file in UTF-8, and what is sent with it."""

    html: bytes
    headers: dict[str, str]


def pool_page() -> Page:
    """Where the server's own `pool.json` is drawn; with `?model=` in its address, that of a router's model, and with
    `?replica=` that of a replica."""
    return _assembled("page.html", POOL_SCRIPTS)


def models_page() -> Page:
    """Of a router: its models, each with the address of its pool."""
    return _assembled("models.html", MODELS_SCRIPTS)


def replicas_page() -> Page:
    """Of Ray Serve: the replicas, each with the address of its pool."""
    return _assembled("replicas.html", REPLICAS_SCRIPTS)


def _assembled(skeleton: str, scripts: Sequence[str]) -> Page:
    folder = resources.files("pyggml_server.web") / "pool_page"
    style = (folder / "style.css").read_text(encoding="utf-8")
    script = "".join((folder / name).read_text(encoding="utf-8") for name in scripts)
    text = (folder / skeleton).read_text(encoding="utf-8")
    text = text.replace("<style></style>", f"<style>{style}</style>")
    html = text.replace("<script></script>", f"<script>{script}</script>").encode()
    return Page(html, _headers(html))


def _headers(html: bytes) -> dict[str, str]:
    """Content type, no caching, and a policy under which only the page's own style and script run."""
    policy = (
        f"default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'self'; style-src '{_hash_of(html, b'style')}'; script-src '{_hash_of(html, b'script')}'"
    )
    return {
        "content-type": "text/html; charset=utf-8",
        "cache-control": "no-cache",
        "content-security-policy": policy,
    }


def _hash_of(html: bytes, tag: bytes) -> str:
    inside = html.partition(b"<" + tag + b">")[2].partition(b"</" + tag + b">")[0]
    return "sha256-" + base64.b64encode(hashlib.sha256(inside).digest()).decode()
