"""The examples that talk to a server run as their documentation says."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from tests.e2e.conftest import StartServer
from tests.e2e.program import PATIENCE_S, REPOSITORY, ServerProcess


def run_example(name: str, *arguments: str, typed: str = "") -> str:
    """What it printed; it must end well, warnings being errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", f"examples/{name}.py", *arguments],
        input=typed,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def says(text: str) -> dict[str, object]:
    return {"role": "assistant", "content": text}


def calls(name: str, arguments: dict[str, object]) -> dict[str, object]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]}


@contextlib.contextmanager
def scripted_model(messages: list[dict[str, object]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A chat API that answers with these messages in turn; its URL, and the bodies that it was asked with."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            choice = {"index": 0, "finish_reason": "stop", "message": messages[len(asked) - 1]}
            answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice]}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the test's output is for failures."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
        server.shutdown()
        thread.join()


def test_a_chat_answers_each_line_until_an_empty_one(ours: ServerProcess) -> None:
    said = run_example("chat", f"{ours.url}/v1", typed="Name a sea.\nAnd a lake?\n\nThis is not asked.\n")
    answers = [answer.strip() for answer in said.split("> ")[1:]]
    assert len(answers) == 3
    assert all(answers[:2])
    assert answers[2] == ""


def test_a_chat_is_parked_by_hand_and_goes_on_where_it_was(ours: ServerProcess) -> None:
    said = run_example("park_by_hand", ours.url)
    assert said.startswith("park: slot 0 is preempted\nmeanwhile: The sea")
    assert "\nunpark: slot 0 is " in said
    assert ": preempted" in said
    assert ": resumed" in said


def test_an_agent_answers_through_the_server(start_ours: StartServer) -> None:
    template = REPOSITORY / "vendor/ggml/llama.cpp/models/templates/Qwen-Qwen3-0.6B.jinja"
    with start_ours("--chat-template-file", str(template)) as server:
        assert run_example("agent_with_tools", "What time is it?", f"{server.url}/v1").strip()


def test_an_agent_runs_the_tools_that_a_model_calls_and_gives_it_their_results() -> None:
    with scripted_model(
        [calls("list_files", {"folder": "examples"}), calls("current_time", {"zone": 1}), says("Done.")]
    ) as (
        url,
        asked,
    ):
        said = run_example("agent_with_tools", "Which files are there?", url).splitlines()
    assert said[0].startswith('list_files({"folder": "examples"}) -> [')
    assert '"chat.py"' in said[0]
    assert "error: TypeError" in said[1]  # told to the model, which can try again
    assert said[2] == "Done."
    assert [body["tool_choice"] for body in asked] == ["required", "auto", "auto"]
    assert [message["role"] for message in asked[2]["messages"]] == ["user", "assistant", "tool", "assistant", "tool"]


def test_a_search_finds_the_very_sentence_first(start_ours: StartServer) -> None:
    sentence = "Bread is made of flour, water and salt."
    with start_ours("--embeddings", "--pooling", "mean") as server:
        said = run_example("embedding_search", sentence, f"{server.url}/v1")
    assert said.splitlines()[0] == f"1.000  {sentence}"
    assert len(said.splitlines()) == 4
