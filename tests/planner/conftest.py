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

# No deadline: a slow machine must not turn a slow example into a failure. PYGGML_HYPOTHESIS=deep looks longer.
settings.register_profile("quick", max_examples=40, stateful_step_count=25, deadline=None)
settings.register_profile("deep", max_examples=2000, stateful_step_count=60, deadline=None)
settings.load_profile(os.environ.get("PYGGML_HYPOTHESIS", "quick"))
