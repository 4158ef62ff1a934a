"""Sequence files go both ways between pyggml and the llama-server of the same tree."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from pyggml import Context, Model
from tests.pyggml.conftest import MakeContext

SERVER = Path(__file__).parents[2] / "build" / "cmake" / "bin" / "llama-server"
PROMPT = "Once upon a time there was a small robot who wanted to learn how to paint the sea."
N_TOKENS = 16

Post = Callable[[str, dict[str, Any]], dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def stock(smollm2_path: Path, folder: Path) -> Iterator[Post]:
    """A llama-server that keeps its slot files in `folder`, and a function that posts JSON to it."""
    if not SERVER.is_file():
        pytest.fail(f"{SERVER} is missing: run ./scripts/test, which builds it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = f"-c 256 -np 1 -t 1 -fa on --kv-unified --no-warmup --host 127.0.0.1 --port {port}".split()
    command = [str(SERVER), "-m", str(smollm2_path), "--slot-save-path", f"{folder}/", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=process.stdout.read)  # a full pipe would stop the server
        try:
            wait_until_listening(process.stdout)
            reader.start()
            yield lambda path, body: post(f"http://127.0.0.1:{port}{path}", body)
        finally:
            process.terminate()
            if reader.ident is not None:
                reader.join()


def wait_until_listening(output: IO[str]) -> None:
    lines = []
    for line in output:
        lines.append(line)
        if "listening on http:" in line:
            return
    pytest.fail("llama-server ended:\n" + "".join(lines[-30:]))


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def complete(stock: Post, prompt: list[int]) -> dict[str, Any]:
    body = {"prompt": prompt, "n_predict": N_TOKENS, "temperature": 0, "return_tokens": True, "cache_prompt": True}
    return stock("/completion", {**body, "id_slot": 0})


def test_a_slot_saved_by_llama_server_goes_on_here(
    stock: Post,
    folder: Path,
    model: Model,
    make_context: MakeContext,
    continue_greedily: Callable[[Context, int, int, int], list[int]],
) -> None:
    prompt = model.vocab.tokenize(PROMPT).tolist()
    answer = complete(stock, prompt)["tokens"]
    stock("/slots/0?action=save", {"filename": "slot.bin"})
    context = make_context()
    tokens = context.load_state_file(folder / "slot.bin", 2).tolist()
    assert (prompt + answer)[: len(tokens)] == tokens
    assert context.seq_pos_max(2) == len(tokens) - 1
    context.seq_remove(2, len(prompt) - 1)
    assert continue_greedily(context, 2, prompt[-1], N_TOKENS) == answer


def test_a_sequence_saved_here_goes_on_in_llama_server(
    stock: Post,
    folder: Path,
    model: Model,
    make_context: MakeContext,
    decode: Callable[[Context, Any, int], None],
    continue_greedily: Callable[[Context, int, int, int], list[int]],
) -> None:
    prompt = model.vocab.tokenize(PROMPT)
    context = make_context()
    decode(context, prompt[:-1], 1)
    context.save_state_file(folder / "ours.bin", 1, prompt[:-1])
    expected = continue_greedily(context, 1, int(prompt[-1]), N_TOKENS)
    restored = stock("/slots/0?action=restore", {"filename": "ours.bin"})
    assert restored["n_restored"] == len(prompt) - 1
    answer = complete(stock, prompt.tolist())
    assert answer["timings"]["prompt_n"] == 1  # the rest came from our file
    assert answer["tokens"] == expected
