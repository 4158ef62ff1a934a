"""Each invariant catches the fault it is there for: a wrapped `decide` breaks one rule, the model engine says which."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyggml_server.planner import Plan, Policy, SlotPhase, View, decide
from pyggml_server.planner.plan import (
    Action,
    DropIdlePrompt,
    FailContext,
    Fetch,
    Forget,
    GiveBackBuffer,
    HoldPrompt,
    Park,
    Reason,
    Recompute,
    Refill,
    Restore,
    Spill,
    TrimStarted,
    WaitForPark,
)
from pyggml_server.planner.policy import VictimPolicy

from tests.planner.invariants import InvariantError
from tests.planner.model_engine import Decide, ModelEngine
from tests.planner.model_pool import Copies, Setup

Change = Callable[[View, Plan], list[Action]]


def first(view: View, *phases: SlotPhase) -> int | None:
    return next((slot.slot_id for slot in view.slots if slot.phase in phases), None)


def changed(change: Change) -> Decide:
    """`decide` with its orders passed through `change`."""

    def decider(view: View, policy: Policy) -> Plan:
        plan = decide(view, policy)
        actions = tuple(change(view, plan))
        return plan if actions == plan.actions else Plan(actions)

    return decider


def without(*kinds: type[Action]) -> Decide:
    return changed(lambda _view, plan: [action for action in plan.actions if not isinstance(action, kinds)])


def run(decider: Decide, setup: Setup | None = None, policy: Policy | None = None, n_slots: int = 4) -> None:
    """Four chats and two late prompts through a pool that holds two of them."""
    setup = setup or Setup(n_cells=100, n_slots=n_slots, n_batch=32, kept_share=0.0)
    engine = ModelEngine(setup, policy or Policy(n_lookahead_steps=1), decider)
    for _ in range(4):
        engine.submit(10, 60)
    for _ in range(40):
        engine.step()
    engine.submit(20, 10)
    engine.submit(20, 10)
    engine.run_out(2000)


def broken(decider: Decide, setup: Setup | None = None, policy: Policy | None = None) -> str:
    with pytest.raises(InvariantError) as caught:
        run(decider, setup, policy)
    return caught.value.name


def repeat(act: Callable[[], None], n_times: int) -> None:
    for _ in range(n_times):
        act()


def test_the_planner_itself_breaks_nothing_on_this_trace() -> None:
    for copies in Copies:
        run(decide, Setup(n_cells=100, n_batch=32, copies=copies))


@pytest.mark.parametrize("copies", Copies)
def test_forgetting_to_park_overcommits_the_pool(copies: Copies) -> None:
    setup = Setup(n_cells=100, n_batch=32, copies=copies, keeps_prompts=False)
    assert broken(without(Park, WaitForPark), setup) == "cells are never overcommitted"


def test_decoding_during_a_park_that_has_not_freed_its_cells_overcommits_the_pool() -> None:
    setup = Setup(n_cells=100, n_batch=32, copies=Copies.LATE, n_passes_per_copy=30, keeps_prompts=False)
    assert broken(without(WaitForPark), setup) == "cells are never overcommitted"


def test_giving_promised_cells_to_others_overcommits_the_pool() -> None:
    def forgetful(view: View, policy: Policy) -> Plan:
        """Knows of no restore whose state is on its way to staging memory."""
        promised = [s for s in view.slots if s.phase is SlotPhase.RESTORING]
        slots = tuple(replace(s, n_cells_owned=0) if s in promised else s for s in view.slots)
        n_used = view.n_cells_used - sum(s.n_cells_owned for s in promised)
        return decide(replace(view, slots=slots, n_cells_used=n_used), policy)

    setup = Setup(n_cells=100, n_batch=32, copies=Copies.STAGED, n_passes_per_copy=6)
    assert broken(forgetful, setup) == "cells are never overcommitted"


def restore_everybody(view: View, plan: Plan) -> list[Action]:
    return [
        *plan.actions,
        *(Restore(s.slot_id, Reason.HEAD_OF_LINE) for s in view.slots if s.phase is SlotPhase.PREEMPTED),
    ]


def test_restoring_without_room_overcommits_the_pool() -> None:
    def change(view: View, plan: Plan) -> list[Action]:
        return plan_or(view, plan, lambda: restore_everybody(view, Plan.EMPTY))

    assert broken(changed(change)) == "cells are never overcommitted"


def plan_or(view: View, plan: Plan, other: Callable[[], list[Action]]) -> list[Action]:
    """The plan, unless it is empty while somebody waits: then the other."""
    is_waiting = any(slot.phase is SlotPhase.PREEMPTED for slot in view.slots)
    return other() if is_waiting and not plan.actions else list(plan.actions)


def test_parking_and_restoring_one_slot_in_a_plan_is_caught() -> None:
    def change(_view: View, plan: Plan) -> list[Action]:
        return [*plan.actions, *(Restore(a.slot_id, a.reason) for a in plan.actions if isinstance(a, Park))]

    assert broken(changed(change)) == "no slot both parked and restored"


def test_parking_a_slot_that_is_parked_is_caught() -> None:
    def change(view: View, plan: Plan) -> list[Action]:
        slot_id = first(view, SlotPhase.PREEMPTED)
        return list(plan.actions) if slot_id is None else [Park(slot_id, Reason.FORCED)]

    assert broken(changed(change)) == "no slot both parked and restored"


@pytest.mark.parametrize(("kind", "name"), [(Park, "no slot parked twice"), (Restore, "no slot restored twice")])
def test_ordering_the_same_thing_twice_is_caught(kind: type[Action], name: str) -> None:
    def change(_view: View, plan: Plan) -> list[Action]:
        return [*plan.actions, *(action for action in plan.actions if isinstance(action, kind))]

    assert broken(changed(change)) == name


def test_failing_a_request_that_has_ended_is_caught() -> None:
    def change(view: View, plan: Plan) -> list[Action]:
        slot_id = first(view, SlotPhase.IDLE)
        gone = [] if slot_id is None or not plan.actions else [FailContext(slot_id, Reason.NOBODY_CAN_BE_PARKED)]
        return [*plan.actions, *gone]

    setup = Setup(n_cells=100, n_slots=6, n_batch=32)
    assert broken(changed(change), setup) == "every request ends exactly once"


def test_passing_the_head_of_the_line_is_caught() -> None:
    def change(view: View, plan: Plan) -> list[Action]:
        line = [s for s in view.waiting() if s.phase is SlotPhase.PREEMPTED]
        return [
            Restore(line[-1].slot_id, a.reason) if isinstance(a, Restore) and len(line) > 1 else a for a in plan.actions
        ]

    assert broken(changed(change)) == "head of the line"


def test_letting_new_prompts_overtake_is_caught() -> None:
    def change(_view: View, plan: Plan) -> list[Action]:
        overtaking = (Reason.HEAD_WAITS, Reason.BEHIND_PROMPT)
        return [a for a in plan.actions if not (isinstance(a, HoldPrompt) and a.reason in overtaking)]

    setup = Setup(n_cells=100, n_slots=6, n_batch=32, kept_share=0.0)
    assert broken(changed(change), setup) == "new prompts do not overtake"


def test_ignoring_the_budget_is_caught() -> None:
    def spendthrift(view: View, policy: Policy) -> Plan:
        return decide(replace(view, ram_limit_bytes=None), policy)

    setup = Setup(n_cells=100, n_batch=32, ram_limit=30)
    assert broken(spendthrift, setup) == "RAM is never over budget"


def test_giving_back_a_buffer_that_holds_a_state_is_caught() -> None:
    def change(view: View, plan: Plan) -> list[Action]:
        slot_id = first(view, SlotPhase.PREEMPTED)
        return list(plan.actions) if slot_id is None else [GiveBackBuffer(slot_id, Reason.OVER_BUDGET), *plan.actions]

    assert broken(changed(change)) == "no buffer that holds a state is given back"


def test_memory_that_outlives_its_request_is_caught() -> None:
    engine = ModelEngine(Setup(), Policy())
    engine.submit(5, 5)
    engine.run_out(100)
    engine.slots[0].buffer_bytes = 1
    with pytest.raises(InvariantError, match="RAM is zero at the end"):
        engine.run_out(1)


def test_parking_a_restored_slot_before_it_ran_is_caught() -> None:
    def forgetful(view: View, policy: Policy) -> Plan:
        """Knows of no restore, and keeps no lookahead: with late copies it parks whom it has just restored."""
        slots = tuple(replace(slot, has_run_since_restore=True) for slot in view.slots)
        completed = [s.slot_id for s in view.slots if not s.has_run_since_restore and not s.has_transfer_in_flight]
        if completed and view.slot(completed[0]).phase is SlotPhase.GENERATING:
            return Plan((Park(completed[0], Reason.STEP_SHORT),))
        return decide(replace(view, slots=slots), policy)

    setup = Setup(n_cells=100, n_batch=32, copies=Copies.LATE)
    assert broken(forgetful, setup) == "no park-restore-park without a token between"


def test_parking_the_last_resident_for_want_of_room_is_caught() -> None:
    def change(view: View, plan: Plan) -> list[Action]:
        residents = list(view.residents())
        if len(residents) == 1 and view.waiting() and residents[0].phase is SlotPhase.GENERATING:
            return [Park(residents[0].slot_id, Reason.STEP_SHORT)]
        return list(plan.actions)

    assert broken(changed(change), Setup(n_cells=75, n_batch=32)) == "the last resident is not parked"


def test_parking_a_sequence_with_an_unapplied_shift_is_caught() -> None:
    def blind(view: View, policy: Policy) -> Plan:
        return decide(replace(view, slots=tuple(replace(s, has_pending_shift=False) for s in view.slots)), policy)

    engine = ModelEngine(Setup(n_cells=60, n_slots=2), Policy(), blind)
    for _ in range(2):
        engine.submit(10, 40)

    def shift_everybody_and_step() -> None:
        for slot in engine.slots:
            slot.has_pending_shift = slot.phase is SlotPhase.GENERATING
        engine.step()

    with pytest.raises(InvariantError, match="an unapplied shift is not parked"):
        repeat(shift_everybody_and_step, n_times=60)


def test_computing_somebody_again_who_could_be_parked_is_caught() -> None:
    def change(_view: View, plan: Plan) -> list[Action]:
        return [Recompute(a.slot_id, a.reason) if isinstance(a, Park) else a for a in plan.actions]

    assert broken(changed(change)) == "only what host memory cannot hold is computed again"


def test_computing_a_slot_again_before_it_is_back_is_caught() -> None:
    def impatient(view: View, policy: Policy) -> Plan:
        back = [s.slot_id for s in view.residents() if not s.has_run_since_restore]
        return Plan((Recompute(back[0], Reason.STEP_SHORT),)) if back else decide(view, policy)

    setup = Setup(n_cells=100, n_batch=8, ram_limit=0)
    assert broken(impatient, setup) == "nobody is computed again without a token between"


def test_restoring_a_state_that_was_never_saved_is_caught() -> None:
    def change(_view: View, plan: Plan) -> list[Action]:
        return [Restore(a.slot_id, a.reason) if isinstance(a, Refill) else a for a in plan.actions]

    assert broken(changed(change), Setup(n_cells=100, n_batch=32, ram_limit=0)) == "only what was saved is restored"


def test_computing_a_saved_state_again_is_caught() -> None:
    def change(_view: View, plan: Plan) -> list[Action]:
        return [Refill(a.slot_id, a.reason) if isinstance(a, Restore) else a for a in plan.actions]

    assert broken(changed(change)) == "only dropped slots are computed again"


@pytest.mark.parametrize(
    ("policy", "ram_limit", "name"),
    [
        (Policy(n_preempt_every=5), 0, "a refused park is told once"),
        (Policy(rotate_s=5.0), 60, "a refused turn is told once"),
    ],
)
def test_telling_a_refusal_in_every_pass_is_caught(policy: Policy, ram_limit: int, name: str) -> None:
    def forgetful(view: View, policy: Policy) -> Plan:
        slots = (replace(s, is_park_refusal_known=False, is_rotation_refusal_known=False) for s in view.slots)
        return decide(replace(view, slots=tuple(slots)), policy)

    assert broken(forgetful, Setup(n_cells=100, n_batch=32, ram_limit=ram_limit), policy) == name


def test_a_plan_that_depends_on_sizes_without_parking_is_caught() -> None:
    def counts_bytes(view: View, policy: Policy) -> Plan:
        plan = decide(view, policy)
        drops = [slot for slot in view.slots if slot.phase is SlotPhase.GENERATING and slot.state_bytes > 40]
        return Plan((HoldPrompt(drops[0].slot_id, Reason.OVER_BUDGET), *plan.actions)) if drops else plan

    setup = Setup(n_cells=1000, n_batch=32, ram_limit=1000)
    assert broken(counts_bytes, setup, Policy(n_preempt_every=1000)) == "sizes matter to parks only"


def test_waiting_for_a_slot_that_does_not_leave_is_caught() -> None:
    def change(view: View, plan: Plan) -> list[Action]:
        slot_id = first(view, SlotPhase.GENERATING)
        return [WaitForPark(slot_id or 0, Reason.STEP_SHORT)] if plan.actions else []

    assert broken(changed(change)) == "a wait names a copy in flight"


def test_cutting_a_slot_that_runs_is_caught() -> None:
    def change(view: View, plan: Plan) -> list[Action]:
        slot_id = first(view, SlotPhase.GENERATING)
        return [*plan.actions, TrimStarted(slot_id or 0, Reason.STEP_SHORT, 0)] if plan.actions else []

    assert broken(changed(change)) == "only started slots are trimmed"


def test_touching_a_slot_under_a_running_copy_is_caught() -> None:
    def change(view: View, plan: Plan) -> list[Action]:
        moving = next((slot.slot_id for slot in view.slots if slot.has_transfer_in_flight), None)
        return list(plan.actions) if moving is None else [FailContext(moving, Reason.NOBODY_CAN_BE_PARKED)]

    setup = Setup(n_cells=100, n_batch=32, copies=Copies.LATE)
    assert broken(changed(change), setup) == "nothing is done to a slot under a running copy"


def test_dropping_the_cells_of_a_live_slot_is_caught() -> None:
    def change(view: View, plan: Plan) -> list[Action]:
        slot_id = first(view, SlotPhase.GENERATING)
        return [*plan.actions, DropIdlePrompt(slot_id or 0, Reason.STEP_SHORT)] if plan.actions else []

    assert broken(changed(change)) == "only idle prompts are dropped"


def test_ordering_something_when_nothing_is_short_is_caught() -> None:
    def change(view: View, plan: Plan) -> list[Action]:
        slot_id = first(view, SlotPhase.STARTED)
        return list(plan.actions) if slot_id is None else [HoldPrompt(slot_id, Reason.HEAD_WAITS)]

    assert broken(changed(change)) == "empty plan when nothing is short"


def test_acting_after_a_wait_is_caught() -> None:
    def change(_view: View, plan: Plan) -> list[Action]:
        return sorted(plan.actions, key=lambda action: not isinstance(action, WaitForPark))

    setup = Setup(n_cells=100, n_batch=32, copies=Copies.LATE)
    assert broken(changed(change), setup, Policy(n_lookahead_steps=0)) == "a wait is the last action"


def test_never_restoring_anybody_is_a_livelock() -> None:
    assert broken(without(Restore)) == "liveness"


def a_family_gets_its_slots_late(decider: Decide) -> ModelEngine:
    """It waits for three slots in line. Who came behind it gets one before, and a chat is parked for him; the short
    chats end during that copy, so that the family is there too before he has begun."""
    setup = Setup(n_cells=36, n_slots=5, n_batch=128, copies=Copies.LATE, n_passes_per_copy=6, kept_share=1.0)
    engine = ModelEngine(setup, Policy(victim=VictimPolicy.OLDEST, n_lookahead_steps=0), decider)
    for n_prompt, n_generate in ((20, 17), (3, 5), (3, 5)):
        engine.submit(n_prompt, n_generate)
    repeat(engine.step, n_times=2)
    engine.submit(27, 2, n=3)
    engine.submit(22, 3)
    engine.run_out(500)
    return engine


def test_a_prompt_behind_a_family_that_got_its_slots_later_is_a_livelock() -> None:
    """The family waits for the parked chat, that for the prompt for which it was parked, and this for the family."""

    def change(view: View, plan: Plan) -> list[Action]:
        """First come, first served: whoever is behind one that is held is held too."""
        line = sorted((s for s in view.slots if s.phase is SlotPhase.STARTED), key=lambda s: s.request_order)
        is_held = [slot.slot_id in plan.held_prompts for slot in line]
        behind = [slot.slot_id for i, slot in enumerate(line) if any(is_held[:i]) and not is_held[i]]
        return [*plan.actions, *(HoldPrompt(slot_id, Reason.BEHIND_PROMPT) for slot_id in behind)]

    assert a_family_gets_its_slots_late(decide).families_passed == {4}
    with pytest.raises(InvariantError) as caught:
        a_family_gets_its_slots_late(changed(change))
    assert caught.value.name == "liveness"


def test_looking_again_for_ever_is_a_livelock() -> None:
    def change(view: View, plan: Plan) -> list[Action]:
        leaving = first(view, SlotPhase.PREEMPTING)
        if leaving is None:
            return list(plan.actions)
        return [WaitForPark(leaving, Reason.STEP_SHORT)]

    class NeverCompletes(ModelEngine):
        def _complete(self, slot: object) -> None:
            """A wait that returns too early."""

    engine = NeverCompletes(Setup(n_cells=100, n_batch=32, copies=Copies.LATE), Policy(), changed(change))
    for _ in range(4):
        engine.submit(10, 60)
    with pytest.raises(InvariantError, match="looks again for ever"):
        engine.run_out(500)


def test_a_request_that_ends_twice_is_caught() -> None:
    engine = ModelEngine(Setup(), Policy())
    request = engine.submit(5, 5)
    engine.run_out(100)
    request.endings.append("failed")
    with pytest.raises(InvariantError, match="every request ends exactly once"):
        engine.run_out(1)


def ordering_too(kind: Callable[[int, Reason], Action], phase: SlotPhase) -> Decide:
    """`decide`, and once somebody is parked this order for a slot of that phase without a copy or another order."""

    def change(view: View, plan: Plan) -> list[Action]:
        ordered = {action.slot_id for action in plan.actions}
        free = (s for s in view.slots if s.phase is phase and not s.has_transfer_in_flight and s.slot_id not in ordered)
        slot = next(free, None) if first(view, SlotPhase.PREEMPTED) is not None else None
        return [*plan.actions, kind(slot.slot_id, Reason.NEXT_PARK)] if slot else list(plan.actions)

    return changed(change)


DISK = Setup(n_cells=100, n_batch=32, kept_share=0.0, ram_limit=500, disk_limit=500)


@pytest.mark.parametrize(
    ("kind", "phase", "setup", "name"),
    [
        (Spill, SlotPhase.GENERATING, DISK, "only a whole parked state goes to a file"),
        (Spill, SlotPhase.PREEMPTED, replace(DISK, disk_limit=0), "the disk is never over its limit"),
        (Fetch, SlotPhase.PREEMPTED, DISK, "only what is in a file is read"),
        (Forget, SlotPhase.PREEMPTED, DISK, "only what host memory cannot take back is given up"),
    ],
)
def test_a_file_that_no_rule_asks_for_is_caught(
    kind: Callable[[int, Reason], Action], phase: SlotPhase, setup: Setup, name: str
) -> None:
    assert broken(ordering_too(kind, phase), setup) == name


def names_of_invariants() -> set[str]:
    """The second argument of every `require` in the model and among the invariants."""
    folder = Path(__file__).parent
    trees = (ast.parse(path.read_text()) for path in (*folder.glob("model_*.py"), folder / "invariants.py"))
    calls = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {
        ast.literal_eval(call.args[1])
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "require"
    }


def test_every_invariant_has_a_fault_that_it_catches() -> None:
    """The list of plants is this file: each name stands in it as a test expects it."""
    strings = {node.value for node in ast.walk(ast.parse(Path(__file__).read_text())) if isinstance(node, ast.Constant)}
    unplanted = {name for name in names_of_invariants() if not any(name in str(string) for string in strings)}
    assert len(names_of_invariants()) >= 20
    assert unplanted == set()
