"""What the planner may order, each action with its reason. Values only; `engine.apply` alone carries them out.

How to carry a plan out
-----------------------
Strictly in the order of `Plan.actions`; each action assumes that those before it were done. For each pass:

    refused = frozenset()
    while True:
        plan = decide(observe(..., refused_parks=refused), policy)
        if plan.has_parks, sizes were left out and the budget is not ample: decide again with them
        carry out plan.actions in order; stop at a Park that is refused, add its slot to `refused`, and go round again
        if plan.may_decode and nothing was refused: break

With copies that free cells at once (synchronous, or staged) one plan is complete: it may park several slots, restore
others and admit prompts, and needs no second look. A plan that ends in `WaitForPark` is not complete: do its actions,
wait, look again. Nothing that touches cells or buffers is ever ordered for a slot whose copy is in flight.

What a plan leaves out goes on as usual: a generating slot decodes its token and draft, a prompt takes its next chunk.
The batch may be built only under a plan with `may_decode`, and must honour `held_prompts`, `prompt_limits` and
`draft_limits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pyggml_server.planner.reason import Reason as Reason


@dataclass(frozen=True, slots=True)
class Park:
    """Copy the slot's state to the host and give its cells back (at once, or when the copy completes).

    `for_request` is the `request_order` of the started prompt that gets the room, else None; the engine keeps it with
    the parked slot (`SlotView.parked_for_request`) so that this prompt, and not the slot itself, takes the room.
    If it cannot be carried out, stop, and decide again with the slot in `View.refused_parks`. The parks of a group
    follow one another and are made all together or not at all: half a group in line would pass who was parked since.
    `leaves_group`: this member alone leaves, with a copy of what the group shares. It shares nothing from then on.
    """

    slot_id: int
    reason: Reason
    for_request: int | None = None
    leaves_group: bool = False


@dataclass(frozen=True, slots=True)
class Recompute:
    """Drop the slot's cells and keep its tokens, since host memory cannot hold its state. It stands in line as a
    parked one does (`SlotView.needs_refill`). Its text may differ afterwards: say so."""

    slot_id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Restore:
    """Give the parked slot cells and copy its state back. Synchronous: it decodes in this very pass.

    Through staging memory it gets its cells when its state is there, and decodes in that pass; until then they are
    promised to it (`View.n_cells_used`). If the pool refuses the cells the slot stays PREEMPTED, or is so again, and
    keeps its place and its buffer.
    """

    slot_id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Refill:
    """Take the slot that needs it out of the line: it processes all of its tokens again, as a prompt is, and then goes
    on where it was. Until then `SlotView.has_run_since_restore` stays False."""

    slot_id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Spill:
    """Begin to write the parked slot's state to a file. Its host memory comes free when that completes; until then it
    has a transfer in flight. If it fails, the state stays where it is."""

    slot_id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Fetch:
    """Take host memory for the parked slot's state, and begin to read it from its file; it can be restored once that
    has completed. If it fails, the state is lost: `SlotView.needs_refill`."""

    slot_id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Forget:
    """Give the parked slot's file up: host memory cannot take the state back. It is computed again, as after a
    `Recompute`: say so."""

    slot_id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class WaitForPark:
    """Wait until this slot's copy has completed. A park then releases its cells. The last part of a restore, during
    which the slot runs already, then releases its host memory. Observe and decide again. Always the last action."""

    slot_id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class DropIdlePrompt:
    """Remove the idle slot's cached prompt from the pool (into the prompt cache, if that frees the cells now)."""

    slot_id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class TrimStarted:
    """Cut the started slot's cells down to its first `n_keep_cells`; 0 gives up what its request would have kept."""

    slot_id: int
    reason: Reason
    n_keep_cells: int


@dataclass(frozen=True, slots=True)
class HoldPrompt:
    """The prompt gets no cells in this pass: leave it out of the batch, its phase unchanged."""

    slot_id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class LimitPrompt:
    """The prompt's chunk in this pass is at most `n_tokens` (at least 1). Never for a media chunk."""

    slot_id: int
    reason: Reason
    n_tokens: int


@dataclass(frozen=True, slots=True)
class LimitDraft:
    """The slot decodes its one token with at most `n_draft_tokens` of draft in this pass."""

    slot_id: int
    reason: Reason
    n_draft_tokens: int


@dataclass(frozen=True, slots=True)
class FailContext:
    """End this request, and no other, with the context error; its cells and host memory are given back now."""

    slot_id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class GiveBackBuffer:
    """Free the host buffer kept for the slot's next park. Never one that holds a state or has a copy in flight."""

    slot_id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class RefuseRotation:
    """Changes nothing: say once for this wait that the budget cannot hold the states it takes, then set
    `SlotView.is_rotation_refusal_known` for it until its next park."""

    slot_id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class RefusePark:
    """Changes nothing: count that the budget refused the park of this slot, then set `SlotView.is_park_refusal_known`
    until it leaves the pool."""

    slot_id: int
    reason: Reason


Action = (
    Park
    | Recompute
    | Restore
    | Refill
    | Spill
    | Fetch
    | Forget
    | WaitForPark
    | DropIdlePrompt
    | TrimStarted
    | HoldPrompt
    | LimitPrompt
    | LimitDraft
    | FailContext
    | GiveBackBuffer
    | RefuseRotation
    | RefusePark
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The orders of one pass. The empty plan means that nothing is short: build the batch as it comes."""

    actions: tuple[Action, ...] = ()

    EMPTY: ClassVar[Plan]

    @property
    def may_decode(self) -> bool:
        """Whether a batch may be built once the actions are done; False: observe and decide again first."""
        return not any(isinstance(action, WaitForPark) for action in self.actions)

    @property
    def has_parks(self) -> bool:
        """Whether anybody is parked. Only then does it matter how large the states of residents are: if a plan for a
        view whose residents have no size parks nobody, it is the plan for any sizes."""
        return any(isinstance(action, Park) for action in self.actions)

    @property
    def held_prompts(self) -> frozenset[int]:
        """Slots whose prompt stays out of this pass's batch."""
        return frozenset(a.slot_id for a in self.actions if isinstance(a, HoldPrompt))

    @property
    def prompt_limits(self) -> Mapping[int, int]:
        """Most prompt tokens in this pass, by slot, where the plan limits them."""
        return {a.slot_id: a.n_tokens for a in self.actions if isinstance(a, LimitPrompt)}

    @property
    def draft_limits(self) -> Mapping[int, int]:
        """Most draft tokens in this pass, by slot, where the plan limits them."""
        return {a.slot_id: a.n_draft_tokens for a in self.actions if isinstance(a, LimitDraft)}


Plan.EMPTY = Plan()
