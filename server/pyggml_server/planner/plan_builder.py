"""A plan in the making: the orders so far and what they leave behind. Lives inside one call of `decide`."""

from __future__ import annotations

from collections.abc import Iterable

from pyggml_server.planner.effects import apply_to, start_prompt
from pyggml_server.planner.ledger import Ledger
from pyggml_server.planner.plan import Action, HoldPrompt, Park, Plan, Reason, Recompute
from pyggml_server.planner.policy import Policy
from pyggml_server.planner.view import SlotView, View


class PlanBuilder:
    """Grows by `add`; `ledger` is always the pool after every order so far, `newcomers` the prompts that it lets
    start, `held` those that it does not."""

    __slots__ = ("_actions", "_parked", "held", "ledger", "newcomers")

    def __init__(self, view: View, policy: Policy) -> None:
        self.ledger = Ledger(view, policy)
        self._actions: list[Action] = []
        self._parked: set[int] = set()
        self.newcomers: set[int] = set()
        self.held: dict[int, tuple[SlotView, Reason]] = {}

    def add(self, *actions: Action) -> None:
        """Append orders, in the order in which they are to be carried out."""
        self.extend(actions)

    def extend(self, actions: Iterable[Action]) -> None:
        for action in actions:
            self._actions.append(action)
            apply_to(self.ledger, action)
            if isinstance(action, Park | Recompute):
                self._parked.add(action.slot_id)

    def start(self, slot: SlotView) -> None:
        """Let a started prompt take its chunk in this pass: no order is needed, but those after it must count it."""
        start_prompt(self.ledger, slot)
        self.newcomers.add(slot.slot_id)

    def hold(self, started: SlotView, why: Reason) -> None:
        """Leave a started prompt out of this pass. It has no step that the others would have to count."""
        self._actions.append(HoldPrompt(started.slot_id, why))
        self.held[started.slot_id] = (started, why)

    def has_parked(self, slot: SlotView) -> bool:
        """Whether this plan parks the slot, or drops its cells: then it does not bring it back."""
        return slot.slot_id in self._parked

    @property
    def has_parks(self) -> bool:
        return bool(self._parked)

    def plan(self) -> Plan:
        return Plan(tuple(self._actions)) if self._actions else Plan.EMPTY
