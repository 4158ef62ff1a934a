"""The preemption planner: `decide(view, policy) -> Plan`, a pure function of frozen values.

Nothing in this package reads a clock, logs, starts a thread or imports anything but data-only standard library
modules (a test holds the white list). "No room" is a plan, never an exception.
"""

from __future__ import annotations

from pyggml_server.planner.decide import decide
from pyggml_server.planner.plan import Plan
from pyggml_server.planner.policy import Policy
from pyggml_server.planner.view import SlotPhase, SlotView, View

__all__ = ["Plan", "Policy", "SlotPhase", "SlotView", "View", "decide"]
