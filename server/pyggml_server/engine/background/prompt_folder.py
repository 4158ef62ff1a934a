"""The private folder that has the prompts of `--cache-disk`, for all servers of one user, and who may write what in it.

Any thread. Names begin with what the states in them depend on, so servers of several models share the folder. Of one
model one server at a time has the files: it holds a lock as long as it lives. Nothing here follows a symbolic link, and
nothing is opened that another user could have put there.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyggml_server.engine.background.piecewise_file import StateFileError

PROMPT, PARTIAL, LOCK = ".prompt", ".partial", ".lock"
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # which would wait for nobody at a pipe
#: How often a lock is tried: another server that starts may look at it for a moment.
N_TRIES, TRY_S = 5, 0.05


class FolderInUseError(Exception):
    """Another server has the files of this model; the message says where."""


class PromptFolder:
    """The folder below `parent`, and the lock for the files whose names begin with `prefix`."""

    def __init__(self, parent: Path, prefix: str) -> None:
        """Raises StateFileError where there cannot be such a folder, FolderInUseError."""
        self.path = parent / f"pyggml-prompts-{os.geteuid()}"
        self.prefix = prefix
        try:
            self._fd = _open_folder(self.path)
        except OSError as error:
            raise StateFileError(f"no files can be kept in {self.path}: {error.strerror}") from error
        self._lock_fd = -1
        try:
            self._lock_fd = self._wait_for_lock(prefix + LOCK)
        except BlockingIOError:
            self.close()
            raise FolderInUseError(f"another server has the prompts of this model in {self.path}") from None
        except OSError as error:
            self.close()
            raise StateFileError(f"no files can be kept in {self.path}: {error.strerror}") from error

    def names(self) -> Iterator[str]:
        """Of all files that no living server but this one has: prompts, and what was half written. Raises OSError."""
        found = sorted(os.listdir(self._fd))  # noqa: PTH208 - of the folder that was looked at
        is_ours = {prefix: self._is_free(prefix) for prefix in {name.split("-")[0] for name in found}}
        for name in found:
            if name.endswith((PROMPT, PARTIAL)) and is_ours[name.split("-")[0]]:
                yield name

    def open(self, name: str, flags: int) -> int:
        """Opened for this user alone. Raises OSError, also for what is no plain file."""
        fd = os.open(name, flags | _FLAGS, 0o600, dir_fd=self._fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(f"{name} is no file")
        return fd

    def rename(self, name: str, new_name: str) -> None:
        """Raises OSError."""
        os.rename(name, new_name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def remove(self, name: str) -> None:
        """Nothing where it is not there."""
        with suppress(OSError):
            os.unlink(name, dir_fd=self._fd)

    def set_used(self, name: str, at_s: float) -> None:
        """When it was used last, in the clock of the wall. Nothing where it is not there."""
        with suppress(OSError):
            os.utime(name, (at_s, at_s), dir_fd=self._fd, follow_symlinks=False)

    def close(self) -> None:
        """Idempotent."""
        for fd in (self._lock_fd, self._fd):
            if fd >= 0:
                os.close(fd)
        self._lock_fd = self._fd = -1

    def _is_free(self, prefix: str) -> bool:
        """Whether the files with this prefix are ours, or those of a server that has ended."""
        if prefix == self.prefix:
            return True
        try:
            os.close(self._take_lock(prefix + LOCK, 0))
        except OSError:
            return False
        return True

    def _wait_for_lock(self, name: str) -> int:
        for _ in range(N_TRIES - 1):
            with suppress(BlockingIOError):
                return self._take_lock(name, os.O_CREAT)
            time.sleep(TRY_S)
        return self._take_lock(name, os.O_CREAT)

    def _take_lock(self, name: str, flags: int) -> int:
        fd = self.open(name, os.O_RDWR | flags)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return fd


def _open_folder(path: Path) -> int:
    """Raises OSError where it is not a folder of this user's alone."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
    about = os.fstat(fd)
    if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
        os.close(fd)
        raise PermissionError(0, "it is not a folder of this user's alone")
    return fd
