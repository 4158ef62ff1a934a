"""`decide`: the whole planner as one pure function, in the order in which the rules apply.

1. host memory over its budget: idle buffers are given back;
2. requests that could not fit the pool even alone fail;
3. parks that were ordered: by hand, or after every so many tokens (`n_preempt_every`);
4. room for the next step of those who run, and for the steps ahead where parks free cells late;
5. a turn for a prompt that has waited too long;
6. restores, head of the line first;
7. a turn for a head that has waited too long, or that lower classes keep out;
8. new prompts, behind the line. Those of a better class than the head come before 5;
9. a parked state to a file, if the next park would find no host memory.
"""

from __future__ import annotations

from pyggml_server.planner.budget import give_backs_when_over
from pyggml_server.planner.disk import spill_ahead
from pyggml_server.planner.ordered import park_as_ordered
from pyggml_server.planner.plan import FailContext, Plan, Reason
from pyggml_server.planner.plan_builder import PlanBuilder
from pyggml_server.planner.policy import Policy
from pyggml_server.planner.prompts import admit_prompts
from pyggml_server.planner.restores import restore_line
from pyggml_server.planner.room import make_room_ahead, make_room_for_step
from pyggml_server.planner.rotation import give_head_its_turn, give_prompt_its_turn
from pyggml_server.planner.view import SlotPhase, View

_MAY_FAIL = frozenset({SlotPhase.STARTED, SlotPhase.PROCESSING_PROMPT, SlotPhase.GENERATING, SlotPhase.PREEMPTED})


def decide(view: View, policy: Policy) -> Plan:
    """The orders of this pass. Pure: the same view and policy give the same plan, and nothing is changed.

    `plan.py` says how a plan is carried out. Never raises for want of room: that is a plan too.
    """
    if not policy.is_enabled:
        return Plan.EMPTY
    builder = PlanBuilder(view, policy)
    builder.extend(give_backs_when_over(builder.ledger))
    _fail_misfits(builder)
    park_as_ordered(builder, policy)
    if make_room_for_step(builder, policy):
        make_room_ahead(builder, policy)
        admit_prompts(builder, policy, better_than=builder.ledger.line[:1])
        if give_prompt_its_turn(builder, policy):
            restore_line(builder, policy)
            give_head_its_turn(builder, policy)
        admit_prompts(builder, policy)
        spill_ahead(builder)
    return builder.plan()


def _fail_misfits(builder: PlanBuilder) -> None:
    n_cells = builder.ledger.n_cells
    for slot in builder.ledger.slots():
        if slot.n_cells + slot.n_prompt_left < n_cells:
            continue  # true of nearly all, and quickly told
        if slot.phase in _MAY_FAIL and not slot.has_transfer_in_flight and slot.n_alone_cells > n_cells:
            builder.add(FailContext(slot.slot_id, Reason.CANNOT_FIT_ALONE))
