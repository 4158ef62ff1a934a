"""What pyggml-server adds to llama-server's router, as the file that native/router.cpp reads. Pure.

Our flags, which the router hands to the models' servers; the page of the pools; and which paths need no API key.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyggml_server.flags import FLAGS, Flag
from pyggml_server.web.gate import POOL_PATH
from pyggml_server.web.pool_files import Page, models_page, pool_page

NUMBERS_PATH = "/pool.json"


def added(prefix: str, page_paths: Iterable[str]) -> dict[str, object]:
    """As JSON has it. `prefix` is --api-prefix; `page_paths` are those of the chat page's files, without it."""
    page = {"without_model": _page(models_page()), "with_model": _page(pool_page())}
    return {
        "options": [_option(flag) for flag in FLAGS],
        "public_paths": [prefix + path for path in sorted({POOL_PATH, *page_paths})],
        "pages": {POOL_PATH: page},
        "proxied": [NUMBERS_PATH],
    }


def _option(flag: Flag) -> dict[str, object]:
    is_switch = flag.type is None
    return {
        "names": flag.names[:1] if is_switch else flag.names,
        "negated": flag.names[1:] if is_switch else (),
        "hint": None if is_switch else flag.hint,
        "env": flag.env,
        "help": flag.help,
    }


def _page(page: Page) -> dict[str, object]:
    headers = dict(page.headers)
    return {"type": headers.pop("content-type"), "headers": headers, "text": page.html.decode()}
