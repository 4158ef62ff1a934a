"""How the threads of GCC's OpenMP library wait for each other. Pure; the library looks when it loads."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

WAIT_POLICY: Final = "OMP_WAIT_POLICY"
SPIN_COUNT: Final = "GOMP_SPINCOUNT"
N_SPINS: Final = 2000  # tens of us; the library's own is 300000, some ms in which nobody else gets the core


def sleep_early(environ: MutableMapping[str, str]) -> None:
    """Threads that wait spin for a short time only before they sleep, unless the environment says how they wait. Call
    it before anything native is imported."""
    if WAIT_POLICY not in environ and SPIN_COUNT not in environ:
        environ[SPIN_COUNT] = str(N_SPINS)
