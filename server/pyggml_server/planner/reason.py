"""Why an action was ordered. Words only; each is what logs and metrics show."""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """Why an action was ordered; the text is what logs and metrics show."""

    STEP_SHORT = "no room for the next step"
    LOOKAHEAD_SHORT = "no room for the steps ahead"
    PROMPT_SHORT = "no room for a new prompt"
    FORCED = "forced after every N tokens"
    BY_HAND = "by hand"
    ROTATION = "rotation: another chat's turn"
    HEAD_OF_LINE = "head of the line"
    HEAD_WAITS = "a parked chat waits and would not fit afterwards"
    BEHIND_PROMPT = "an earlier prompt waits"
    PARK_IN_FLIGHT = "a park that makes room has not completed"
    NOBODY_CAN_BE_PARKED = "no room, and nobody can be parked"
    CANNOT_FIT_ALONE = "larger than the whole pool"
    OVER_BUDGET = "host memory is over its budget"
    BUDGET_NEEDED = "host memory is needed for a park"
    NEXT_PARK = "host memory would not hold the next park"
    BUDGET_TOO_SMALL = "the budget cannot hold the states"
