"""How much of parked states is sent to the device behind one batch: what the link moves before the next. Engine thread.

What a batch needs from the host (tokens, positions, the mask) comes to the device behind all that was sent before it,
so a state that is sent whole delays the next batch for as long as the link takes. In parts behind each batch, while the
device computes, it delays none. The link's speed need not be known: a part that is there when the next batch begins was
not too large, and the next one may be larger; one that is not was too large, and nothing is sent behind it.
"""

from __future__ import annotations

MIB = 1024**2
FIRST_PART_BYTES = 64 * MIB  # 1 to 3 ms on the links of today's cards
LEAST_PART_BYTES = 4 * MIB
GROWTH = 1.5


class LinkPace:
    """The size of a part, learned from those that were sent, and what of this batch's part is left."""

    def __init__(self) -> None:
        self._part_bytes = FIRST_PART_BYTES
        self._sent_bytes = 0
        self._is_free = True

    @property
    def room_bytes(self) -> int:
        """What may be sent behind this batch; 0 if nothing more."""
        return max(0, self._part_bytes - self._sent_bytes) if self._is_free else 0

    def note_sent(self, n_bytes: int) -> None:
        """So much was sent behind this batch."""
        self._sent_bytes += n_bytes

    def begin_pass(self, has_completed: bool) -> None:
        """The next batch comes. `has_completed`: what was sent behind the batches before is there."""
        if not has_completed and self._is_free:
            self._part_bytes = max(LEAST_PART_BYTES, self._part_bytes // 2)
        elif has_completed and self._sent_bytes >= self._part_bytes:
            self._part_bytes = int(GROWTH * self._part_bytes)
        self._is_free, self._sent_bytes = has_completed, 0
