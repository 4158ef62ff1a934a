"""How long work tells its user what it does: it is handed a function that takes one line."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]
