"""Stand-ins for engine, translation and settings, driven by the test: nothing happens until it says so."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pyggml_server.abandoned import Abandoned
from pyggml_server.app import EngineFactory
from pyggml_server.engine.sleep_guard import SleepGuard
from pyggml_server.errors import RequestRefusedError, error_object
from pyggml_server.messages import Call, Cancel, Deliver, Finished, FromWeb, Outbound, Submit, TaskHandle, Token, Wake
from pyggml_server.published import Asleep, Snapshot
from pyggml_server.request_kind import RequestKind
from pyggml_server.web.ports import TranslatorPort

PATIENCE_S = 30.0  # how long a test waits for what must come; reached only when it fails


@dataclass(frozen=True)
class FakeSettings:
    """llama-server's defaults, on any free port."""

    hostnames: tuple[str, ...] = ("127.0.0.1",)
    port: int = 0
    reuse_port: bool = False
    api_prefix: str = ""
    api_keys: tuple[str, ...] = ()
    timeout_write_s: int = 3600
    ssl_key_file: str = ""
    ssl_cert_file: str = ""
    cors_origins: str = "*"
    cors_methods: str = "GET, POST, DELETE, OPTIONS"
    cors_headers: str = "*"
    cors_credentials: bool = True
    endpoint_slots: bool = True
    endpoint_props: bool = False
    endpoint_metrics: bool = False
    slot_save_path: str = ""
    public_path: str = ""
    ui: bool = True
    ui_mcp_proxy: bool = False
    sleep_idle_s: int = -1
    n_parallel: int = 4
    n_threads_http: int = -1


def token(task_id: int, data: bytes) -> Token:
    """A token whose event has these data."""
    return Token(task_id, b"data: " + data + b"\n\n")


class FakeTask:
    """A task that is only an identity."""

    def close(self) -> None:
        """Nothing to free."""


class FakeFormatter:
    """Shows payloads as they are; the payload `broken` cannot be formatted."""

    def last_events(self, payload: bytes) -> bytes:
        if payload == b"broken":
            raise ValueError("this payload is broken")
        return b"data: " + payload + b"\n\n"

    def result(self, payload: bytes) -> bytes:
        if payload == b"broken":
            raise ValueError("this payload is broken")
        return payload

    def stream_error(self, error: bytes) -> bytes:
        return b'data: {"error":' + error + b"}\n\n"


@dataclass
class FakeRequest:
    """What a body asked for: `{"stream": bool, "n": tasks, "ping": seconds}`."""

    kind: RequestKind
    stream: bool
    ends_with_done: bool
    sse_ping_interval_s: int
    tasks: Sequence[TaskHandle]
    formatters: Sequence[FakeFormatter]
    closed: threading.Event = field(default_factory=threading.Event)

    def join(self, results: Sequence[bytes]) -> bytes:
        return results[0] if len(results) == 1 else b"[" + b",".join(results) + b"]"

    def close(self) -> None:
        self.closed.set()


class FakeTranslator:
    """Translates JSON bodies to FakeRequests, and notes which threads it was called on."""

    def __init__(self) -> None:
        self.requests: queue.SimpleQueue[FakeRequest] = queue.SimpleQueue()
        self.thread_names: set[str] = set()
        self.may_translate = threading.Event()
        self.may_translate.set()
        self.is_translating = threading.Event()
        self.props_json = b'{"total_slots":4}'
        self.models_json = b'{"object":"list"}'
        self.abandoned = Abandoned()
        self.has_media = False
        self.sounds: list[bytes | None] = []

    def request(self, kind: RequestKind, body: bytes, abandoned: Abandoned, sound: bytes | None = None) -> FakeRequest:
        self._note_thread()
        self.sounds.append(sound)
        self.abandoned = abandoned
        self.is_translating.set()
        assert self.may_translate.wait(PATIENCE_S)
        try:
            fields = json.loads(body)
        except ValueError as error:
            raise RequestRefusedError(*error_object(str(error), "invalid_request_error")) from None
        n_tasks = fields.get("n", 1)
        request = FakeRequest(
            kind=kind,
            stream=fields.get("stream", False),
            ends_with_done=kind != RequestKind.COMPLETION,
            sse_ping_interval_s=fields.get("ping", 0),
            tasks=[FakeTask() for _ in range(n_tasks)],
            formatters=[FakeFormatter() for _ in range(n_tasks)],
        )
        self.requests.put(request)
        return request

    def tokenize(self, body: bytes, _abandoned: Abandoned) -> bytes:
        self._note_thread()
        if b"content" not in body:
            raise RequestRefusedError(*error_object("no content", "invalid_request_error"))
        return b'{"tokens":[1,2]}'

    def adapters(self) -> bytes:
        self._note_thread()
        return b"[]"

    def set_adapters(self, body: bytes) -> bytes:
        self._note_thread()
        return b'{"success":true}' if body == b"[]" else b'{"success":false}'

    def detokenize(self, body: bytes, _abandoned: Abandoned) -> bytes:
        self._note_thread()
        return b'{"content":' + body + b"}"

    def apply_template(self, body: bytes, _abandoned: Abandoned) -> bytes:
        self._note_thread()
        return b'{"prompt":' + body + b"}"

    def count_tokens(self, kind: RequestKind, body: bytes, _abandoned: Abandoned) -> bytes:
        self._note_thread()
        return json.dumps({"kind": kind.name, "input_tokens": len(body)}).encode()

    def slot_file(self, body: bytes) -> tuple[str, str]:
        self._note_thread()
        filename = json.loads(body)["filename"]
        return filename, "/slots/" + filename

    def controlled_completion(self, body: bytes) -> str:
        self._note_thread()
        return str(json.loads(body)["id"])

    def props(self) -> bytes:
        self._note_thread()
        return self.props_json

    def models(self) -> bytes:
        self._note_thread()
        return self.models_json

    def _note_thread(self) -> None:
        self.thread_names.add(threading.current_thread().name)


