"""How long threads spin while they wait for each other, as OpenMP's library says that it has understood it."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from pyggml_server.openmp import N_SPINS, SPIN_COUNT, WAIT_POLICY

from tests.e2e.program import PATIENCE_S, our_program


@pytest.mark.parametrize(
    ("asked", "n_spins"),
    [({}, N_SPINS), ({WAIT_POLICY: "passive"}, 0), ({SPIN_COUNT: "77"}, 77), ({SPIN_COUNT: "300000"}, 300000)],
    ids=["not asked", "passive", "a count", "its own count"],
)
def test_they_spin_for_a_short_time_unless_the_environment_says_how_long(asked: dict[str, str], n_spins: int) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [our_program(), "--version"],
        env={**own, **asked, "OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    if "OPENMP DISPLAY ENVIRONMENT BEGIN" not in done.stderr:
        pytest.skip("built without GCC's OpenMP library")
    assert re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr) == [str(n_spins)]
