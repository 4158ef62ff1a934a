"""The planner's tests need nothing compiled: `server/` on the path is enough."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import settings

ROOT = Path(__file__).parents[2]
for folder in (ROOT, ROOT / "server"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


# No deadline: a slow machine must not turn a slow example into a failure. CI's profile is the one of ./scripts/test.
settings.register_profile("quick", max_examples=40, stateful_step_count=25, deadline=None)
# The same traces each time: what fails there fails here. `deep` looks for new ones. Two tests run traces: 1,000 in all.
settings.register_profile(
    "ci", max_examples=500, stateful_step_count=10, deadline=None, derandomize=True, database=None
)
settings.register_profile("deep", max_examples=10_000, stateful_step_count=25, deadline=None)
settings.load_profile(os.environ.get("PYGGML_HYPOTHESIS", "quick"))
