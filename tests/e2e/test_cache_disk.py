"""A server that is ended and started again goes on with the prompts that it had (--cache-disk)."""

from __future__ import annotations

from pathlib import Path

import requests

from tests.e2e.conftest import running
from tests.e2e.program import PATIENCE_S, our_program

FLAGS = ["--port", "0", "-c", "512", "-np", "1", "-t", "1", "--no-warmup", "-fit", "off", "--metrics"]
CHAT = {
    "messages": [{"role": "user", "content": "Name the seas around Denmark, and say a word about each of them."}],
    "max_tokens": 8,
    "temperature": 0,
}


def test_a_chat_finds_its_prompt_after_a_restart(smollm2_path: Path, tmp_path: Path) -> None:
    flags = ["-m", str(smollm2_path), *FLAGS, "--cache-disk", "64", "--disk-path", str(tmp_path)]
    answers = []
    for _ in range(2):
        with running(our_program(), flags) as server:
            url = server.url + "/v1/chat/completions"
            answers.append(requests.post(url, json=CHAT, timeout=PATIENCE_S).json())
            metrics = requests.get(server.url + "/metrics", timeout=PATIENCE_S).text
    first, again = answers
    assert again["choices"][0]["message"] == first["choices"][0]["message"]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    n_cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert n_cached == again["timings"]["cache_n"] == first["usage"]["prompt_tokens"] - 1
    assert "llamacpp:cache_disk_read_total 1" in metrics
