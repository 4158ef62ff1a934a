"""The one exception of the build: a sentence that names the value and the remedy.

setup.py and scripts/patches print it alone, without a traceback. It must not be raised for a bug of our own.
"""

from __future__ import annotations


class BuildError(Exception):
    """Something outside this repository has to change before the build can go on."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}\n  remedy: {remedy}")
        self.what = what
        self.remedy = remedy
