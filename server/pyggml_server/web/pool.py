"""The page at `/pool` and the numbers that it asks for at `/pool.json`. Event loop thread; never waits for the engine.

Reads the published snapshot only. `pool_files` has the page.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from pyggml_server.history import GapSecond, PoolEvent
from pyggml_server.published import Counters, SlotSnapshot, Snapshot
from pyggml_server.web.errors import json_response, json_text
from pyggml_server.web.pool_files import pool_page
from pyggml_server.web.service import Service
from pyggml_server.web.slots import refuse_without_slots

TOTALS = (
    "preemptions_total",
    "restores_total",
    "rotations_total",
    "recomputes_total",
    "preempt_refusals_total",
    "requests_finished_total",
    "requests_failed_total",
    "requests_cancelled_total",
)
T = TypeVar("T")


class PoolRoutes:
    """The two handlers."""

    def __init__(self, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock = clock
        self._json = PoolJson()
        self._page = pool_page()

    async def page(self, _: Request) -> Response:
        """The page itself, also while the model loads and without a key: it shows nothing by itself."""
        return Response(self._page.html, headers=self._page.headers)

    async def numbers(self, _: Request) -> Response:
        """What the page draws. `--no-slots` switches it off together with `/slots`."""
        refused = refuse_without_slots(self._service)
        return refused or json_response(self._json.render(self._service.backend.engine.snapshot(), self._clock()))


class PoolJson:
    """The snapshot as the page reads it. The history is most of it and seldom new: its text is kept until it is."""

    def __init__(self) -> None:
        self._events = _KeptText(_event)
        self._gap_seconds = _KeptText(_gap_second)

    def render(self, snapshot: Snapshot, now_s: float) -> bytes:
        """`now_s` of the monotonic clock: the page tells by it how long ago everything was."""
        is_asleep = snapshot.asleep is not None
        if is_asleep:
            snapshot = _without_cells(snapshot)
        parts = {
            "now_s": json_text(now_s),
            "is_asleep": json_text(is_asleep),
            "pool": json_text(_pool(snapshot.counters)),
            "totals": json_text({name: getattr(snapshot.counters, name) for name in TOTALS}),
            "slots": json_text([_slot(slot, now_s) for slot in snapshot.slots]),
            "events": self._events.of(snapshot.history.events),
            "gap_seconds": self._gap_seconds.of(snapshot.history.gap_seconds),
        }
        return ("{" + ",".join(f'"{name}":{text}' for name, text in parts.items()) + "}").encode()


class _KeptText(Generic[T]):
    """The JSON of one immutable tuple, made anew only for another object."""

    def __init__(self, fields_of: Callable[[T], dict[str, object]]) -> None:
        self._fields_of = fields_of
        self._of: tuple[T, ...] = ()
        self._text = "[]"

    def of(self, values: tuple[T, ...]) -> str:
        if values is not self._of:
            self._text = json_text([self._fields_of(value) for value in values])
            self._of = values
        return self._text


def _without_cells(snapshot: Snapshot) -> Snapshot:
    """The pool of a model that was freed (--sleep-idle-seconds): what idle slots kept went with it."""
    slots = tuple(replace(slot, n_cells=0) for slot in snapshot.slots)
    return replace(snapshot, slots=slots, counters=replace(snapshot.counters, kv_cells_used=0))


def _pool(counters: Counters) -> dict[str, object]:
    return {
        "n_cells": counters.kv_cells,
        "n_cells_used": counters.kv_cells_used,
        "n_deferred": counters.requests_deferred,
        "held_bytes": counters.preempt_ram_bytes,
        "limit_bytes": counters.preempt_ram_limit_bytes,
        "pinned_bytes": counters.pinned_pool_bytes,
    }


def _slot(slot: SlotSnapshot, now_s: float) -> dict[str, object]:
    return {
        "id": slot.id,
        "state": slot.state,
        "id_task": slot.id_task if slot.is_processing else None,
        "is_preempted": slot.is_preempted,
        "is_transferring": slot.is_transferring,
        "n_cells": slot.n_cells,
        "n_tokens": slot.n_prompt_tokens,
        "n_decoded": slot.n_decoded,
        "n_preempted": slot.n_preempted,
        "is_held": slot.is_held,
        "is_on_disk": slot.is_on_disk,
        "priority": slot.priority,
        "parked_bytes": slot.parked_bytes,
        "parked_ms": slot.parked_ms,
        "waiting_s": None if slot.parked_at_s is None else now_s - slot.parked_at_s,
    }


def _event(event: PoolEvent) -> dict[str, object]:
    return {
        "number": event.number,
        "at_s": event.at_s,
        "kind": event.kind.value,
        "id_slot": event.slot_id,
        "id_task": event.task_id,
        "reason": event.reason,
        "n_cells": event.n_cells,
        "n_bytes": event.n_bytes,
        "took_ms": event.took_s * 1e3,
    }


def _gap_second(second: GapSecond) -> dict[str, object]:
    return {
        "ends_at_s": second.second + 1,
        "n_gaps": second.n_gaps,
        "worst_ms": second.worst_s * 1e3,
        "mean_ms": second.sum_s / second.n_gaps * 1e3,
    }
