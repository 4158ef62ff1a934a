"""Who uses the loaded model, so that it is never freed while in use (--sleep-idle-seconds). Any thread.

The engine loads and frees, the web side uses. The door is open while the web side has a model to work with; the engine
closes it only when it is empty inside.
"""

from __future__ import annotations

import threading


class SleepGuard:
    """A door with a count of who is inside. Nothing blocks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_open = False
        self._n_inside = 0

    def open(self) -> None:
        """The model is loaded and the web side has it."""
        with self._lock:
            self._is_open = True

    def try_close(self) -> bool:
        """The model is going to be freed. False, and nothing has changed, while it is in use."""
        with self._lock:
            if self._n_inside or not self._is_open:
                return False
            self._is_open = False
            return True

    def try_enter(self) -> bool:
        """Begin to use the model; False while there is none. Who got in must leave."""
        with self._lock:
            self._n_inside += self._is_open
            return self._is_open

    def leave(self) -> None:
        """End what `try_enter` began."""
        with self._lock:
            self._n_inside -= 1
