"""The console script: from arguments to one run of a server, of a router, or of a download for one. Main thread."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyggml_server import cli
from pyggml_server.app import Server
from pyggml_server.config import Config
from pyggml_server.download.ports import DownloadError
from pyggml_server.errors import UsageError
from pyggml_server.exposed_tools import ExposedToolsError, refuse_exposed_tools
from pyggml_server.fetch_models import prepare_download
from pyggml_server.flags import help_text
from pyggml_server.log_lines import send_log_to
from pyggml_server.openmp import sleep_early
from pyggml_server.router.child import RouterLink
from pyggml_server.signals import Signals
from pyggml_server.web.chat_page import ChatPage
from pyggml_server.web.priority import Priorities
from pyggml_server.web.priority_keys import read_key_classes
from pyggml_server.web.vertex import VertexError, VertexRoutes

if TYPE_CHECKING:
    from pyggml_server.native.command_line import CommandLine, Settings

log = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0005


def main(argv: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit code; for `--help` and its like llama.cpp's parser ends the process."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    signals = Signals()
    link = RouterLink.from_environment(os.environ)
    try:
        config = cli.parse(arguments, os.environ)
        vertex = VertexRoutes.from_environment(os.environ)
    except (cli.OptionError, VertexError) as refused:
        print(f"error: {refused}", file=sys.stderr)
        return 1
    if cli.wants_help(config.llama_argv):
        print(help_text(), end="", flush=True)

    sleep_early(os.environ)
    # here and not above: `--preempt-*` mistakes and tests need no compiled module
    from pyggml_server.native.command_line import CommandLine
    from pyggml_server.native.log import CommonLogHandler, flush_log

    try:
        command_line = CommandLine.parse(config.llama_argv)
        settings = command_line.settings
        if settings.has_server_tools and not config.tools_exposed:
            refuse_exposed_tools(settings.hostnames, settings.api_keys)
        send_log_to(CommonLogHandler(), settings.verbosity)
        if settings.is_router:
            return _run_router(config, settings, signals)
        fetch = prepare_download(command_line, None if link is None else link.tell_download_progress)
        if link is not None and link.is_download:
            return link.download(fetch)
        server, code = _serve(config, command_line, vertex, fetch, link, signals)
        if server.wants_router:
            return _run_router(config, settings, signals)
    except (UsageError, DownloadError, ExposedToolsError) as refused:
        if str(refused):
            print(refused, file=sys.stderr)
        return 1
    flush_log()
    if server.left_native_running:
        # the model still loads, or comes, on a thread that nothing can stop
        os._exit(code)
    return code


def _serve(
    config: Config,
    command_line: CommandLine,
    vertex: VertexRoutes | None,
    fetch: Callable[[], None] | None,
    link: RouterLink | None,
    signals: Signals,
) -> tuple[Server, int]:
    """One run of a server; the exit code. Raises UsageError."""
    from pyggml_server.engine.loop import Engine
    from pyggml_server.native.tools import Tools

    api_keys = None if link is not None else command_line.settings.api_keys  # which the router keeps to itself
    priorities = Priorities(config.serve.priority_best, read_key_classes(config.serve.priority_keys, api_keys))
    tools = Tools.start(command_line)
    on_asleep = link.tell_asleep if link is not None else lambda: None
    server = Server(
        _with_port_of(vertex, command_line.settings),
        lambda deliver, on_ready, on_failed: Engine(
            command_line, config.preempt, deliver, on_ready, on_failed, on_asleep, config.step, config.serve
        ),
        vertex,
        ChatPage.in_folder(),
        fetch,
        tools,
        link,
        priorities,
        config.serve.drain_s,
    )
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    signals.watch(server.interrupt)
    if link is not None:
        command_line.tell_load_progress(link.tell_load_progress)
        link.watch(server.interrupt)
    code = server.run()
    if tools is not None:
        tools.close()
    return server, code


def _run_router(config: Config, settings: Settings, signals: Signals) -> int:
    # here and not above: a server of one model needs no HTTP client
    from pyggml_server.router.launch import run_router

    return run_router(config, settings, signals)


def _with_port_of(vertex: VertexRoutes | None, settings: Settings) -> Settings:
    """As in llama-server, Vertex AI's port wins over --port."""
    if vertex is None or vertex.port == settings.port:
        return settings
    log.warning("AIP_HTTP_PORT %d replaces port %d", vertex.port, settings.port)
    return replace(settings, port=vertex.port)
