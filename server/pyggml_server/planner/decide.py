"""`decide`: the whole planner as one pure function."""

from __future__ import annotations

from pyggml_server.planner.plan import Plan
from pyggml_server.planner.policy import Policy
from pyggml_server.planner.view import View


def decide(view: View, policy: Policy) -> Plan:
    """The orders of this pass. Pure: the same view and policy give the same plan."""
    return Plan.EMPTY