class FakeEngine:
    """Keeps what it is told in `inbound`, and says what the test tells it to say."""

    def __init__(
        self, deliver: Deliver, on_ready: Callable[[TranslatorPort], None], on_failed: Callable[[str], None]
    ) -> None:
        self.translator = FakeTranslator()
        self.inbound: queue.SimpleQueue[FromWeb] = queue.SimpleQueue()
        self.published = Snapshot()
        self.n_window_resets = 0
        self.started = threading.Event()
        self.stopped = threading.Event()
        self._deliver = deliver
        self._on_ready = on_ready
        self.fail = on_failed
        self._guard = SleepGuard()

    def start(self) -> None:
        self.started.set()

    def stop(self) -> None:
        self.stopped.set()

    def join(self, timeout_s: float | None = None) -> bool:
        return self.stopped.wait(timeout_s)

    def submit(self, message: FromWeb) -> None:
        self.inbound.put(message)

    def snapshot(self) -> Snapshot:
        return self.published

    def open_door(self) -> None:
        self._guard.open()

    def try_enter(self) -> bool:
        return self._guard.try_enter()

    def leave(self) -> None:
        self._guard.leave()

    def fall_asleep(self) -> bool:
        """Free the model, if nobody uses it."""
        is_asleep = self._guard.try_close()
        if is_asleep:
            self.published = replace(self.published, asleep=Asleep(b'{"is_sleeping":true}', b'{"asleep":"list"}'))
        return is_asleep

    def wake_up(self) -> None:
        """Load it again."""
        self.published = replace(self.published, asleep=None)
        self._on_ready(self.translator)

    def next_wake(self) -> None:
        """Wait until somebody asks for the model."""
        message = self.inbound.get(timeout=PATIENCE_S)
        assert isinstance(message, Wake), message

    def reset_rate_window(self) -> None:
        self.n_window_resets += 1

    def finish_loading(self) -> None:
        """The model is loaded."""
        self._on_ready(self.translator)

    def next_task_ids(self, n_tasks: int = 1) -> list[int]:
        """The ids of the next tasks that are submitted."""
        ids: list[int] = []
        for _ in range(n_tasks):
            message = self.inbound.get(timeout=PATIENCE_S)
            assert isinstance(message, Submit), message
            ids.append(message.task_id)
        return ids

    def next_cancelled_id(self) -> int:
        """The id of the next task that is cancelled."""
        message = self.inbound.get(timeout=PATIENCE_S)
        assert isinstance(message, Cancel), message
        return message.task_id

    def next_call(self) -> Call:
        """The next call that is no completion."""
        message = self.inbound.get(timeout=PATIENCE_S)
        assert isinstance(message, Call), message
        return message

    def say(self, *messages: Outbound) -> None:
        """Deliver these as one pass's batch."""
        self._deliver(messages)

    def say_tokens(self, task_id: int, *payloads: bytes) -> None:
        """Deliver a token per payload, each in a batch of its own."""
        for payload in payloads:
            self.say(token(task_id, payload))

    def finish(self, task_id: int, payload: bytes = b"{}") -> None:
        """The task ends well."""
        self.say(Finished(task_id, payload))


def engine_factory(made: queue.SimpleQueue[FakeEngine]) -> EngineFactory:
    """Makes FakeEngines and hands each to the test as well."""

    def make(
        deliver: Deliver, on_ready: Callable[[TranslatorPort], None], on_failed: Callable[[str], None]
    ) -> FakeEngine:
        engine = FakeEngine(deliver, on_ready, on_failed)
        made.put(engine)
        return engine

    return make
