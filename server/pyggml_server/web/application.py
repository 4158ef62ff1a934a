"""The ASGI application: which path is answered by whom, and how exceptions become llama-server's error bodies."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from pyggml_server.errors import RequestRefusedError
from pyggml_server.request_kind import RequestKind
from pyggml_server.web import unimplemented
from pyggml_server.web.adapters import AdapterRoutes
from pyggml_server.web.body import CodingError
from pyggml_server.web.calls import CallRoutes
from pyggml_server.web.completions import CompletionRoute
from pyggml_server.web.errors import early_refusal, error_response, refusal
from pyggml_server.web.folder import Folder
from pyggml_server.web.form_data import FormError
from pyggml_server.web.gate import Gate
from pyggml_server.web.kept_streams import KeptStreamRoutes
from pyggml_server.web.page import WORKER_PATH, page, worker
from pyggml_server.web.pool import PoolRoutes
from pyggml_server.web.service import Service
from pyggml_server.web.sleep_gate import SleepGate
from pyggml_server.web.status import StatusRoutes
from pyggml_server.web.text import TextRoutes
from pyggml_server.web.tools import ToolCallRoute, show_tools
from pyggml_server.web.vertex import routes_with_vertex


def create_application(service: Service) -> ASGIApp:
    """The whole application behind its gate. Raises RuntimeError when the folder given with --path is missing, and
    VertexError when the predict route is taken."""
    ours = routes(service)
    starlette = Starlette(
        routes=routes_with_vertex(service.vertex, service.settings.api_prefix, ours) if service.vertex else ours,
        exception_handlers={
            RequestRefusedError: _answer_refused,
            ClientDisconnect: _answer_nobody,
            FormError: _answer_no_form,
            CodingError: _answer_coded,
            404: _answer_not_found,
            405: _answer_not_found,
            Exception: _answer_broken,
        },
    )
    starlette.router.redirect_slashes = False
    can_sleep = service.settings.sleep_idle_s >= 0
    return Gate(SleepGate(starlette, service) if can_sleep else starlette, service)


def routes(service: Service) -> list[BaseRoute]:
    """Every route, with --api-prefix before its path. Files of --path come last."""
    prefix = service.settings.api_prefix
    return [
        *_status_routes(service, prefix),
        *_completion_routes(service, prefix),
        *_text_routes(service, prefix),
        *_adapter_routes(service, prefix),
        *_call_routes(service, prefix),
        *_agent_routes(service, prefix),
        *_page_routes(service, prefix),
    ]


def _status_routes(service: Service, prefix: str) -> list[BaseRoute]:
    status = StatusRoutes(service)
    pool = PoolRoutes(service)
    return [
        Route(prefix + "/health", status.health),
        Route(prefix + "/v1/health", status.health),
        Route(prefix + "/models", status.models),
        Route(prefix + "/v1/models", status.models),
        Route(prefix + "/props", status.props),
        Route(prefix + "/props", status.change_props, methods=["POST"]),
        Route(prefix + "/slots", status.slots),
        Route(prefix + "/metrics", status.metrics),
        Route(prefix + "/pool", pool.page),
        Route(prefix + "/pool.json", pool.numbers),
    ]


def _completion_routes(service: Service, prefix: str) -> list[BaseRoute]:
    paths = (
        ("/completion", RequestKind.COMPLETION),
        ("/completions", RequestKind.COMPLETION),
        ("/v1/completions", RequestKind.OAI_COMPLETION),
        ("/chat/completions", RequestKind.OAI_CHAT),
        ("/v1/chat/completions", RequestKind.OAI_CHAT),
        ("/responses", RequestKind.OAI_RESPONSES),
        ("/v1/responses", RequestKind.OAI_RESPONSES),
        ("/v1/messages", RequestKind.ANTHROPIC),
        ("/infill", RequestKind.INFILL),
        ("/embedding", RequestKind.EMBEDDING),
        ("/embeddings", RequestKind.EMBEDDING),
        ("/v1/embeddings", RequestKind.OAI_EMBEDDING),
        ("/rerank", RequestKind.RERANK),
        ("/reranking", RequestKind.RERANK),
        ("/v1/rerank", RequestKind.RERANK),
        ("/v1/reranking", RequestKind.RERANK),
        ("/audio/transcriptions", RequestKind.TRANSCRIPTION),
        ("/v1/audio/transcriptions", RequestKind.TRANSCRIPTION),
    )
    return [Route(prefix + path, CompletionRoute(service, kind), methods=["POST"]) for path, kind in paths]


def _text_routes(service: Service, prefix: str) -> list[BaseRoute]:
    text = TextRoutes(service)
    counts = (
        ("/chat/completions/input_tokens", text.count_chat),
        ("/v1/chat/completions/input_tokens", text.count_chat),
        ("/responses/input_tokens", text.count_responses),
        ("/v1/responses/input_tokens", text.count_responses),
        ("/v1/messages/count_tokens", text.count_messages),
    )
    return [
        Route(prefix + "/tokenize", text.tokenize, methods=["POST"]),
        Route(prefix + "/detokenize", text.detokenize, methods=["POST"]),
        Route(prefix + "/apply-template", text.apply_template, methods=["POST"]),
        *(Route(prefix + path, count, methods=["POST"]) for path, count in counts),
    ]


def _adapter_routes(service: Service, prefix: str) -> list[BaseRoute]:
    adapters = AdapterRoutes(service)
    return [
        Route(prefix + "/lora-adapters", adapters.show),
        Route(prefix + "/lora-adapters", adapters.change, methods=["POST"]),
    ]


def _call_routes(service: Service, prefix: str) -> list[BaseRoute]:
    calls = CallRoutes(service)
    kept = KeptStreamRoutes(service)
    return [
        Route(prefix + "/slots/{id_slot:path}", calls.act_on_slot, methods=["POST"]),
        Route(prefix + "/v1/chat/completions/control", calls.control, methods=["POST"]),
        Route(prefix + "/v1/stream", kept.read),
        Route(prefix + "/v1/stream", kept.stop, methods=["DELETE"]),
        Route(prefix + "/v1/streams/lookup", kept.look_up, methods=["POST"]),
    ]


def _agent_routes(service: Service, prefix: str) -> list[BaseRoute]:
    """What flags switch on for agents in the chat page: tools, and the proxy for MCP servers elsewhere."""
    tools, proxy = prefix + unimplemented.TOOLS, prefix + unimplemented.CORS_PROXY
    found: list[BaseRoute] = []
    if service.tools is not None:
        found += [Route(tools, show_tools(service.tools)), Route(tools, ToolCallRoute(service.tools), methods=["POST"])]
    else:
        found.append(Route(tools, unimplemented.refuse_disabled, methods=["GET", "POST"]))
    if service.settings.ui_mcp_proxy:
        # here and not above: most servers need no HTTP client
        from pyggml_server.web.cors_proxy import CorsProxyRoute

        found.append(Route(proxy, CorsProxyRoute(), methods=["GET", "POST"]))
    else:
        found.append(Route(proxy, unimplemented.refuse_disabled, methods=["GET", "POST"]))
    return found


def _page_routes(service: Service, prefix: str) -> list[BaseRoute]:
    settings = service.settings
    no_worker = Route(prefix + WORKER_PATH, worker)
    if not settings.ui:
        return [no_worker]
    if settings.public_path:
        return [Mount(prefix, Folder(settings.public_path))]
    if service.chat_page is not None:
        return service.chat_page.routes(prefix)
    return [Route(prefix + "/", page), Route(prefix + "/index.html", page), no_worker]


async def _answer_refused(_: Request, refused: Exception) -> Response:
    assert isinstance(refused, RequestRefusedError)
    return error_response(refused.status, refused.error, refused.retry_after_s)


async def _answer_nobody(_request: Request, _gone: Exception) -> Response:
    # the client left while it sent its body: uvicorn drops this
    return Response(status_code=400)


async def _answer_no_form(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)


async def _answer_coded(_request: Request, _error: Exception) -> Response:
    return Response(status_code=415)


async def _answer_not_found(_request: Request, _error: Exception) -> Response:
    # llama-server knows no 405: a path with another method is a path that does not exist
    return early_refusal("File Not Found", "not_found_error")


async def _answer_broken(_request: Request, error: Exception) -> Response:
    # Starlette raises it again after the answer, so that uvicorn's log shows where it came from
    return refusal(str(error) or type(error).__name__, "server_error")
