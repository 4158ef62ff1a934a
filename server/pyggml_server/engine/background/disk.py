"""The disk behind host memory: how much it may hold, the thread that writes and reads, and when it is left alone.

Engine thread, but for the work that it gives to its own thread. Without a budget there is no disk and no thread.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyggml_server.engine.background.state_file import Bytes, StateFile, StateFileError
from pyggml_server.errors import LoadError

log = logging.getLogger(__name__)

DEFAULT_FOLDER = "/var/tmp"  # on a disk, where /tmp is memory on many machines
#: After a file could not be written: how long none is tried.
PAUSE_S = 60.0


class Disk:
    """`limit_bytes` of files of parked states in `folder`. `is_for_prompts`: the prompt cache needs it too. Without
    either there is none."""

    def __init__(self, limit_bytes: int = 0, folder: str | None = None, *, is_for_prompts: bool = False) -> None:
        """Raises LoadError where no file can be made."""
        self._limit_bytes = limit_bytes
        self.folder = Path(folder or (DEFAULT_FOLDER if Path(DEFAULT_FOLDER).is_dir() else tempfile.gettempdir()))
        self._paused_until_s = float("-inf")
        self._executor: ThreadPoolExecutor | None = None
        self.abandoned = AbandonedStates()
        if limit_bytes > 0 or is_for_prompts:
            self._executor = ThreadPoolExecutor(1, "disk")
            self._try_out("--preempt-disk" if limit_bytes > 0 else "--cache-disk")

    def _try_out(self, flag: str) -> None:
        file = StateFile(self.folder, (1,))
        try:
            file.write([np.zeros(1, dtype=np.uint8)])
        except StateFileError as error:
            self.close()
            raise LoadError(f"{flag}: {error}; name another folder with --disk-path") from error
        finally:
            file.close()

    @property
    def limit_bytes(self) -> int:
        return self._limit_bytes

    def usable_bytes(self, now_s: float) -> int:
        """The budget; 0 for a while after a file could not be written."""
        return 0 if now_s < self._paused_until_s else self._limit_bytes

    def new_file(self, sizes_bytes: Sequence[int]) -> StateFile:
        """One that is made when it is written."""
        return StateFile(self.folder, sizes_bytes)

    def run(self, work: Callable[[Sequence[Bytes]], None], parts: list[Bytes]) -> DiskTask:
        """Read or write these parts on the disk's thread. Nobody touches them until that has ended; it empties the
        list, so that no view of a buffer is alive then."""
        assert self._executor is not None
        return DiskTask(self._executor.submit(_guarded, work, parts))

    def submit(self, work: Callable[[], None]) -> None:
        """Have something done on the disk's thread, of which nobody waits for the end."""
        assert self._executor is not None
        self._executor.submit(work)

    def discard(self, file: StateFile) -> None:
        """Have a file that nobody uses closed on the disk's thread: to give its room back may take time."""
        self.submit(file.close)

    def abandon(self, file: StateFile, task: DiskTask, ram_bytes: int, pinned_bytes: int) -> None:
        """Nobody wants what the task writes or reads any more. Never blocks: file and memory are held until it ends."""
        file.abandon()
        self.abandoned.add(_Abandoned(file, task, ram_bytes, pinned_bytes))

    def poll(self) -> None:
        """Have the files of abandoned tasks that have ended closed. Never blocks."""
        for file in self.abandoned.take_ended():
            self.discard(file)

    def pause(self, now_s: float, error: StateFileError) -> None:
        """Leave the disk alone for a while: said once each time."""
        self._paused_until_s = now_s + PAUSE_S
        log.warning("%s; no parked state goes to %s for %g s (--preempt-disk)", error, self.folder, PAUSE_S)

    def close(self) -> None:
        """Block until its thread has ended, and with it everything that was abandoned. Idempotent."""
        if self._executor is not None:
            self._executor.shutdown()
        for file in self.abandoned.take_ended():
            file.close()


class DiskTask:
    """Something that is written or read."""

    def __init__(self, future: Future[StateFileError | None]) -> None:
        self._future = future

    def is_done(self) -> bool:
        """Whether it has ended. Never blocks."""
        return self._future.done()

    def wait(self) -> StateFileError | None:
        """Block until it has; what went wrong, if anything did."""
        return self._future.result()

    def wait_for(self, limit_s: float) -> bool:
        """Block until it has, or for so long. Whether it has."""
        return bool(futures.wait([self._future], limit_s).done)


@dataclass(frozen=True, slots=True)
class _Abandoned:
    file: StateFile
    task: DiskTask
    ram_bytes: int
    pinned_bytes: int


class AbandonedStates:
    """What is still written or read though nobody wants it: a slot does not wait for the disk when it ends."""

    def __init__(self) -> None:
        self._states: list[_Abandoned] = []

    def __bool__(self) -> bool:
        return bool(self._states)

    def add(self, state: _Abandoned) -> None:
        self._states.append(state)

    def take_ended(self) -> list[StateFile]:
        """The files of those that have ended, which hold nothing any more from now on."""
        ended = [state for state in self._states if state.task.is_done()]
        self._states = [state for state in self._states if state not in ended]
        return [state.file for state in ended]

    @property
    def file_bytes(self) -> int:
        return sum(state.file.n_bytes for state in self._states)

    @property
    def ram_bytes(self) -> int:
        return sum(state.ram_bytes for state in self._states)

    @property
    def buffer_bytes(self) -> int:
        """The pageable part of `ram_bytes`."""
        return sum(state.ram_bytes - state.pinned_bytes for state in self._states)


def _guarded(work: Callable[[Sequence[Bytes]], None], parts: list[Bytes]) -> StateFileError | None:
    try:
        work(parts)
    except StateFileError as error:
        return StateFileError(str(error))  # without the frames, which hold views of a buffer
    except Exception as error:
        return StateFileError(f"{type(error).__name__}: {error}")
    finally:
        parts.clear()
    return None
