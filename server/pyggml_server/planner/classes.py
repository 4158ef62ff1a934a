"""Priority classes (rule 13): who goes before whom. A request's class is an integer, and the lower one goes first.

One that has waited for `age_s` counts as of the best class there is, and keeps that for one turn once it is in: else
it would be the first to leave again. So no class starves.
"""

from __future__ import annotations

from pyggml_server.planner.policy import Policy
from pyggml_server.planner.view import RESIDENT_PHASES, SlotView, View


class Classes:
    """The classes of one view's slots. Where all are of one class, nothing is looked up."""

    __slots__ = ("_best", "_now_s", "_policy", "are_many")

    def __init__(self, view: View, policy: Policy) -> None:
        self._policy, self._now_s = policy, view.now_s
        present = {slot.priority for slot in view.slots}  # idle ones too: quicker, and changes no order
        self._best = min(present, default=0)
        self.are_many = len(present) > 1

    def of(self, slot: SlotView) -> int:
        """The class that the slot counts as."""
        if not self.are_many:
            return self._best
        return self._best if self._has_aged(slot) else slot.priority

    def is_better(self, slot: SlotView, other: SlotView) -> bool:
        """Whether the first of them goes before the other whatever the time since which they wait."""
        return self.are_many and self.of(slot) < self.of(other)

    def _has_aged(self, slot: SlotView) -> bool:
        if self._policy.age_s <= 0:
            return False
        if slot.phase not in RESIDENT_PHASES:
            return self._now_s - slot.waits_since_s > self._policy.age_s
        has_waited = slot.resident_since_s - slot.waits_since_s > self._policy.age_s
        turn_s = self._policy.rotate_s or self._policy.age_s
        return has_waited and self._now_s - slot.resident_since_s < turn_s
