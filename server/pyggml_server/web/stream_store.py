"""Streams that outlive their connection (header X-Conversation-Id): what they said is kept, and can be read again.

Event loop thread. One stream per conversation: a new one ends the one before it. Kept for a while after its end, and up
to a number of bytes, of which the oldest go first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass

from starlette.types import Message

log = logging.getLogger(__name__)

MAX_KEPT_BYTES = 4 * 1024 * 1024
KEPT_AFTER_END_S = 300


class OffsetLostError(Exception):
    """The bytes from this offset on are no longer there."""


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """One stream as POST /v1/streams/lookup shows it. Times in seconds since 1970, 0 for an end that has not come."""

    conversation_id: str
    is_done: bool
    total_bytes: int
    started_at: int
    completed_at: int


class KeptStream:
    """The bytes of one stream. `send` takes the ASGI messages of the response that would have carried them.

    `stop_producer` is called when nobody wants what is still to come; whoever fills the stream then comes to an end.
    """

    def __init__(
        self, conversation_id: str, stop_producer: Callable[[], None], now_s: Callable[[], float], max_bytes: int
    ) -> None:
        self.conversation_id = conversation_id
        self.producer: asyncio.Future[None] | None = None
        self._stop_producer = stop_producer
        self._now_s = now_s
        self._started_at_s = int(now_s())
        self._completed_at_s = 0
        self._is_done = False
        self.is_cancelled = False
        self._bytes = bytearray()
        self._n_dropped_bytes = 0
        self._max_bytes = max_bytes
        self._changed = asyncio.Event()

    @property
    def facts(self) -> StreamFacts:
        total_bytes = self._n_dropped_bytes + len(self._bytes)
        return StreamFacts(self.conversation_id, self._is_done, total_bytes, self._started_at_s, self._completed_at_s)

    def has_expired(self) -> bool:
        """Whether it ended so long ago that nobody will ask for it."""
        return self._is_done and self._now_s() - self._completed_at_s >= KEPT_AFTER_END_S

    async def send(self, message: Message) -> None:
        """Take in one message of a response; never waits. What comes after the end is thrown away."""
        if self._is_done:
            return
        self._bytes += message.get("body", b"")
        n_too_many = len(self._bytes) - self._max_bytes
        if n_too_many > 0:
            del self._bytes[:n_too_many]
            self._n_dropped_bytes += n_too_many
        self._wake()

    def end(self) -> None:
        """Nothing will follow. Idempotent."""
        if not self._is_done:
            self._is_done = True
            self._completed_at_s = int(self._now_s())
            self._wake()

    def cancel(self) -> None:
        """End it as it is, and stop whoever fills it."""
        self.is_cancelled = True
        self.end()
        self._stop_producer()

    def begin(self, produce: Callable[[KeptStream], Coroutine[None, None, None]]) -> None:
        """Have `produce` fill it, as a task of its own. The stream ends with it."""
        self.producer = asyncio.ensure_future(self._run(produce))

    def check_offset(self, offset: int) -> None:
        """Raises OffsetLostError when the stream cannot be read from there any more."""
        if offset < self._n_dropped_bytes:
            raise OffsetLostError(f"bytes {offset} to {self._n_dropped_bytes} of the stream are gone")

    async def read_from(self, offset: int) -> AsyncIterator[bytes]:
        """What there is from `offset` on, then what follows, until the end. Raises OffsetLostError if that is gone."""
        while True:
            self.check_offset(offset)
            chunk = bytes(self._bytes[offset - self._n_dropped_bytes :])
            if chunk:
                offset += len(chunk)
                yield chunk
            elif self._is_done:
                return
            else:
                await self._changed.wait()

    async def _run(self, produce: Callable[[KeptStream], Coroutine[None, None, None]]) -> None:
        try:
            await produce(self)
        except Exception:
            log.exception("the stream of conversation %s broke off", self.conversation_id)
        finally:
            self.end()

    def _wake(self) -> None:
        # everybody who waits now is woken; who waits later waits for the next change
        self._changed.set()
        self._changed = asyncio.Event()


class StreamStore:
    """The streams by conversation."""

    def __init__(self, now_s: Callable[[], float] = time.time, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._now_s = now_s
        self._max_bytes = max_bytes
        self._streams: dict[str, KeptStream] = {}

    def open(self, conversation_id: str, stop_producer: Callable[[], None]) -> KeptStream:
        """A new stream in place of the conversation's former one, which ends. From now on it can be found, read and
        stopped."""
        self.end(conversation_id)
        self._drop_expired()
        kept = KeptStream(conversation_id, stop_producer, self._now_s, self._max_bytes)
        self._streams[conversation_id] = kept
        return kept

    def forget(self, kept: KeptStream) -> None:
        """It turned out to be none: end it for who reads it, and show it to nobody. Idempotent."""
        if self._streams.get(kept.conversation_id) is kept:
            del self._streams[kept.conversation_id]
        kept.end()

    def find(self, conversation_id: str) -> KeptStream | None:
        """The conversation's stream, if it is still there."""
        self._drop_expired()
        return self._streams.get(conversation_id)

    def end(self, conversation_id: str) -> None:
        """Stop and forget the conversation's stream, if there is one."""
        kept = self._streams.pop(conversation_id, None)
        if kept is not None:
            kept.cancel()

    def facts_of(self, conversation_ids: Iterable[str]) -> list[StreamFacts]:
        """The streams of these conversations and of their variants per model (`id::model`), and of nobody else's."""
        self._drop_expired()
        return [
            kept.facts
            for wanted in conversation_ids
            for name, kept in self._streams.items()
            if name == wanted or name.startswith(wanted + "::")
        ]

    def _drop_expired(self) -> None:
        for name in [name for name, kept in self._streams.items() if kept.has_expired()]:
            del self._streams[name]
