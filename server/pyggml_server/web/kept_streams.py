"""The routes of streams that outlive their connection: read again, look up, stop. Event loop thread."""

from __future__ import annotations

import json
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Scope

from pyggml_server.web.answer import STREAM_HEADERS
from pyggml_server.web.body import read_body
from pyggml_server.web.errors import early_refusal, json_response, json_text, refusal, refused
from pyggml_server.web.service import Service
from pyggml_server.web.stream_store import KeptStream, OffsetLostError


class KeptStreamRoutes:
    """The handlers, each for one path."""

    def __init__(self, service: Service) -> None:
        self._streams = service.streams

    async def read(self, request: Request) -> Response:
        """GET /v1/stream?conv_id=ID&from=BYTES: what was said from there on, and what is said until the end."""
        kept = self._streams.find(_conversation(request))
        if kept is None:
            # llama-server has a text for this, but its HTTP layer writes over every 404
            return early_refusal("File Not Found", "not_found_error")
        offset = _offset(request.query_params.get("from", ""))
        try:
            kept.check_offset(offset)
        except OffsetLostError:
            return refusal("Stream offset lost, please restart", "invalid_request_error")
        return replay(kept, offset)

    async def stop(self, request: Request) -> Response:
        """DELETE /v1/stream?conv_id=ID: stop the completion and forget what it said. Idempotent."""
        self._streams.end(_conversation(request))
        return Response(status_code=204, media_type="application/json")

    async def look_up(self, request: Request) -> Response:
        """POST /v1/streams/lookup: which of these conversations have a stream."""
        try:
            body = json.loads(await read_body(request))
        except ValueError as error:
            reply = {"error": {"message": f"invalid body: {error}", "type": "invalid_request_error"}}
            return json_response(json_text(reply).encode(), 400)
        ids = body.get("conversation_ids") if isinstance(body, dict) else None
        wanted = [name for name in ids if isinstance(name, str) and name] if isinstance(ids, list) else []
        facts = [asdict(found) for found in self._streams.facts_of(wanted)]
        return json_response(json_text(facts).encode())


def replay(kept: KeptStream, offset: int) -> Response:
    """The stream from `offset` on, as an event stream of its own."""
    headers = {name.decode(): value.decode() for name, value in STREAM_HEADERS}
    return StreamingResponse(kept.read_from(offset), headers=headers)


def conversation_of(scope: Scope) -> str:
    """What the request's X-Conversation-Id says, in UTF-8 as ids in queries and bodies are; empty without one."""
    given = next((value for name, value in scope["headers"] if name == b"x-conversation-id"), b"")
    return str(given, "utf-8", "replace")


def _conversation(request: Request) -> str:
    name = request.query_params.get("conv_id", "")
    if not name:
        raise refused("Missing conversation id in path", "invalid_request_error")
    return name


def _offset(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise refused("Invalid 'from' offset", "invalid_request_error")
    return int(text)
