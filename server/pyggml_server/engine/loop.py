"""The engine: one thread that owns the model and runs pass after pass. Everything else talks to it through queues."""

from __future__ import annotations

import gc
import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pyggml_server.config import PreemptOptions, ServeOptions, StepOptions
from pyggml_server.engine import garbage
from pyggml_server.engine.admission.dispatch import Dispatcher
from pyggml_server.engine.batch import run_ahead
from pyggml_server.engine.encoder import Encoder
from pyggml_server.engine.idle_clock import IdleClock
from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.lifecycle.snapshot import take_snapshot
from pyggml_server.engine.passes import run_pass
from pyggml_server.engine.preemption import copies
from pyggml_server.engine.preemption.apply import Applier
from pyggml_server.engine.reporting.counters import Counters
from pyggml_server.engine.sleep_guard import SleepGuard
from pyggml_server.engine.startup import build_state
from pyggml_server.engine.transfers.staging import staging_bytes
from pyggml_server.errors import LoadError
from pyggml_server.messages import Cancel, Cancelled, Deliver, FromWeb, Inbound, Stop, Submit, Token, Wake
from pyggml_server.published import Asleep, Snapshot

if TYPE_CHECKING:
    from pyggml_server.native.command_line import CommandLine
    from pyggml_server.native.translator import Translator

log = logging.getLogger(__name__)

# While nothing but copies is under way: how long a pass waits for a message before it asks again whether one completed.
_POLL_S = 0.0005
# The same while nobody runs and somebody stays out of the pool until he is called back.
_HELD_POLL_S = 0.02
# While nothing but images is encoded. The end of that wakes the engine, so this only bounds a mistake.
_ENCODER_POLL_S = 0.05
# While no slot works and files are written or read that no request waits for.
_DISK_POLL_S = 0.05
# While slots only generate: how often the snapshot is taken. Whatever else a pass does is published at once.
_SNAPSHOT_EVERY_S = 0.02
# How long to wait before trying again to free a model that is still in use.
_SLEEP_POLL_S = 0.1


