"""What the web side costs per token: `scripts/bench token_cost`.

HTTP server, mailbox and streams run in a process of their own, with an engine that computes nothing. It says one
token to each chat; the next step comes when every chat has read its token. CPU time is that of the process, with the
fake engine's part. Instructions are those of the machine, counted by callgrind in a run of their own; left out where
valgrind is not installed.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
from typing import Any
from urllib.parse import urlsplit

from tests.bench.command_line import ROOT, bench_parser
from tests.bench.machine import ran_on

PROGRAM = [sys.executable, "-m", "tests.bench.token_cost.web_program"]
CALLGRIND = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=/dev/null"]
BODY = b'{"stream":true}'
PATIENCE_S = 300.0


def main(words: list[str]) -> int:
    parser = bench_parser("token_cost", __doc__)
    parser.add_argument("--chats", default="1,4,16", help="numbers of chats (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=1000, help="timed steps (default: %(default)s)")
    parser.add_argument(
        "--counted-steps", type=int, default=100, help="steps under callgrind, 0: none (default: %(default)s)"
    )
    options = parser.parse_args(words)
    n_counted = options.counted_steps if shutil.which("valgrind") else 0
    rows = [measure(int(n_chats), options.steps, n_counted) for n_chats in options.chats.split(",")]
    print(table(rows))
    if options.json:
        told = {"command": shlex.join(["scripts/bench", "token_cost", *words]), **ran_on()}
        told |= {"python": platform.python_version(), "rows": rows}
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    return 0


def measure(n_chats: int, n_steps: int, n_counted_steps: int) -> dict[str, Any]:
    """One row; `n_instructions` is None if none were counted."""
    cpu_s, _ = _run(n_chats, n_steps, [])
    n_instructions = None
    if n_counted_steps:
        _, said = _run(n_chats, n_counted_steps, CALLGRIND)
        n_instructions = round(collected(said) / (n_chats * n_counted_steps))
    cpu_us = round(1e6 * cpu_s / (n_chats * n_steps), 1)
    return {"chats": n_chats, "cpu_us_per_token": cpu_us, "instructions_per_token": n_instructions}


def collected(said: str) -> int:
    """The instructions that callgrind tells of at its end. Raises ValueError if it does not."""
    found = re.search(r"Collected *: *(\d+)", said)
    if found is None:
        raise ValueError(f"callgrind counted nothing: {said[-500:]}")
    return int(found[1])


def table(rows: list[dict[str, Any]]) -> str:
    """A line for each row."""
    lines = ["chats  CPU us per token  instructions per token"]
    for row in rows:
        n_instructions = "-" if row["instructions_per_token"] is None else f"{row['instructions_per_token']:,}"
        lines.append(f"{row['chats']:>5}{row['cpu_us_per_token']:>18}{n_instructions:>24}")
    return "\n".join(lines)


def _run(n_chats: int, n_steps: int, under: list[str]) -> tuple[float, str]:
    """CPU seconds of these steps, and what the program and who watches it said on stderr."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'server'}"}
    with subprocess.Popen(
        [*under, *PROGRAM], cwd=ROOT, env=environment, stdin=-1, stdout=-1, stderr=-1, text=True
    ) as program:
        try:
            cpu_s = _drive(program, n_chats, n_steps, is_counted=bool(under))
            _, said = program.communicate(timeout=PATIENCE_S)
        except BaseException:
            program.kill()
            raise
    if program.returncode != 0:
        raise RuntimeError(f"the web side ended with {program.returncode}: {said[-2000:]}")
    return cpu_s, said


def _drive(program: subprocess.Popen[str], n_chats: int, n_steps: int, *, is_counted: bool) -> float:
    address = urlsplit(_line(program))
    streams = [_open(str(address.hostname), int(address.port or 80)) for _ in range(n_chats)]
    try:
        _tell(program, str(n_chats))
        assert _line(program) == "open"
        for stream in streams:
            _read_until(stream, b"\r\n\r\n")
        _step(program, streams)  # what only the first token needs is not measured
        if is_counted:
            _count(program.pid, "on")
        _tell(program, "begin")
        for _ in range(n_steps):
            _step(program, streams)
        if is_counted:
            _count(program.pid, "off")
        _tell(program, "end")
        return float(_line(program))
    finally:
        for stream in streams:
            stream.close()


def _step(program: subprocess.Popen[str], streams: list[socket.socket]) -> None:
    _tell(program, "step")
    for stream in streams:
        _read_until(stream, b"\n\n\r\n")


def _open(host: str, port: int) -> socket.socket:
    stream = socket.create_connection((host, port), PATIENCE_S)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(BODY)}\r\n\r\n"
    stream.sendall(head.encode() + BODY)
    return stream


def _read_until(stream: socket.socket, end: bytes) -> None:
    received = b""
    while not received.endswith(end):
        piece = stream.recv(65536)
        if not piece:
            raise RuntimeError(f"the server ended a stream: {received[-500:]!r}")
        received += piece


def _tell(program: subprocess.Popen[str], line: str) -> None:
    assert program.stdin is not None
    program.stdin.write(line + "\n")
    program.stdin.flush()


def _line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().rstrip("\n")


def _count(pid: int, state: str) -> None:
    subprocess.run(["callgrind_control", f"--instr={state}", str(pid)], check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
