"""simdev's C interface in this process: knobs, held events, counts. The file that ggml loaded, opened once more.

And what the tests next to it share: the fixture, and a model of few layers.
"""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ALL = ctypes.c_size_t(-1).value
DEFAULTS = {
    "hold": 0,
    "async": 1,
    "events": 1,
    "event_query": 1,
    "host_buffer": 1,
    "latency_ns": 0,
    "pin": 1,
    "pin_fails_above_bytes": 2**64 - 1,
    "pageable_above_bytes": 2**64 - 1,
}


class SimdevLibrary:
    """Needs GGML_BACKEND_PATH in the environment, as ggml does."""

    def __init__(self) -> None:
        self._c = ctypes.CDLL(os.environ["GGML_BACKEND_PATH"])
        self._c.simdev_set.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
        self._c.simdev_set.restype = ctypes.c_bool
        self._c.simdev_release.argtypes = [ctypes.c_size_t]
        for name in ("simdev_n_held", "simdev_n_faults", "simdev_n_pending", "simdev_n_blocked"):
            getattr(self._c, name).restype = ctypes.c_size_t
        self._c.simdev_trace_dump.argtypes = [ctypes.c_char_p]
        self._c.simdev_trace_dump.restype = ctypes.c_bool

    def set(self, knob: str, value: int) -> None:
        assert self._c.simdev_set(knob.encode(), value), f"simdev has no knob {knob!r} with a value of {value}"

    def reset(self) -> None:
        """Releases what is held, and sets every knob that tests change back to its default."""
        self.release()
        for knob, value in DEFAULTS.items():
            self.set(knob, value)

    def release(self, n_events: int = ALL) -> None:
        self._c.simdev_release(n_events)

    @property
    def n_held(self) -> int:
        return int(self._c.simdev_n_held())

    @property
    def n_faults(self) -> int:
        return int(self._c.simdev_n_faults())

    @property
    def n_pending(self) -> int:
        return int(self._c.simdev_n_pending())

    def clear_trace(self) -> None:
        self._c.simdev_trace_clear()

    def trace(self) -> list[dict[str, Any]]:
        """The operations that were issued since the last clear, as `simdev.h` has them."""
        with tempfile.NamedTemporaryFile() as file:
            assert self._c.simdev_trace_dump(file.name.encode())
            return [json.loads(line) for line in file]

    def trace_kinds(self) -> Counter[str]:
        """How many of each kind."""
        return Counter(entry["kind"] for entry in self.trace())


#: What a conftest whose tests need simdev in their process leaves out elsewhere.
IGNORED_WITHOUT_SIMDEV = [] if "simdev" in os.environ.get("GGML_BACKEND_PATH", "") else ["test_*.py"]


@pytest.fixture(name="simdev")
def simdev_fixture() -> Iterator[SimdevLibrary]:
    """With every knob that a test may set as it is by default, before and after; no copy met freed memory."""
    library = SimdevLibrary()
    library.reset()
    n_faults = library.n_faults
    yield library
    library.reset()
    assert library.n_faults == n_faults, "a copy touched memory that was freed"


def first_layers(source: Path, make_folder: pytest.TempPathFactory, n_layers: int) -> Path:
    """The first layers of a model as a file of its own: the point is whose bytes are where, not what the text says."""
    from tests.native.short_model import shorten  # needs gguf, which a machine with another device may not have

    path = make_folder.mktemp("model") / "short.gguf"
    shorten(source, path, n_layers)
    return path
