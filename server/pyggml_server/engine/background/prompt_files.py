"""Prompts of the prompt cache in files (`--cache-disk`): what is written, what is read, and what goes. Engine thread.

One file is written or read at a time, on the disk's thread, which parked states need too. Nothing here blocks but
`finish`. What waits to be written is memory beyond `--cache-ram`, so only so much may wait: what comes while the disk
is too slow is not written. Whatever goes wrong, a prompt is computed again.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pyggml_server.engine.background.disk import PAUSE_S, Disk, DiskTask
from pyggml_server.engine.background.piecewise_file import Bytes, StateFileError
from pyggml_server.engine.background.prompt_file import PromptFile, PromptHead, Tokens
from pyggml_server.engine.background.prompt_folder import PROMPT, PromptFolder
from pyggml_server.engine.background.prompt_index import Entry, PromptIndex
from pyggml_server.engine.background.prompt_stock import take_stock
from pyggml_server.native.border import PyggmlError
from pyggml_server.native.kept_prompt import KeptPrompt

log = logging.getLogger(__name__)

#: What may wait to be written at most, but for one prompt, which may always.
WAITING_BYTES = 1 << 30
#: For a read: how long a request waits.
PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class _Write:
    kept: KeptPrompt
    entry: Entry
    head: PromptHead
    used_s: float


class PromptRead:
    """A prompt on its way out of a file. `kept`: it, once `has_ended`; None where it is lost."""

    def __init__(self, entry: Entry, since_s: float) -> None:
        self.entry = entry
        self.since_s = since_s
        self.kept: KeptPrompt | None = None
        self.has_ended = False


@dataclass(frozen=True, slots=True)
class _UnderWay:
    task: DiskTask
    file: PromptFile
    what: Entry | PromptRead


class PromptFiles:
    """`limit_bytes` of files in the folder. `keeps_checkpoints`: what they save is all that a checkpoint has."""

    def __init__(
        self,
        disk: Disk,
        folder: PromptFolder,
        origin: bytes,
        limit_bytes: int,
        *,
        keeps_checkpoints: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Blocks to read what is there. Raises StateFileError where that cannot be seen."""
        self._n_written = self._n_read = 0
        self._disk, self._folder, self._origin = disk, folder, origin
        self._keeps_checkpoints = keeps_checkpoints
        self._clock = clock
        self._index = PromptIndex(limit_bytes)
        self._reads: deque[PromptRead] = deque()
        self._writes: deque[_Write] = deque()
        self._under_way: _UnderWay | None = None
        self._paused_until_s = float("-inf")
        take_stock(folder, origin, self._index)

    def __len__(self) -> int:
        """Prompts of this model."""
        return len(self._index)

    @property
    def limit_bytes(self) -> int:
        return self._index.limit_bytes

    @property
    def held_bytes(self) -> int:
        """What files have, or will."""
        return self._index.held_bytes + self._coming_bytes

    @property
    def is_busy(self) -> bool:
        """Whether a file is written or read, or waits for that."""
        return self._under_way is not None or bool(self._reads) or bool(self._writes)

    @property
    def is_reading(self) -> bool:
        """Whether somebody may wait for a prompt."""
        return bool(self._reads) or (self._under_way is not None and isinstance(self._under_way.what, PromptRead))

    def take_counts(self) -> tuple[int, int]:
        """Prompts that were written and read since the last call."""
        counts = self._n_written, self._n_read
        self._n_written = self._n_read = 0
        return counts

    def find(self, adapters: bytes, have: list[int], wanted: list[int]) -> tuple[Entry, int] | None:
        """The file with the prompt that has more in common with `wanted` than `have`, and how many tokens that is."""
        coming = self._coming()
        if not len(self._index) and not coming:
            return None
        return self._index.find(adapters, np.array(have, np.int32), np.array(wanted, np.int32), coming)

    def read(self, entry: Entry) -> PromptRead:
        """Begin to read a prompt, once it is written. Its file stays."""
        read = PromptRead(entry, self._clock())
        self._index.note_use(entry)
        self._reads.append(read)
        self._go_on()
        return read

    def is_worth_waiting_for(self, read: PromptRead) -> bool:
        """Whether it has not ended, and has not taken so long that to compute the prompt is quicker."""
        return not read.has_ended and self._clock() - read.since_s < PATIENCE_S

    def write(self, kept: KeptPrompt, adapters: bytes) -> None:
        """Have a prompt written that is in no cache any more; it is closed then. One with images is not: the names of
        images end with the process."""
        write = self._write_of(kept, adapters)
        if write is None or self._clock() < self._paused_until_s or self._has_too_much_waiting(write):
            self._disk.submit(kept.close)  # to give memory back may take time
        else:
            self._writes.append(write)
            self._go_on()

    def poll(self) -> None:
        """Take note of what was written or read, and begin what comes next. Never blocks."""
        if self._under_way is not None and self._under_way.task.is_done():
            self._complete(self._under_way)
        self._go_on()

    def finish(self, left: list[KeptPrompt], adapters: bytes, limit_s: float) -> None:
        """Write what is left, which comes oldest first, as far as the files have room. Blocks until all is written, or
        the time is over."""
        end_s = self._clock() + limit_s
        chosen: list[_Write] = []
        n_bytes = 0
        for rank, kept in enumerate(reversed(left)):  # the newest first: it is what is wanted soonest
            write = self._write_of(kept, adapters)
            if write is not None and n_bytes + write.head.n_bytes <= self.limit_bytes:
                n_bytes += write.head.n_bytes
                chosen.append(replace(write, used_s=write.used_s - rank))
        self._writes.extendleft(reversed(chosen))
        if self._writes and self._clock() >= self._paused_until_s:
            log.info("writing %d prompts to %s", len(self._writes), self._folder.path)
            self._write_until(end_s)

    def close(self) -> None:
        """Once the disk's thread has ended."""
        self._folder.close()

    # -- one after the other ------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._under_way is not None:
            return
        coming = self._coming()
        for read in [read for read in self._reads if read.entry not in coming]:
            self._reads.remove(read)
            if read.entry in self._index:
                self._under_way = self._begin_read(read)
                return
            read.has_ended = True  # it could not be written
        while self._writes and self._under_way is None:
            write = self._writes.popleft()
            if self._index.knows(write.head, write.entry.tokens):
                self._disk.submit(write.kept.close)
            else:
                self._under_way = self._begin_write(write)

    def _begin_read(self, read: PromptRead) -> _UnderWay:
        head, name = read.entry.head, read.entry.name
        assert head is not None
        file = PromptFile(self._folder, name, read.entry.n_bytes)
        used_s = time.time()

        def work(_: object) -> None:
            read.kept = _read(file, head)
            self._folder.set_used(name, used_s)

        return _UnderWay(self._disk.run(work, []), file, read)

    def _begin_write(self, write: _Write) -> _UnderWay:
        entry = write.entry
        gone = [old.name for old in self._index.make_room(write.head, entry.tokens)]
        file = PromptFile(self._folder, entry.name, entry.n_bytes)

        def work(_: object) -> None:
            for old in gone:
                self._folder.remove(old)
            try:
                checkpoints = write.kept.saved_checkpoints() if write.head.n_checkpoint_bytes else b""
                file.write(write.head, entry.tokens, checkpoints, write.kept.views(), write.used_s)
            finally:
                write.kept.close()

        return _UnderWay(self._disk.run(work, []), file, entry)

    def _complete(self, done: _UnderWay) -> None:
        self._under_way = None
        error = done.task.wait()
        if isinstance(done.what, PromptRead):
            done.what.has_ended = True
            if error is None:
                self._n_read += 1
                return
            done.what.kept = None
            self._index.remove(done.what.entry)
            self._disk.submit(lambda: self._folder.remove(done.file.name))
            n_tokens = len(done.what.entry.tokens)
            log.warning("a prompt of %d tokens is lost and will be computed again: %s", n_tokens, error)
        elif error is None:
            self._n_written += 1
            self._index.add(done.what)
        else:
            self._writes.clear()
            self._paused_until_s = self._clock() + PAUSE_S
            where = self._folder.path
            log.warning("%s; no prompt goes to %s for %g s (--cache-disk)", error, where, PAUSE_S)

    def _write_until(self, end_s: float) -> None:
        self.poll()
        while self._under_way is not None:
            if self._under_way.task.wait_for(max(0.0, end_s - self._clock())):
                self.poll()
            else:
                log.warning("the disk is too slow: %d prompts are not written (--cache-disk)", len(self._writes) + 1)
                self._writes.clear()
                self._under_way.file.abandon()
                self._under_way = None

    # -- what is written ----------------------------------------------------------------------------------------------

    def _coming(self) -> list[Entry]:
        """What is written, or waits for that."""
        what = None if self._under_way is None else self._under_way.what
        return [*([what] if isinstance(what, Entry) else []), *(write.entry for write in self._writes)]

    @property
    def _coming_bytes(self) -> int:
        what = None if self._under_way is None else self._under_way.what
        return what.n_bytes if isinstance(what, Entry) else 0

    def _write_of(self, kept: KeptPrompt, adapters: bytes) -> _Write | None:
        tokens = np.array(kept.tokens, np.int32)
        n_checkpoint_bytes = kept.n_saved_checkpoint_bytes if self._keeps_checkpoints else 0
        head = PromptHead(self._origin, adapters, len(tokens), n_checkpoint_bytes, tuple(kept.sizes_bytes))
        if not len(tokens) or tokens.min() < 0 or head.n_bytes > self.limit_bytes or self._index.knows(head, tokens):
            return None
        name = f"{self._folder.prefix}-{os.urandom(8).hex()}{PROMPT}"
        return _Write(kept, Entry(name, head.n_bytes, head, tokens), head, time.time())

    def _has_too_much_waiting(self, write: _Write) -> bool:
        n_waiting_bytes = sum(other.head.n_bytes for other in self._writes)
        return bool(self._writes) and n_waiting_bytes + write.head.n_bytes > WAITING_BYTES


def _read(file: PromptFile, head: PromptHead) -> KeptPrompt:
    """Raises StateFileError."""
    made: list[KeptPrompt] = []

    def place(tokens: Tokens, checkpoints: bytes) -> list[Bytes]:
        try:
            kept, views = KeptPrompt.from_file(tokens, checkpoints, head.sizes_bytes)
        except PyggmlError as error:
            raise StateFileError(str(error)) from error
        made.append(kept)
        return views

    file.read(head, place)
    return made[0]