class Engine:
    """Loads the model on its own thread and serves tasks until it is stopped.

    deliver    gets the messages of a pass, on the engine thread.
    on_ready   gets the translator once the model is loaded; engine thread.
    on_failed  gets the reason when the model could not be loaded, or when the thread ended by itself later on.
    on_asleep  is called when the model was freed because nothing was to be done; engine thread.
    """

    def __init__(
        self,
        command_line: CommandLine,
        preempt: PreemptOptions,
        deliver: Deliver,
        on_ready: Callable[[Translator], None],
        on_failed: Callable[[str], None],
        on_asleep: Callable[[], None] = lambda: None,
        step: StepOptions | None = None,
        serve: ServeOptions | None = None,
    ) -> None:
        self._command_line = command_line
        self._preempt = preempt
        self._step = step or StepOptions()
        self._serving = serve or ServeOptions()
        self._deliver = deliver
        self._on_ready = on_ready
        self._on_failed = on_failed
        self._on_asleep = on_asleep
        self._inbox: queue.SimpleQueue[Inbound] = queue.SimpleQueue()
        self._snapshot = Snapshot()
        self._published_at_s = float("-inf")
        self._time_started_s = time.time()
        self._guard = SleepGuard()
        self._counters = Counters()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    # -- any thread ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, which loads the model and then serves."""
        self._thread.start()

    def submit(self, message: FromWeb) -> None:
        """Queue a message for the next pass."""
        self._inbox.put(message)

    def stop(self) -> None:
        """Ask the thread to end; tasks end as cancelled. Safe in a signal handler."""
        self._inbox.put(Stop())

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread's end. False on a time-out."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def snapshot(self) -> Snapshot:
        """What was published after the latest pass, with the rate windows of this moment."""
        snapshot = self._snapshot
        return replace(snapshot, counters=self._counters.with_windows(snapshot.counters))

    def reset_rate_window(self) -> None:
        """Start new averaging windows for the rate gauges."""
        self._counters.window.reset()

    def open_door(self) -> None:
        """The web side has the translator that `on_ready` gave it."""
        self._guard.open()

    def try_enter(self) -> bool:
        """Begin to use the model; False while it is not loaded, or the web side does not have it yet."""
        return self._guard.try_enter()

    def leave(self) -> None:
        """End what `try_enter` began."""
        self._guard.leave()

    # -- engine thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._load_and_serve():
            log.info("server is entering sleeping state")
            gc.collect()  # the parts of an engine state refer to each other, and to the model
            self._on_asleep()
            if not self._wait_for_wake():
                return
            log.info("server is exiting sleeping state")

    def _load_and_serve(self) -> bool:
        """One load of the model, until it is freed. Returns whether it is to be loaded again when it is needed."""
        from pyggml_server.native.runtime import Runtime

        try:
            settings = self._command_line.settings
            n_bytes_staging = staging_bytes(settings, self._preempt)
            runtime = Runtime.load(self._command_line, n_bytes_staging, self._step.n_sampling_threads)
            has_slot_files = bool(settings.slot_save_path)
            state = build_state(runtime, self._preempt, self._counters, has_slot_files=has_slot_files)
            state.serve = self._serving
            state.encoder = Encoder(lambda: self._inbox.put(Wake())) if runtime.has_media else None
            state.runs_ahead = runtime.is_async if self._step.runs_ahead is None else self._step.runs_ahead
        except LoadError as error:
            self._on_failed(str(error))
            return False
        except Exception as error:
            log.exception("loading failed")
            self._on_failed(str(error))
            return False
        dispatcher = Dispatcher(state)
        self._publish(state, dispatcher)
        try:
            with garbage.settled():
                self._on_ready(runtime.translator)
                return self._serve(state, dispatcher)
        except Exception as error:
            log.exception("the engine stops")
            self._on_failed(f"the engine ended: {str(error) or type(error).__name__}")
            return False
        finally:
            if state.encoder is not None:
                state.encoder.close()
            endings.close_transfers(state)
            runtime.close()

    def _serve(self, state: EngineState, dispatcher: Dispatcher) -> bool:
        """Pass after pass, until the end (False) or until nothing was to be done for --sleep-idle-seconds (True)."""
        applier = Applier(state)
        idle = IdleClock(self._command_line.settings.sleep_idle_s, state.clock)
        has_decoded = True
        while self._take_messages(_patience_s(state, dispatcher, has_decoded, idle), state, dispatcher):
            may_sleep = _is_idle(state, dispatcher) and not state.outbox and idle.left_s() == 0.0
            if may_sleep and not _is_disk_busy(state) and self._guard.try_close():
                dispatcher.close()
                self._snapshot = replace(self._snapshot, asleep=_asleep(state.runtime.translator))
                state.runtime.translator.close()
                return True
            try:
                has_decoded = run_pass(state, dispatcher, applier)
            except Exception as error:
                log.exception("a pass failed")
                state.flight, has_decoded = None, False
                endings.fail_all(state, str(error))
            self._publish(state, dispatcher)
        dispatcher.cancel_all()
        for slot in state.slots:
            if not slot.is_idle:  # one may have ended with another
                endings.cancel(state, slot)
        self._publish(state, dispatcher)
        dispatcher.close()
        self._refuse_late_tasks()
        return False

    def _wait_for_wake(self) -> bool:
        """False when it is time to end. Nobody can have submitted a task: they were not let in."""
        while True:
            match self._inbox.get():
                case Wake():
                    return True
                case Stop():
                    return False

    def _take_messages(self, patience_s: float | None, state: EngineState, dispatcher: Dispatcher) -> bool:
        """Take what has arrived; wait so long for the first message, without end if None. False: it is time to end.

        A batch under way ends before the first message is taken: what that changes may be in the batch."""
        while True:
            try:
                message = self._inbox.get(block=patience_s != 0, timeout=patience_s)
            except queue.Empty:
                return True
            patience_s = 0
            if state.flight is not None:
                self._settle(state, dispatcher)
            if isinstance(message, Stop):
                return False
            dispatcher.take(message)

    def _settle(self, state: EngineState, dispatcher: Dispatcher) -> None:
        try:
            run_ahead.settle(state)
        except Exception as error:
            log.exception("a batch under way failed")
            endings.fail_all(state, str(error))
        self._publish(state, dispatcher)

    def _publish(self, state: EngineState, dispatcher: Dispatcher) -> None:
        if not state.is_busy():
            state.recorder.rest()
        now_s = state.clock()
        only_tokens = bool(state.outbox) and all(isinstance(message, Token) for message in state.outbox)
        if not only_tokens or now_s - self._published_at_s >= _SNAPSHOT_EVERY_S:
            self._snapshot = take_snapshot(state, dispatcher.n_tasks, self._time_started_s)
            self._published_at_s = now_s
        if state.outbox:
            messages, state.outbox = state.outbox, []
            self._deliver(messages)

    def _refuse_late_tasks(self) -> None:
        """Requests that arrived after the Stop end as cancelled too."""
        while True:
            try:
                message = self._inbox.get_nowait()
            except queue.Empty:
                return
            if isinstance(message, Submit):
                message.task.close()
            if not isinstance(message, Cancel | Stop | Wake):
                self._deliver([Cancelled(message.task_id)])


def _is_idle(state: EngineState, dispatcher: Dispatcher) -> bool:
    if state.background is not None and state.background.are_under_way:
        return False
    if state.encoder is not None and state.encoder.is_busy:
        return False  # it needs the model
    return not state.is_busy() and dispatcher.is_empty  # the line moves up when the last slots have ended


def _is_disk_busy(state: EngineState) -> bool:
    """Whether files are written or read that no slot knows of."""
    return bool(state.disk.abandoned) or (state.prompt_files is not None and state.prompt_files.is_busy)


def _asleep(translator: Translator) -> Asleep:
    props = json.loads(translator.props())
    shown = json.dumps({**props, "is_sleeping": True}, ensure_ascii=False, separators=(",", ":"))
    return Asleep(shown.encode(), translator.models())


def _patience_s(state: EngineState, dispatcher: Dispatcher, has_decoded: bool, idle: IdleClock) -> float | None:
    """How long to wait for a message before the next pass; None: there is nothing to do until one comes.

    The last decode of all is followed by one more pass: it gives back what only running chats need."""
    if has_decoded:
        idle.note_work()
        return 0
    if _is_idle(state, dispatcher):
        left_s = idle.left_s()
        if _is_disk_busy(state):
            return _DISK_POLL_S
        return None if left_s is None else max(left_s, _SLEEP_POLL_S)
    idle.note_work()
    if copies.are_under_way(state) or (state.prompt_files is not None and state.prompt_files.is_reading):
        return _POLL_S
    if state.encoder is not None and state.encoder.is_busy:
        return _ENCODER_POLL_S
    return _HELD_POLL_S if any(slot.active_job.is_held for slot in state.busy()) else 0
