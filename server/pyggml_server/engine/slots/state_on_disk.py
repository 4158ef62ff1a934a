"""A parked state in a file, or on its way there or back. A value; engine thread."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pyggml_server.engine.background.disk import Disk, DiskTask
from pyggml_server.engine.background.state_file import StateFile
from pyggml_server.engine.transfers.transfer import Transfer


class DiskStep(Enum):
    """Where the state is: still in host memory, in the file only, on its way back into host memory."""

    WRITING = "writing"
    STORED = "stored"
    READING = "reading"


@dataclass(frozen=True, slots=True)
class StateOnDisk:
    """`since_s`: when this step began. `task`: None while it is STORED."""

    disk: Disk
    file: StateFile
    step: DiskStep
    since_s: float
    task: DiskTask | None = None

    @property
    def is_under_way(self) -> bool:
        return self.task is not None

    @property
    def is_in_file(self) -> bool:
        """Whether all of it is in the file."""
        return self.step is not DiskStep.WRITING

    def give_up(self, transfer: Transfer) -> None:
        """Nobody wants the file any more. What is under way has the memory of the slot's transfer until it ends, which
        nobody waits for."""
        if self.task is None:
            self.disk.discard(self.file)
        else:
            self.disk.abandon(self.file, self.task, transfer.buffer_bytes, transfer.pinned_bytes)
            transfer.leave()
