"""Answers that share a prompt (`n` above 1): what they own together, and that they leave as one or not at all."""

from __future__ import annotations

import pytest
from pyggml_server.planner import Policy, SlotView, decide
from pyggml_server.planner.effects import apply_to
from pyggml_server.planner.ledger import Ledger
from pyggml_server.planner.plan import Action, FailContext, Park, Reason
from pyggml_server.planner.policy import VictimPolicy
from pyggml_server.planner.units import n_owned_cells
from pyggml_server.planner.view import GroupView, SlotPhase, View

from tests.planner.invariants import InvariantError
from tests.planner.model_engine import ModelEngine
from tests.planner.model_pool import Copies, ModelPool, Setup
from tests.planner.model_slot import ModelSlot
from tests.planner.views import generating, idle, orders, parked, prompting, view_of

POLICY = Policy()


def family_and(*others: SlotView, **changes: object) -> View:
    """Slots 1 and 2 share 300 cells and own 10 each, and there are `others`."""
    family = [generating(i, 310, n_cells_owned=10, group_id=7) for i in (1, 2)]
    n_used = 320 + sum(other.n_cells_owned for other in others)
    return view_of(*others, *family, n_cells_used=n_used, groups=(GroupView(7, 320, 320),), **changes)


def after(view: View, *actions: Action) -> Ledger:
    ledger = Ledger(view, POLICY)
    for action in actions:
        apply_to(ledger, action)
    return ledger


def test_the_cells_of_a_member_that_fails_come_off_its_familys_count() -> None:
    left = after(family_and(), FailContext(2, Reason.NOBODY_CAN_BE_PARKED))
    assert left.slot(2) == SlotView(2, SlotPhase.IDLE)
    assert left.n_cells_used == n_owned_cells(left, (left.slot(1),)) == 310


def test_the_park_of_the_one_that_is_left_frees_no_more_than_there_is() -> None:
    fail = FailContext(2, Reason.NOBODY_CAN_BE_PARKED)
    gone = after(family_and(generating(0, 600)), fail, Park(1, Reason.STEP_SHORT))
    assert gone.n_cells_used == 600


def test_the_parks_of_a_family_follow_one_another() -> None:
    """They and another leave for a chunk of 460; the buffer that is given back for it comes before both."""
    coming_in = prompting(4, 200, n_left=460, has_run_since_restore=False)
    chats = (generating(0, 150), generating(3, 330, has_pending_shift=True), idle(5, buffer_bytes=200))
    plan = decide(family_and(*chats, coming_in, ram_limit_bytes=800), POLICY)
    assert orders(plan) == [("GiveBackBuffer", 5), ("Park", 1), ("Park", 2), ("Park", 0)]


@pytest.mark.parametrize("refused", [1, 2])
def test_a_family_of_which_one_could_not_be_parked_stays_whole(refused: int) -> None:
    crowded = family_and(generating(0, 680))
    assert orders(decide(crowded, POLICY)) == [("Park", 1), ("Park", 2)]
    without_it = family_and(generating(0, 680), refused_parks=frozenset({refused}))
    assert orders(decide(without_it, POLICY)) == [("Park", 0)]


def test_a_family_that_leaves_for_a_head_leaves_the_pool_empty() -> None:
    """The head takes 995 of 1000 cells: without eight steps ahead, which nobody is left to ask for."""
    view = family_and(parked(0, 995, at_s=10.0))
    assert orders(decide(view, Policy(rotate_s=30.0))) == [("Park", 1), ("Park", 2), ("Restore", 0)]


def test_a_family_that_outgrows_the_pool_is_split_before_one_of_it_fails() -> None:
    """400 shared and 300 of its own each: together they fill the pool, each fits it alone."""
    family = [generating(i, 700, n_cells_owned=300, group_id=7) for i in (1, 2)]
    crowded = view_of(*family, n_cells_used=1000, groups=(GroupView(7, 1000, 1000),))
    assert decide(crowded, POLICY).actions == (Park(2, Reason.STEP_SHORT, leaves_group=True),)


def test_of_a_family_that_outgrows_pool_and_host_memory_one_is_computed_again() -> None:
    family = [generating(i, 700, n_cells_owned=300, group_id=7, is_park_refusal_known=True) for i in (1, 2)]
    groups = (GroupView(7, 1000, 1000),)
    crowded = view_of(*family, n_cells_used=1000, groups=groups, ram_limit_bytes=699)
    assert orders(decide(crowded, POLICY)) == [("Recompute", 2)]


def test_a_member_that_leaves_takes_its_own_cells_and_shares_nothing_any_more() -> None:
    gone = after(family_and(), Park(2, Reason.STEP_SHORT, leaves_group=True))
    assert (gone.n_cells_used, gone.slot(2).group_id, gone.slot(2).n_cells) == (310, None, 310)
    assert n_owned_cells(gone, (gone.slot(1),)) == 310


@pytest.mark.parametrize("copies", Copies)
@pytest.mark.parametrize("ram_limit", [None, 0, 70])
def test_a_family_that_outgrows_the_pool_finishes_whole(copies: Copies, ram_limit: int | None) -> None:
    """20 tokens of prompt and 60 for each of three in a pool of 100."""
    engine = ModelEngine(Setup(n_cells=100, n_slots=3, copies=copies, ram_limit=ram_limit), Policy(n_lookahead_steps=1))
    engine.submit(20, 60, n=3)
    engine.run_out(2000)
    assert [request.endings for request in engine.requests] == [["finished"]] * 3


def overflow(n_passes: int = 600) -> None:
    """Two chats and two answers to one prompt in a pool for two of them; the park of one answer is refused."""
    setup = Setup(n_cells=100, n_slots=5, n_batch=32, copies=Copies.LATE, kept_share=0.0)
    engine = ModelEngine(setup, Policy(victim=VictimPolicy.OLDEST, n_lookahead_steps=1))
    for n_prompt, n_generate, n in ((26, 51, 1), (22, 50, 1), (5, 49, 2)):
        engine.submit(n_prompt, n_generate, n=n)
    engine.refusals.add(3)
    engine.run_out(n_passes)


def test_half_a_family_in_line_would_come_back_past_who_was_parked_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `Park` says of groups is needed: who parks one member and leaves the other breaks the order of the line."""
    overflow()

    def of_itself_only(pool: ModelPool, slot: ModelSlot) -> set[int]:
        return {slot.slot_id} & pool.refusals

    monkeypatch.setattr(ModelPool, "_refused_of", of_itself_only)
    with pytest.raises(InvariantError) as caught:
        overflow()
    assert caught.value.name == "head of the line"
