"""One replica: an engine and the server's own application, inside a process of Ray's.

Ray calls everything here on the event loop of the replica. The engine has its own thread, as it does elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ray import serve
from starlette.types import ASGIApp

from pyggml_server import cli
from pyggml_server.errors import UsageError
from pyggml_server.exposed_tools import refuse_exposed_tools
from pyggml_server.fetch_models import prepare_download
from pyggml_server.log_lines import send_log_to
from pyggml_server.messages import EnginePort
from pyggml_server.openmp import sleep_early
from pyggml_server.ray.all_replicas import AllReplicas, Answer, Question, ask
from pyggml_server.ray.scaling import PRESSURE, pressure
from pyggml_server.web.application import create_application
from pyggml_server.web.chat_page import ChatPage
from pyggml_server.web.ports import TranslatorPort
from pyggml_server.web.priority import Priorities
from pyggml_server.web.priority_keys import read_key_classes
from pyggml_server.web.service import Backend, Service

if TYPE_CHECKING:
    from pyggml_server.config import Config
    from pyggml_server.engine.loop import Engine
    from pyggml_server.native.command_line import CommandLine

log = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0005
END_GRACE_S = 5.0  # for the pass that runs, and copies in flight
BROADCAST_S = 5.0


class Replica:
    """A server without sockets of its own."""

    async def __init__(self, argv: Sequence[str]) -> None:  # type: ignore[misc]  # Ray awaits it
        """`argv` is a server's command line. Returns once the model is loaded; it is downloaded first, where a flag
        says so. Raises RuntimeError with the reason where it cannot be."""
        sleep_early(os.environ)
        # here and not above: where the application is made, nothing native is needed
        from pyggml_server.native.command_line import CommandLine
        from pyggml_server.native.log import CommonLogHandler

        self._loop = asyncio.get_running_loop()
        self._loaded: asyncio.Future[None] = self._loop.create_future()
        self._failure: str | None = None
        config = cli.parse(argv, os.environ)
        try:
            command_line = CommandLine.parse(config.llama_argv)
        except UsageError as refused:
            reason = str(refused) or 'the line with "error:" above says why'
            raise RuntimeError(f"the server refuses {' '.join(argv)}: {reason}") from None
        settings = command_line.settings
        if settings.is_router:
            raise RuntimeError("no model is named: a replica serves one; add model=FILE or hf_repo=USER/MODEL")
        if settings.has_server_tools and not config.tools_exposed:
            refuse_exposed_tools(("0.0.0.0",), settings.api_keys)
        send_log_to(CommonLogHandler(), settings.verbosity)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._service = self._make_service(config, command_line)
        self._service.mailbox.bind()
        if fetch := prepare_download(command_line, None):
            await asyncio.to_thread(fetch)
        self._engine = self._make_engine(config, command_line)
        self._engine.start()
        await self._loaded

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """What Ray sends requests to."""
        context = serve.get_replica_context()
        application = create_application(self._service)
        self._all = AllReplicas(
            application,
            context.replica_tag,
            self._service.settings.api_prefix,
            partial(_broadcast, serve.get_deployment_handle(context.deployment, context.app_name)),
        )
        return self._all

    async def answer(self, question: Question) -> Answer:
        """What this replica answers to a question that another one got."""
        return Answer(self._all.name, os.getpid(), *await ask(self._all.application, question))

    async def check_health(self) -> None:
        """Raises RuntimeError once the engine has ended: Ray then puts a new replica in this one's place."""
        if self._failure is not None:
            raise RuntimeError(self._failure)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """For the policy in `scaling`."""
        return {PRESSURE: pressure(self._engine.snapshot())}

    async def __del__(self) -> None:
        """Ray has waited for the requests that ran. Those that are left end as cancelled."""
        if not hasattr(self, "_engine"):
            return
        self._service.stop()
        self._engine.stop()
        if not await asyncio.to_thread(self._engine.join, END_GRACE_S):
            log.warning("the engine still runs after %g seconds", END_GRACE_S)

    def _make_service(self, config: Config, command_line: CommandLine) -> Service:
        from pyggml_server.native.tools import Tools

        classes = read_key_classes(config.serve.priority_keys, command_line.settings.api_keys)
        priorities = Priorities(config.serve.priority_best, classes)
        tools = Tools.start(command_line)
        return Service(command_line.settings, None, ChatPage.in_folder(), tools, priorities)

    def _make_engine(self, config: Config, command_line: CommandLine) -> Engine:
        from pyggml_server.engine.loop import Engine

        return Engine(
            command_line,
            config.preempt,
            self._service.mailbox.deliver,
            self._on_loop(self._open),
            self._on_loop(self._note_failure),
            step=config.step,
            serve=config.serve,
        )

    def _on_loop(self, function: Callable[[Any], None]) -> Callable[[Any], None]:
        """For the engine thread: the call happens on the event loop."""

        def call(value: Any) -> None:
            self._loop.call_soon_threadsafe(function, value)

        return call

    def _open(self, translator: TranslatorPort) -> None:
        engine: EnginePort = self._engine
        self._service.open(Backend(engine, translator))
        if not self._loaded.done():  # else it was loaded again
            self._loaded.set_result(None)

    def _note_failure(self, message: str) -> None:
        log.error("%s", message)
        self._failure = message
        if not self._loaded.done():
            self._loaded.set_exception(RuntimeError(message))


async def _broadcast(handle: Any, question: Question) -> list[Answer]:
    """The answers of all replicas that gave one. Raises TimeoutError where one takes too long."""
    answers = await handle.broadcast("answer", question).results_async(timeout_s=BROADCAST_S, return_exceptions=True)
    return [answer for answer in answers if isinstance(answer, Answer)]
