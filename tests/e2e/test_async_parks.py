"""Asynchronous parks as clients see them, all of it on simdev: the same text, and what /metrics and the log say."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import StartServer
from tests.e2e.program import ServerProcess
from tests.e2e.sse import post_stream
from tests.native.conftest import NativeTests, native_tests

__all__ = ["native_tests"]

CHAT = {
    "messages": [{"role": "user", "content": "Tell me about the sea."}],
    "max_tokens": 70,
    "temperature": 0,
    "ignore_eos": True,
    "cache_prompt": False,
}


def banner(server: ServerProcess) -> str:
    return next(line for line in server.log().splitlines() if "preemption: " in line)


@pytest.mark.parametrize(
    ("flag", "kind", "keeps_pinned"),
    [
        ("--preempt-async", "asynchronous copies, pinned memory offered", True),
        ("--no-preempt-async", "synchronous copies to pageable memory (--no-preempt-async)", False),
    ],
)
def test_a_chat_parked_every_20_tokens_has_the_text_of_one_that_never_was(
    flag: str, kind: str, keeps_pinned: bool, native_tests: NativeTests, start_ours: StartServer, ours: ServerProcess
) -> None:
    on_simdev = {"GGML_BACKEND_PATH": str(native_tests.simdev), "LLAMA_SERVER_PREEMPT_EVERY": "20"}
    with start_ours(flag, "-ngl", "99", **on_simdev) as server:
        assert kind in banner(server)
        parked = post_stream(server, "/v1/chat/completions", CHAT)
        assert parked.comments == ["preempted", "resumed"] * 3
        assert server.metric("restores_total") == server.metric("preemptions_total") == 3
        assert server.metric("preempt_ram_bytes") == 0
        assert (server.metric("pinned_pool_bytes") > 0) == keeps_pinned
    assert parked.text == post_stream(ours, "/v1/chat/completions", CHAT).text
