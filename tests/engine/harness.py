"""A running engine without HTTP, for tests: bodies in, results out, through the same messages as the web side."""

from __future__ import annotations

import itertools
import json
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyggml_server.config import PreemptOptions, ServeOptions, StepOptions
from pyggml_server.engine.loop import Engine
from pyggml_server.messages import Answered, Call, Cancel, Cancelled, Failed, Finished, Notice, Outbound, Submit, Token
from pyggml_server.native.command_line import CommandLine
from pyggml_server.native.request import Request
from pyggml_server.native.translator import Translator
from pyggml_server.published import Counters
from pyggml_server.request_kind import RequestKind

TIMEOUT_S = 120.0


@dataclass
class Running:
    """One submitted request and everything that came back for it."""

    request: Request
    task_ids: list[int]
    messages: dict[int, list[Outbound]] = field(default_factory=lambda: defaultdict(list))

    def last(self, i: int = 0) -> Outbound:
        return self.messages[self.task_ids[i]][-1]

    def result(self, i: int = 0) -> dict[str, object]:
        """JSON of a task that finished."""
        last = self.last(i)
        assert isinstance(last, Finished), last
        parsed: dict[str, object] = json.loads(self.request.formatters[i].result(last.payload))
        return parsed

    def error(self, i: int = 0) -> dict[str, object] | None:
        """llama-server's error object of a task that failed, or None."""
        last = self.last(i)
        return json.loads(last.error) if isinstance(last, Failed) else None

    def text(self, i: int = 0) -> str:
        return str(self.result(i)["content"])

    def n_tokens(self, i: int = 0) -> int:
        return len(self.parts(i))

    def parts(self, i: int = 0) -> list[dict[str, object]]:
        """JSON of each part of a stream, the last one aside."""
        said = b"".join(m.events for m in self.messages[self.task_ids[i]] if isinstance(m, Token))
        return [json.loads(event.removeprefix(b"data: ")) for event in said.split(b"\n\n") if event]

    def notices(self, i: int = 0) -> list[str]:
        return [m.text for m in self.messages[self.task_ids[i]] if isinstance(m, Notice)]


class EngineHarness:
    """Starts an engine on the given arguments; use as a context manager."""

    def __init__(
        self,
        argv: Sequence[str],
        preempt: PreemptOptions | None = None,
        step: StepOptions | None = None,
        serve: ServeOptions | None = None,
    ) -> None:
        self._ready: queue.Queue[Translator | str] = queue.Queue()
        self._changed = threading.Condition()
        self._running: dict[int, Running] = {}
        self._calls: dict[int, Outbound] = {}
        self._ended: set[int] = set()
        self._ids = itertools.count(1)
        self.n_endings: dict[int, int] = defaultdict(int)
        options = preempt or PreemptOptions()
        self.engine = Engine(
            CommandLine.parse(argv), options, self._deliver, self._ready.put, self._ready.put, step=step, serve=serve
        )

    def __enter__(self) -> EngineHarness:
        self.engine.start()
        ready = self._ready.get(timeout=TIMEOUT_S)
        if isinstance(ready, str):
            raise RuntimeError(ready)
        self.translator = ready
        return self

    def __exit__(self, *exc: object) -> None:
        self.engine.stop()
        assert self.engine.join(TIMEOUT_S), "the engine did not end"

    def wait_until_awake(self) -> None:
        """Wait for the next load of the model, after it was freed."""
        ready = self._ready.get(timeout=TIMEOUT_S)
        assert isinstance(ready, Translator), ready
        self.translator = ready

    def failure(self) -> str | None:
        """Why the engine ended by itself, if it did."""
        try:
            said = self._ready.get_nowait()
        except queue.Empty:
            return None
        return said if isinstance(said, str) else None

    def start(self, **body: object) -> Running:
        """Translate and submit a completion; returns at once. `priority` goes with it as the web side sends it."""
        return self.start_as(RequestKind.COMPLETION, **body)

    def start_as(self, kind: RequestKind, **body: object) -> Running:
        """The same for a request of any kind."""
        request = self.translator.request(kind, json.dumps(body).encode())
        running = Running(request, [next(self._ids) for _ in request.tasks])
        with self._changed:
            for task_id in running.task_ids:
                self._running[task_id] = running
        for task_id, task in zip(running.task_ids, request.tasks, strict=True):
            self.engine.submit(Submit(task_id, task, int(str(body.get("priority", 0)))))
        return running

    def start_call(self, make_call: Callable[[int], Call]) -> int:
        """Submit a call that is no completion, under an id that is returned."""
        task_id = next(self._ids)
        self.engine.submit(make_call(task_id))
        return task_id

    def last_of_call(self, task_id: int) -> Outbound:
        """Wait for the one message that a call gets."""
        with self._changed:
            assert self._changed.wait_for(lambda: task_id in self._calls, TIMEOUT_S), "the call did not end"
        return self._calls[task_id]

    def call(self, make_call: Callable[[int], Call]) -> dict[str, object]:
        """Submit a call and wait for its end: its answer, or llama-server's error object."""
        end = self.last_of_call(self.start_call(make_call))
        assert isinstance(end, Answered | Failed), end
        parsed: dict[str, object] = json.loads(end.answer if isinstance(end, Answered) else end.error)
        return parsed

    def cancel(self, running: Running) -> None:
        for task_id in running.task_ids:
            self.engine.submit(Cancel(task_id))

    def wait(self, *runnings: Running) -> None:
        """Until every task of these requests has ended."""
        wanted = {task_id for running in runnings for task_id in running.task_ids}
        with self._changed:
            assert self._changed.wait_for(lambda: wanted <= self._ended, TIMEOUT_S), (
                f"of {wanted} did not end: {wanted - self._ended}; {self.engine.snapshot().slots}"
            )

    def wait_for_tokens(self, running: Running, n_tokens: int) -> None:
        """Until a streamed request has given so many tokens, or ended."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: running.n_tokens() >= n_tokens or running.task_ids[0] in self._ended, TIMEOUT_S
            ), f"{running.n_tokens()} of {n_tokens} tokens came; {self.engine.snapshot().slots}"

    def wait_for_notice(self, running: Running, text: str) -> None:
        """Until a request was told this, or ended."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: text in running.notices() or running.task_ids[0] in self._ended, TIMEOUT_S
            ), f"{text!r} was not said"

    def wait_until_nothing_is_held(self) -> None:
        """Until parked states have neither host memory nor files. Those of a chat that has ended may have some for as
        long as the disk takes."""
        self.wait_for_counters(lambda counters: counters.preempt_ram_bytes == counters.preempt_disk_bytes == 0)

    def wait_for_counters(self, holds: Callable[[Counters], bool]) -> None:
        """Until this holds of what is published."""
        end_s = time.monotonic() + TIMEOUT_S
        with self._changed:
            while not holds(counters := self.engine.snapshot().counters):
                assert time.monotonic() < end_s, counters
                self._changed.wait(0.02)  # the end of a file's way brings no message

    def run(self, **body: object) -> Running:
        """Submit one request and wait for its end."""
        running = self.start(**body)
        self.wait(running)
        return running

    def _deliver(self, batch: Sequence[Outbound]) -> None:
        with self._changed:
            for message in batch:
                if message.task_id not in self._running:
                    self._calls[message.task_id] = message
                    continue
                self._running[message.task_id].messages[message.task_id].append(message)
                if isinstance(message, Finished | Failed | Cancelled):
                    self._ended.add(message.task_id)
                    self.n_endings[message.task_id] += 1
            self._changed.notify_all()
