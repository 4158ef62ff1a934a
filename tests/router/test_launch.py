"""The router's process: what it gets, how it is ended, and what comes of its end."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyggml_server.download.hub import Hub
from pyggml_server.router import launch

PATIENCE_S = 60.0


def script(folder: Path, text: str) -> Path:
    path = folder / "router"
    path.write_text(f"#!{sys.executable}\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def never(_interrupt: Callable[[], None]) -> None:
    """Nobody asks for the end."""


def test_the_router_asks_the_forwarder_and_the_models_servers_the_hub(tmp_path: Path) -> None:
    hub = Hub({"HF_ENDPOINT": "https://mirror"})
    with hub:
        environ = launch.environment({"MODEL_ENDPOINT": "https://mirror", "PATH": "/bin"}, tmp_path, hub)
    assert environ["MODEL_ENDPOINT"] == hub.address
    assert environ["PYGGML_ROUTER_ENDPOINT"] == "https://mirror"
    assert environ[launch.PYTHON_VARIABLE] == sys.executable
    assert environ[launch.ADDED_VARIABLE] == str(tmp_path)
    assert environ["PATH"] == "/bin"


def test_offline_nobody_is_told_of_a_hub(tmp_path: Path) -> None:
    assert "MODEL_ENDPOINT" not in launch.environment({}, tmp_path, None)


@pytest.mark.parametrize(("how", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 128 + 9)])
def test_its_exit_code_is_ours(how: str, code: int, tmp_path: Path) -> None:
    assert launch.run(script(tmp_path, f"import os, sys; {how}"), [], os.environ, never) == code


def test_it_gets_its_arguments_and_is_in_a_group_of_its_own_with_no_signal_blocked(tmp_path: Path) -> None:
    program = script(
        tmp_path,
        "import os, signal, sys, pathlib\n"
        "blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
        "pathlib.Path(sys.argv[1]).write_text(f'{sys.argv[2:]} {os.getpgid(0) == os.getpid()} {blocked}')",
    )
    assert launch.run(program, [str(tmp_path / "said"), "--port", "0"], os.environ, never) == 0
    assert (tmp_path / "said").read_text(encoding="utf-8") == "['--port', '0'] True set()"


def test_an_interrupt_is_passed_on_as_sigterm(tmp_path: Path) -> None:
    program = script(
        tmp_path,
        "import signal, sys, os\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "os.mkfifo(sys.argv[1])\n"
        "open(sys.argv[2], 'w').close()\n"
        "open(sys.argv[1]).read()",
    )
    started, is_up = tmp_path / "started", tmp_path / "up"
    os.mkfifo(is_up)

    def interrupt_once_it_is_up(interrupt: Callable[[], None]) -> None:
        def wait_and_interrupt() -> None:
            is_up.read_text(encoding="utf-8")
            interrupt()

        threading.Thread(target=wait_and_interrupt, daemon=True).start()

    assert launch.run(program, [str(started), str(is_up)], os.environ, interrupt_once_it_is_up) == 7
