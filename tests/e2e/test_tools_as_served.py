"""Tools and MCP servers over a real server: each answer is llama-server's, and nobody gets them by accident."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from build_support.layout import of_this_clone
from tests.e2e.conftest import StartServer, server_flags
from tests.e2e.program import PATIENCE_S, ServerProcess, our_program

ECHO_SERVER = of_this_clone().tree / "tools" / "server" / "tests" / "fixtures" / "mcp_echo_server.py"
SERVERS = {"mcpServers": {"echo": {"command": sys.executable, "args": [str(ECHO_SERVER)]}}}
FLAGS = ("--agent", "--mcp-servers-json", json.dumps(SERVERS))


@pytest.fixture(scope="module")
def both(start_ours: StartServer, start_stock: StartServer) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    with contextlib.ExitStack() as running:
        yield running.enter_context(start_ours(*FLAGS)), running.enter_context(start_stock(*FLAGS))


def reply(server: ServerProcess, body: str, headers: dict[str, str] | None = None) -> tuple[int, str, str]:
    response = requests.post(server.url + "/tools", data=body, headers=headers, timeout=PATIENCE_S)
    return response.status_code, response.headers["content-type"], response.text


def test_the_list_is_llama_servers(both: tuple[ServerProcess, ServerProcess]) -> None:
    ours, stock = both
    assert ours.get("/tools").text == stock.get("/tools").text
    assert {"echo_add", "read_file", "exec_shell_command"} <= {tool["tool"] for tool in ours.get("/tools").json()}


@pytest.mark.parametrize(
    "call",
    [
        {"tool": "echo_add", "params": {"a": 3, "b": 5}},
        {"tool": "exec_shell_command", "params": {"command": "echo one; exit 3"}},
        {"tool": "read_file", "params": {"path": "no/such/file"}},
        {"tool": "no_such_tool"},
        {"tool": "echo_add", "stream": True},
        {"params": {}},
        [],
    ],
    ids=str,
)
def test_an_answer_is_llama_servers(both: tuple[ServerProcess, ServerProcess], call: object) -> None:
    ours, stock = both
    assert reply(ours, json.dumps(call)) == reply(stock, json.dumps(call))


def test_a_stream_has_llama_servers_text(both: tuple[ServerProcess, ServerProcess]) -> None:
    call = json.dumps({"tool": "exec_shell_command", "params": {"command": "echo one; echo two"}, "stream": True})
    streams = [reply(server, call) for server in both]
    # where one chunk ends and the next begins is a matter of time
    texts = [
        "".join(json.loads(line[6:]).get("chunk", "") for line in text.split("\n\n") if line) for *_, text in streams
    ]
    assert texts[0] == texts[1] == "one\ntwo\n\n[exit code: 0]"
    assert streams[0][:2] == streams[1][:2] == (200, "text/event-stream")
    assert streams[0][2].endswith('data: {"done":true}\n\n')


def test_the_folder_of_a_call_is_the_one_that_its_header_names(
    both: tuple[ServerProcess, ServerProcess], tmp_path: Path
) -> None:
    ours, stock = both
    (tmp_path / "ü.txt").write_text("here", encoding="utf-8")
    call = json.dumps({"tool": "read_file", "params": {"path": "ü.txt"}})
    headers = {"X-Tool-Cwd": str(tmp_path)}
    assert "here" in reply(ours, call, headers)[2]
    assert reply(ours, call, headers) == reply(stock, call, headers)


def test_a_command_that_streams_ends_when_its_client_leaves(
    both: tuple[ServerProcess, ServerProcess], tmp_path: Path
) -> None:
    ours, _ = both
    fifo = tmp_path / "alive"
    subprocess.run(["mkfifo", str(fifo)], check=True)
    command = f"exec 3> {fifo}; echo begun; while true; do echo more; sleep 0.05; done"
    call = {"tool": "exec_shell_command", "params": {"command": command, "timeout": 60}, "stream": True}
    with ours.post("/tools", call, stream=True) as response, fifo.open() as alive:
        assert b"begun" in next(line for line in response.iter_lines() if line)
        response.close()
        assert alive.read() == "", "the writing end is closed once the command has ended"


def test_the_proxy_is_on_and_reaches_the_servers_own_api(both: tuple[ServerProcess, ServerProcess]) -> None:
    ours, _ = both
    fetched = requests.get(ours.url + "/cors-proxy", params={"url": ours.url + "/health"}, timeout=PATIENCE_S)
    assert fetched.json() == {"status": "ok"}
    assert ours.get("/props").json()["cors_proxy_enabled"] is True


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--tools", "no_such_tool"], 'unknown tool "no_such_tool". available tools: read_file'),
        (["--mcp-servers-json", "{"], "failed to parse MCP config JSON"),
        (["--mcp-servers-config", "/no/such/file"], "failed to open MCP config file: /no/such/file"),
        (["--tools", "all", "--host", "0.0.0.0"], "--tools with --host 0.0.0.0 and no API key"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else None,
)
def test_a_start_that_cannot_or_must_not_serve_tools_ends_with_the_reason(
    smollm2_path: Path, flags: list[str], said: str
) -> None:
    ended = subprocess.run(
        [our_program(), *server_flags(smollm2_path), *flags],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 1
    assert said in ended.stderr


@pytest.mark.parametrize("flags", [("--tools-exposed",), ("--api-key", "k")], ids=" ".join)
def test_tools_on_an_open_host_need_a_key_or_to_be_told_twice(start_ours: StartServer, flags: tuple[str, ...]) -> None:
    with start_ours("--tools", "get_info", "--host", "0.0.0.0", *flags) as server:
        listed = requests.get(server.url + "/tools", headers={"X-Api-Key": "k"}, timeout=PATIENCE_S).json()
        assert [tool["tool"] for tool in listed] == ["get_info"]
