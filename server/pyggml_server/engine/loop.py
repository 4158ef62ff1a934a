"""The engine: one thread that owns the model and runs pass after pass. Everything else talks to it through queues."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyggml_server.config import PreemptOptions
from pyggml_server.engine import endings, landings
from pyggml_server.engine.apply import Applier
from pyggml_server.engine.batching import build_batch
from pyggml_server.engine.observe import observe
from pyggml_server.engine.reception import Reception
from pyggml_server.engine.shifts import shift_full_slots
from pyggml_server.engine.snapshot import take_snapshot
from pyggml_server.engine.startup import build_state
from pyggml_server.engine.state import EngineState
from pyggml_server.engine.step import run_batch
from pyggml_server.messages import Cancel, Cancelled, Deliver, FromWeb, Inbound, Snapshot, Stop, Submit
from pyggml_server.native.errors import LoadError
from pyggml_server.planner.decide import decide
from pyggml_server.planner.plan import Plan

if TYPE_CHECKING:
    from pyggml_server.native.command_line import CommandLine
    from pyggml_server.native.translator import Translator

log = logging.getLogger(__name__)

# While nothing but copies is under way: how long a pass waits for a message before it asks again whether one landed.
_POLL_S = 0.0005


class Engine:
    """Loads the model on its own thread and serves tasks until it is stopped.

    deliver    gets the messages of a pass, on the engine thread.
    on_ready   gets the translator once the model is loaded; engine thread.
    on_failed  gets the reason when the model could not be loaded, or when the thread ended by itself later on.
    """

    def __init__(
        self,
        command_line: CommandLine,
        preempt: PreemptOptions,
        deliver: Deliver,
        on_ready: Callable[[Translator], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self._command_line = command_line
        self._preempt = preempt
        self._deliver = deliver
        self._on_ready = on_ready
        self._on_failed = on_failed
        self._inbox: queue.SimpleQueue[Inbound] = queue.SimpleQueue()
        self._snapshot = Snapshot()
        self._reset_window: Callable[[], None] = lambda: None
        self._time_started_s = time.time()
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
        """What was published after the latest pass."""
        return self._snapshot

    def reset_rate_window(self) -> None:
        """Start new averaging windows for the rate gauges."""
        self._reset_window()

    # -- engine thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        from pyggml_server.native.runtime import Runtime

        try:
            runtime = Runtime.load(self._command_line)
            state = build_state(runtime, self._preempt)
        except LoadError as error:
            self._on_failed(str(error))
            return
        except Exception as error:
            log.exception("loading failed")
            self._on_failed(str(error))
            return
        self._reset_window = state.counters.window.reset
        reception = Reception(state)
        self._publish(state, reception)
        self._on_ready(runtime.translator)
        try:
            self._serve(state, reception)
        except Exception as error:
            log.exception("the engine ends")
            self._on_failed(f"the engine ended: {str(error) or type(error).__name__}")
        finally:
            endings.close_transfers(state)
            runtime.close()

    def _serve(self, state: EngineState, reception: Reception) -> None:
        applier = Applier(state)
        has_decoded = True
        while self._take_messages(_patience_s(state, reception, has_decoded), reception):
            try:
                has_decoded = _run_pass(state, reception, applier)
            except Exception as error:
                log.exception("a pass failed")
                endings.fail_all(state, str(error))
            self._publish(state, reception)
        reception.cancel_all()
        for slot in list(state.busy()):
            endings.cancel(state, slot)
        self._publish(state, reception)
        self._refuse_late_tasks()

    def _take_messages(self, patience_s: float | None, reception: Reception) -> bool:
        """Take what has arrived; wait so long for the first message, without end if None. False: it is time to end."""
        while True:
            try:
                message = self._inbox.get(block=patience_s != 0, timeout=patience_s)
            except queue.Empty:
                return True
            patience_s = 0
            if isinstance(message, Stop):
                return False
            reception.take(message)

    def _publish(self, state: EngineState, reception: Reception) -> None:
        if not state.is_busy():
            state.recorder.rest()
        self._snapshot = take_snapshot(state, reception.n_tasks, self._time_started_s)
        if state.outbox:
            messages, state.outbox = state.outbox, []
            self._deliver(messages)

    def _refuse_late_tasks(self) -> None:
        """Whoever arrived behind the Stop ends as cancelled too."""
        while True:
            try:
                message = self._inbox.get_nowait()
            except queue.Empty:
                return
            if isinstance(message, Submit):
                message.task.close()
            if not isinstance(message, Cancel | Stop):
                self._deliver([Cancelled(message.task_id)])


def _patience_s(state: EngineState, reception: Reception, has_decoded: bool) -> float | None:
    """How long to wait for a message before the next pass; None: there is nothing to do until one comes."""
    if not state.is_busy() and reception.is_empty:  # the line moves up when the last slots have ended
        return None
    return _POLL_S if landings.are_in_flight(state) and not has_decoded else 0


def _run_pass(state: EngineState, reception: Reception, applier: Applier) -> bool:
    """Whether anything was decoded."""
    state.n_passes += 1
    landings.poll(state)
    reception.place()
    if not state.is_busy():
        return False
    shift_full_slots(state)
    plan = _plan_pass(state, applier)
    landings.wait_before_shift(state)
    parts = build_batch(state, plan)
    landings.wait_before_shift(state)  # building a batch may find one
    if parts:
        run_batch(state, parts)
    return bool(parts)


def _plan_pass(state: EngineState, applier: Applier) -> Plan:
    """Decide and apply until the plan allows a batch and every park that it ordered was made."""
    refused: frozenset[int] = frozenset()
    while True:
        plan = decide(observe(state, refused), state.policy)
        if plan.has_parks:
            plan = decide(observe(state, refused, with_sizes=True), state.policy)
        slot_id = applier.carry_out(plan)
        if slot_id is not None:
            refused |= {slot_id}
        elif plan.may_decode:
            return plan
