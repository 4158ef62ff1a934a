"""How a call on another thread hears that nobody waits for its result. Pure data."""

from __future__ import annotations

from typing import Final


class Abandoned:
    """Not set at first. `flag` is an int of C that native code looks at while it works."""

    def __init__(self) -> None:
        self.flag: Final = bytearray(4)

    def set(self) -> None:
        """Nobody waits any more. Any thread; idempotent."""
        self.flag[0] = 1


NEVER_ABANDONED: Final = Abandoned()
