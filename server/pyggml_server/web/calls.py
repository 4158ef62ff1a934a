"""Calls that the engine answers with one JSON body: slot actions, and control of a running completion.

Event loop thread. The call of a client that disconnects is withdrawn if the engine has not begun it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pyggml_server.messages import Answered, Call, EndReasoning, HoldSlot, SlotAction, SlotVerb
from pyggml_server.web.answer import refusal_of
from pyggml_server.web.body import read_body
from pyggml_server.web.disconnect import while_connected
from pyggml_server.web.errors import json_response, refusal, refused
from pyggml_server.web.service import Service
from pyggml_server.web.slots import refuse_without_slots

_LEADING_NUMBER = re.compile(r"\s*[+-]?\d+")
MAX_SLOT_ID = 2**31 - 1
HOLDING = {"park": True, "unpark": False}  # whether the slot stays out


class CallRoutes:
    """The handlers, each for one path."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def act_on_slot(self, request: Request) -> Response:
        """POST /slots/{id_slot}?action=save|restore|erase|park|unpark. As in llama-server the id may be empty, which
        is an error of its own, or have a slash behind it."""
        id_slot = request.path_params["id_slot"].removesuffix("/")
        if "/" in id_slot:
            raise HTTPException(404)
        body = await read_body(request)
        if request.query_params.get("action", "") in HOLDING:
            return await self._hold(request, id_slot)
        if not self._service.settings.slot_save_path:
            return refusal(
                "This server does not support slots action. Start it with `--slot-save-path`", "not_supported_error"
            )
        slot_id = _slot_id(id_slot)
        try:
            verb = SlotVerb(request.query_params.get("action", ""))
        except ValueError:
            return refusal("Invalid action", "invalid_request_error")
        name, path = "", ""
        if verb is not SlotVerb.ERASE:
            translate = self._service.backend.translator.slot_file
            name, path = await self._service.in_thread(translate, body)
        return await self._answer(request, lambda task_id: SlotAction(task_id, verb, slot_id, name, path))

    async def _hold(self, request: Request, id_slot: str) -> Response:
        """POST /slots/{id_slot}?action=park|unpark[&seconds=S]: ours. `--no-slots` switches it off with `/slots`."""
        refused_without = refuse_without_slots(self._service)
        if refused_without is not None:
            return refused_without
        slot_id, seconds = _slot_id(id_slot), _seconds(request.query_params.get("seconds", "0"))
        is_held = HOLDING[request.query_params["action"]]
        return await self._answer(request, lambda task_id: HoldSlot(task_id, slot_id, is_held, seconds))

    async def control(self, request: Request) -> Response:
        """POST /v1/chat/completions/control: end the reasoning of a completion that runs."""
        translate = self._service.backend.translator.controlled_completion
        completion_id = await self._service.in_thread(translate, await read_body(request))
        return await self._answer(request, lambda task_id: EndReasoning(task_id, completion_id))

    async def _answer(self, request: Request, make_call: Callable[[int], Call]) -> Response:
        """Send the call and wait for its end. Raises ClientDisconnect if the client disconnects first."""
        with self._service.drain.hold():
            return await while_connected(request.receive, self._end_of(make_call))

    async def _end_of(self, make_call: Callable[[int], Call]) -> Response:
        service = self._service
        engine = service.backend.engine
        exchange = service.mailbox.open(engine, 1)
        try:
            engine.submit(make_call(exchange.task_ids[0]))
            while True:
                for message in await exchange.take():
                    if isinstance(message, Answered):
                        return json_response(message.answer)
                    error = refusal_of(message)
                    if error is not None:
                        return error
        finally:
            service.mailbox.close(exchange)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise refused(f"'seconds' is {text!r}: give a number, 0 or more", "invalid_request_error")
    return seconds


def _slot_id(text: str) -> int:
    """As C's number parser reads it: what follows the digits does not matter."""
    number = _LEADING_NUMBER.match(text)
    if number is None or abs(int(number[0])) > MAX_SLOT_ID:
        raise refused("Invalid slot ID", "invalid_request_error")
    return int(number[0])
