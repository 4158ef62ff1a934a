"""The router's process: started, told to end, waited for. Main thread.

The router is llama-server's, in a program next to the compiled module. It starts that program again for each model,
which then becomes pyggml-server and speaks to the router as `child` has it. `added` has what it gets of ours.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from pyggml_server.config import Config
from pyggml_server.download.hub import ENDPOINT, Hub
from pyggml_server.router.added import added
from pyggml_server.router.child import ENDPOINT_VARIABLE
from pyggml_server.signals import Signals
from pyggml_server.web.chat_page import ChatPage

PYTHON_VARIABLE = "PYGGML_ROUTER_PYTHON"
ADDED_VARIABLE = "PYGGML_ROUTER_ADDED"


class RouterSettings(Protocol):
    """What it needs of the parsed command line."""

    @property
    def ui(self) -> bool: ...
    @property
    def public_path(self) -> str: ...
    @property
    def api_prefix(self) -> str: ...
    @property
    def is_offline(self) -> bool: ...


def run_router(config: Config, settings: RouterSettings, signals: Signals) -> int:
    """Serve several models until the end is asked for; the exit code. Raises UsageError, DownloadError."""
    from pyggml_server.native.router_program import router_program

    program = router_program()
    arguments = [*config.own_argv, *config.llama_argv]
    with ExitStack() as open_for_now:
        hub = None if settings.is_offline else open_for_now.enter_context(Hub(os.environ))
        folder = Path(open_for_now.enter_context(TemporaryDirectory(prefix="pyggml-router-")))
        page = ChatPage.in_folder() if settings.ui and not settings.public_path else None
        if page is not None:
            page.unpack(folder / "page")
            arguments += ["--path", str(folder / "page")]
        ours = folder / "added.json"
        ours.write_text(json.dumps(added(settings.api_prefix, () if page is None else page.paths)), encoding="utf-8")
        return run(program, arguments, environment(os.environ, ours, hub), signals.watch)


def environment(environ: Mapping[str, str], ours: Path, hub: Hub | None) -> dict[str, str]:
    """What the router and the models' servers get: the router asks the hub by our forwarder, they by their own."""
    asked = {} if hub is None else {ENDPOINT: hub.address, ENDPOINT_VARIABLE: hub.endpoint}
    return {**environ, **asked, PYTHON_VARIABLE: sys.executable, ADDED_VARIABLE: str(ours)}


def run(
    program: Path,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    watch_signals: Callable[[Callable[[], None]], None],
) -> int:
    """Run a program until it ends; its exit code, as a shell has it. `watch_signals` calls what it is given when the
    end is asked for."""
    # a group of its own: a terminal's Ctrl-C comes to it through us, and once
    process = os.posix_spawn(program, [str(program), *arguments], environ, setpgroup=0, setsigmask=())
    watch_signals(lambda: os.kill(process, signal.SIGTERM))
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return code if code >= 0 else 128 - code
