"""The thread that encodes images and sounds, one after the other, while the engine decodes for everybody else.

Owned by the engine thread. It touches the encoder and a prompt's images, and nothing of the context.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyggml_server.native.media import Media


class Encoder:
    """Takes images in the order in which they are asked for. `wake` is called, on its thread, after each."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._executor = ThreadPoolExecutor(1, "images")
        self._asked: list[Future[None]] = []

    def start(self, media: Media, i: int) -> Future[None]:
        """Ask for image i. Does not block; the result is None or the error."""
        asked = self._executor.submit(self._encode, media, i)
        self._asked = [*(other for other in self._asked if not other.done()), asked]
        return asked

    @property
    def is_busy(self) -> bool:
        """Whether any image is still to come."""
        return any(not asked.done() for asked in self._asked)

    def close(self) -> None:
        """Forget what has not begun, and block for the image under way. Idempotent."""
        self._executor.shutdown(cancel_futures=True)

    def _encode(self, media: Media, i: int) -> None:
        try:
            media.encode(i)
        finally:
            self._wake()
