"""Everything that one engine thread owns, in one place, so that its parts can be plain functions over it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyggml_server.config import ServeOptions
from pyggml_server.engine.background.disk import Disk
from pyggml_server.engine.background.prompt_files import PromptFiles
from pyggml_server.engine.background.runner import BackgroundRunner
from pyggml_server.engine.encoder import Encoder
from pyggml_server.engine.reporting.counters import Counters
from pyggml_server.engine.reporting.recorder import Recorder
from pyggml_server.engine.slots.images import ImageNames
from pyggml_server.engine.slots.kv_pool import KvPool
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.transfers.link_pace import LinkPace
from pyggml_server.engine.transfers.park_memory import ParkMemory
from pyggml_server.engine.transfers.size_estimate import SizeEstimate
from pyggml_server.history import EventKind
from pyggml_server.messages import Outbound
from pyggml_server.planner.policy import Policy

if TYPE_CHECKING:
    from pyggml_server.native.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Flight:
    """A batch that is on the device while Python goes on: one token of each of these slots, in their lists already."""

    slots: list[Slot]
    started_s: float


@dataclass(slots=True)
class EngineState:
    """The engine's world. Engine thread only.

    ram_limit_bytes  `--preempt-ram` in bytes.
    memory, sizes    what asynchronous parks take their buffers from, and how much that will be.
    outbox           messages of this pass, delivered at its end.
    pace             how much is sent to the device behind each batch.
    disk             where parked states go that host memory would not hold.
    prompt_files     what the prompt cache has in files; None without `--cache-disk`.
    background       runs the copies that no running task waits for; None where copies are synchronous.
    encoder          encodes images; None for a model that takes none.
    last_copy_at_s   the latest moment at which a park or restore was known to be under way.
    serve            how long the line of tasks may get.
    runs_ahead       whether generation may run ahead (`batch/run_ahead.py`); `flight` is its batch under way.
    """

    runtime: Runtime
    pool: KvPool
    slots: list[Slot]
    policy: Policy
    ram_limit_bytes: int
    memory: ParkMemory = field(default_factory=ParkMemory)
    sizes: SizeEstimate = field(default_factory=SizeEstimate)
    pace: LinkPace = field(default_factory=LinkPace)
    background: BackgroundRunner | None = None
    encoder: Encoder | None = None
    image_names: ImageNames = field(default_factory=ImageNames)
    disk: Disk = field(default_factory=Disk)
    prompt_files: PromptFiles | None = None
    counters: Counters = field(default_factory=Counters)
    recorder: Recorder = field(default_factory=Recorder)
    outbox: list[Outbound] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic
    n_passes: int = 0
    n_parks: int = 0
    n_requests: int = 0
    last_copy_at_s: float = float("-inf")
    runs_ahead: bool = False
    serve: ServeOptions = field(default_factory=ServeOptions)
    flight: Flight | None = None

    def slot(self, slot_id: int) -> Slot:
        """The slot of that id."""
        return self.slots[slot_id]

    def busy(self) -> Iterator[Slot]:
        """Slots that are not idle."""
        return (slot for slot in self.slots if not slot.is_idle)

    def is_busy(self) -> bool:
        """Whether any slot is not idle."""
        return any(not slot.is_idle for slot in self.slots)

    def record(
        self, kind: EventKind, slot: Slot, at_s: float, reason: str, *, n_bytes: int = 0, took_s: float = 0.0
    ) -> None:
        """Tell `/pool` what happened to the slot and its job. Raises RuntimeError for a slot without a job."""
        task_id, n_cells = slot.active_job.task_id, len(slot.tokens)
        self.recorder.note(kind, slot.id, task_id, at_s, reason, n_cells=n_cells, n_bytes=n_bytes, took_s=took_s)

    @property
    def is_held_up(self) -> bool:
        """Whether no task gets an idle slot now. Without the planner one thing is done after the other, as in
        llama-server: what a slot gets depends on what the copies that others need, and that are under way, leave."""
        return not self.policy.is_enabled and self.background is not None and self.background.are_under_way

    def disk_held_bytes(self) -> int:
        """What files hold, or will."""
        n_bytes = sum(slot.on_disk.file.n_bytes for slot in self.slots if slot.on_disk is not None)
        return n_bytes + self.disk.abandoned.file_bytes

    def ram_held_bytes(self) -> int:
        """Host memory held by or for tasks: parked states, and buffers kept for the next park."""
        return sum(slot.transfer.buffer_bytes for slot in self.slots) + self.disk.abandoned.ram_bytes
