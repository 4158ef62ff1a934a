"""The demo leaves no server behind when a signal ends it before it is through."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.program import PATIENCE_S

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
SERVER = """#!/bin/sh
echo "listening on http://127.0.0.1:1/$$"
exec sleep 1000
"""
PROGRAM = """
import argparse, pathlib, signal, sys
import demo_chats
options = argparse.Namespace(cells=1024, model="none.gguf", server_flags=[])
with demo_chats.server(pathlib.Path(sys.argv[1]), options) as url:
    print(url.rpartition("/")[2], flush=True)
    signal.pause()
"""


def test_a_signal_that_ends_the_demo_ends_its_server(tmp_path: Path) -> None:
    server = tmp_path / "server"
    server.write_text(SERVER)
    server.chmod(0o755)
    command = [sys.executable, "-c", PROGRAM, str(server)]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as demo:
        assert demo.stdout is not None
        server_pid = int(demo.stdout.readline())
        demo.send_signal(signal.SIGTERM)
        exit_code = demo.wait(PATIENCE_S)
    try:
        with pytest.raises(ProcessLookupError):
            os.kill(server_pid, signal.SIGKILL)
    finally:
        assert exit_code == 128 + signal.SIGTERM
