"""Keeps the model loaded while a request needs it, and has it loaded again (--sleep-idle-seconds). Pure ASGI."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from pyggml_server.errors import RequestRefusedError
from pyggml_server.web.errors import error_response
from pyggml_server.web.service import Service
from pyggml_server.web.unimplemented import CORS_PROXY, TOOLS

# what answers without the model: nobody who only looks wakes it. Without --api-prefix.
LOOKING = frozenset({"/health", "/v1/health", "/props", "/models", "/v1/models", "/metrics"})
PAGES = frozenset({"/", "/index.html", "/pool", "/pool.json"})
# what runs without the model, whatever the method
AGENT_PATHS = frozenset({TOOLS, CORS_PROXY})


class SleepGate:
    """Lets every request through, those that need the model once it is there."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. Other scopes (lifespan) pass through."""
        if scope["type"] != "http" or self._only_looks(scope):
            await self._app(scope, receive, send)
            return
        try:
            async with self._service.awake():
                await self._app(scope, receive, send)
        except RequestRefusedError as refused:
            await error_response(refused.status, refused.error)(scope, receive, send)

    def _only_looks(self, scope: Scope) -> bool:
        path = scope["path"].removeprefix(self._service.settings.api_prefix)
        return path in AGENT_PATHS or (scope["method"] == "GET" and path in LOOKING | PAGES)
