"""The routes that look and do not compute: health, models, props, slots, metrics. They never wait for the engine."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from pyggml_server import metrics
from pyggml_server.errors import NotLoadedError
from pyggml_server.web.drain import DRAINING_MESSAGE, RETRY_AFTER_S
from pyggml_server.web.errors import json_response, refusal
from pyggml_server.web.ports import TranslatorPort
from pyggml_server.web.service import Service
from pyggml_server.web.slots import refuse_without_slots, slots_json


class StatusRoutes:
    """The handlers, each for one path."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def health(self, _: Request) -> Response:
        """Loading and stopping are the gate's answers; who comes this far is served, until the server is to end."""
        if self._service.drain.is_under_way:
            return refusal(DRAINING_MESSAGE, "unavailable_error", RETRY_AFTER_S)
        return json_response(b'{"status":"ok"}')

    async def models(self, _: Request) -> Response:
        asleep = self._service.backend.engine.snapshot().asleep
        return json_response(asleep.models if asleep else await self._ask(lambda translator: translator.models()))

    async def props(self, _: Request) -> Response:
        asleep = self._service.backend.engine.snapshot().asleep
        return json_response(asleep.props if asleep else await self._ask(lambda translator: translator.props()))

    async def _ask(self, question: Callable[[TranslatorPort], bytes]) -> bytes:
        try:
            return await self._service.in_thread(question, self._service.backend.translator)
        except NotLoadedError:  # it was freed, or loaded again, since we looked
            async with self._service.awake():
                return await self._service.in_thread(question, self._service.backend.translator)

    async def change_props(self, _: Request) -> Response:
        """As in llama-server nothing can be changed yet, with or without --props."""
        if not self._service.settings.endpoint_props:
            return refusal(
                "This server does not support changing global properties. Start it with `--props`",
                "not_supported_error",
            )
        return json_response(b'{"success":true}')

    async def slots(self, request: Request) -> Response:
        refused = refuse_without_slots(self._service)
        if refused is not None:
            return refused
        snapshot = self._service.backend.engine.snapshot()
        if request.query_params.get("fail_on_no_slot") and all(slot.is_processing for slot in snapshot.slots):
            return refusal("no slot available", "unavailable_error")
        return json_response(slots_json(snapshot))

    async def metrics(self, _: Request) -> Response:
        """Prometheus text. A scrape starts new windows for the two rate gauges."""
        if not self._service.settings.endpoint_metrics:
            return refusal(
                "This server does not support metrics endpoint. Start it with `--metrics`", "not_supported_error"
            )
        engine = self._service.backend.engine
        snapshot = engine.snapshot()
        engine.reset_rate_window()
        headers = {
            "content-type": "text/plain; version=0.0.4",
            "process-start-time-unix": str(int(snapshot.time_started_s)),
        }
        return Response(metrics.render(snapshot.counters), headers=headers)
