"""The life of a slot: its states and every move between them, in one table. Engine thread only.

Owns which move is legal, and nothing else: no cells, no buffers, no requests. No other file may change a slot's state.

    IDLE -> STARTED -> PROCESSING_PROMPT -> DONE_PROMPT -> GENERATING -> IDLE
    IDLE -> WAIT_OTHER -> DONE_PROMPT                  a child of n > 1 gets its parent's prompt
    PROCESSING_PROMPT | GENERATING -> PREEMPTING -> PREEMPTED -> RESTORING -> where it came from
    PREEMPTED -> PROCESSING_PROMPT                     without a state on the host: all tokens are computed again

A synchronous copy takes the same way through PREEMPTING and RESTORING, within one call. A park that fails goes back to
where it came from, a restore that fails goes back to PREEMPTED. Any state may end in IDLE; a copy that is in flight is
waited for first.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyggml_server.planner.view import SlotPhase

__all__ = ["MOVES", "IllegalMoveError", "SlotPhase", "SlotState"]

MOVES: Mapping[SlotPhase, frozenset[SlotPhase]] = {
    SlotPhase.IDLE: frozenset({SlotPhase.STARTED, SlotPhase.WAIT_OTHER}),
    SlotPhase.WAIT_OTHER: frozenset({SlotPhase.DONE_PROMPT, SlotPhase.IDLE}),
    SlotPhase.STARTED: frozenset({SlotPhase.PROCESSING_PROMPT, SlotPhase.IDLE}),
    SlotPhase.PROCESSING_PROMPT: frozenset({SlotPhase.DONE_PROMPT, SlotPhase.PREEMPTING, SlotPhase.IDLE}),
    SlotPhase.DONE_PROMPT: frozenset({SlotPhase.GENERATING, SlotPhase.IDLE}),
    SlotPhase.GENERATING: frozenset({SlotPhase.PREEMPTING, SlotPhase.IDLE}),
    SlotPhase.PREEMPTING: frozenset(
        {SlotPhase.PREEMPTED, SlotPhase.PROCESSING_PROMPT, SlotPhase.GENERATING, SlotPhase.IDLE}
    ),
    SlotPhase.PREEMPTED: frozenset({SlotPhase.RESTORING, SlotPhase.PROCESSING_PROMPT, SlotPhase.IDLE}),
    SlotPhase.RESTORING: frozenset(
        {SlotPhase.PROCESSING_PROMPT, SlotPhase.GENERATING, SlotPhase.PREEMPTED, SlotPhase.IDLE}
    ),
}

_RUNNING = frozenset({SlotPhase.PROCESSING_PROMPT, SlotPhase.GENERATING})
_AWAY = frozenset({SlotPhase.PREEMPTING, SlotPhase.PREEMPTED, SlotPhase.RESTORING})


class IllegalMoveError(RuntimeError):
    """A slot was told to make a move that the table does not have: a bug in the engine, never a user's error."""


class SlotState:
    """The state of one slot. Engine thread only; never blocks.

    `phase` is where it is; `former` is where a restore will put it back, None unless it is parked or on its way.
    """

    __slots__ = ("_former", "_phase", "_slot_id")

    def __init__(self, slot_id: int) -> None:
        self._slot_id = slot_id
        self._phase = SlotPhase.IDLE
        self._former: SlotPhase | None = None

    @property
    def phase(self) -> SlotPhase:
        return self._phase

    @property
    def former(self) -> SlotPhase | None:
        return self._former

    @property
    def is_processing(self) -> bool:
        """As in stock: not idle. It keeps the loop awake, so a parked slot counts."""
        return self._phase is not SlotPhase.IDLE

    @property
    def is_preempted(self) -> bool:
        """Parked, or on its way out or in."""
        return self._phase in _AWAY

    def move(self, to: SlotPhase) -> None:
        """Make one move. Raises IllegalMoveError, and changes nothing, when the table has no such move."""
        if to not in MOVES[self._phase]:
            legal = ", ".join(sorted(phase.name for phase in MOVES[self._phase]))
            raise IllegalMoveError(
                f"slot {self._slot_id} cannot go from {self._phase.name} to {to.name}; from there it may go to {legal}"
            )
        is_refill = self._phase is SlotPhase.PREEMPTED
        if self._phase in _AWAY and to in _RUNNING and to is not self._former and not is_refill:
            came_from = self._former.name if self._former else "nowhere"
            raise IllegalMoveError(
                f"slot {self._slot_id} cannot come back to {to.name}: it was parked from {came_from} and returns there"
            )
        if to is SlotPhase.PREEMPTING:
            self._former = self._phase
        elif to not in _AWAY:
            self._former = None
        self._phase = to

    def come_back(self) -> None:
        """RESTORING (or a park that failed) back to where it was parked from."""
        if self._former is None:
            raise IllegalMoveError(
                f"slot {self._slot_id} is {self._phase.name} and was not parked: nowhere to come back to"
            )
        self.move(self._former)
