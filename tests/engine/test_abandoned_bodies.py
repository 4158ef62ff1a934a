"""A body whose client has left ends soon, whatever it may take; bodies of others are read meanwhile."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyggml_server.abandoned import Abandoned
from pyggml_server.errors import RequestRefusedError
from pyggml_server.native.command_line import CommandLine
from pyggml_server.native.runtime import Runtime
from pyggml_server.native.translator import Translator
from pyggml_server.request_kind import RequestKind

from tests.hungry_template import TEMPLATE, endless_chat

HAS_BEGUN_S = 0.5  # of CPU time: by then the body is read, and the template at work
MAY_TAKE_S = 100.0
ENDLESS = json.dumps(endless_chat(MAY_TAKE_S)).encode()


@pytest.fixture(scope="module")
def translator(smollm2_path: Path) -> Iterator[Translator]:
    flags = ["-c", "64", "-t", "1", "--no-warmup", "-fit", "off", "--jinja", "--chat-template", TEMPLATE]
    loaded = Runtime.load(CommandLine.parse(["-m", str(smollm2_path), *flags]))
    yield loaded.translator
    loaded.close()


def translate(translator: Translator, call: str, body: bytes, abandoned: Abandoned) -> None:
    if call == "request":
        translator.request(RequestKind.OAI_CHAT, body, abandoned)
    elif call == "count_tokens":
        translator.count_tokens(RequestKind.OAI_CHAT, body, abandoned)
    else:
        translator.apply_template(body, abandoned)


@pytest.mark.parametrize("call", ["request", "count_tokens", "apply_template"])
def test_it_ends_once_its_client_leaves(translator: Translator, call: str) -> None:
    abandoned, clock = Abandoned(), [0]
    has_clock = threading.Event()

    def work() -> None:
        clock[0] = time.pthread_getcpuclockid(threading.get_ident())
        has_clock.set()
        translate(translator, call, ENDLESS, abandoned)

    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(work)
        try:
            assert has_clock.wait(MAY_TAKE_S)
            while not working.done() and time.clock_gettime(clock[0]) < HAS_BEGUN_S:
                translator.tokenize(b'{"content": "of others"}')
            assert not working.done(), working.exception()
        finally:
            abandoned.set()
        with pytest.raises(RequestRefusedError, match="nobody waits for the result any more"):
            working.result(MAY_TAKE_S)


def test_what_nobody_waits_for_is_not_begun(translator: Translator) -> None:
    abandoned = Abandoned()
    abandoned.set()
    with pytest.raises(RequestRefusedError, match="nobody waits for the result any more"):
        translator.request(RequestKind.COMPLETION, b'{"prompt": "Hi"}', abandoned)
