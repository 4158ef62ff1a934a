"""Each plan is compared with the cheapest one: in small views every set of residents is looked at.

The reference is written from the rules, on bare numbers: it knows nothing of `choice.py`. Under the same rules a plan
never parks more than needed, and computes nobody again where a set of parks would do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyggml_server.planner import Plan, Policy, SlotPhase, SlotView, View, decide
from pyggml_server.planner.plan import Park, Recompute, RefuseRotation, Restore
from pyggml_server.planner.policy import VictimPolicy

from tests.planner.views import generating, parked, prompting, started, view_of

#: Every set of units is tried for each example, which takes long. `deep` has 2,000.
FEWER = settings(max_examples=max(40, settings().max_examples // 5))

Set = tuple[SlotView, ...]

POLICY = Policy()
ROTATING = Policy(rotate_s=30.0)

sizes = st.integers(1, 500)
limits = st.one_of(st.none(), st.integers(0, 1500))


@st.composite
def residents(draw: st.DrawFn) -> list[SlotView]:
    """Two to five that run: most of them generate, all of them came in at different times."""
    slots: list[SlotView] = []
    for slot_id in range(draw(st.integers(2, 5))):
        n_cells, n_left = draw(sizes), draw(st.sampled_from([0, 0, 0, 40, 400]))
        changes = {
            "resident_since_s": float(draw(st.integers(0, 90))),
            "request_order": slot_id,
            "buffer_bytes": draw(st.sampled_from([0, 0, n_cells // 2])),
            "has_pending_shift": draw(st.integers(0, 9)) == 0,
        }
        slot = prompting(slot_id, n_cells, n_left, **changes) if n_left else generating(slot_id, n_cells, **changes)
        slots.append(slot)
    return slots


def n_step_short(staying: Sequence[SlotView], n_other_cells: int, n_pool: int, n_batch: int = 512) -> int:
    """Rule 2 and 3 from the bare slots."""
    chunks = sum(slot.n_step_cells for slot in staying if slot.n_prompt_left and not slot.is_media_step)
    steps = sum(slot.n_step_cells for slot in staying if not slot.n_prompt_left or slot.is_media_step)
    owned = sum(slot.n_cells_owned for slot in staying if slot.phase is not SlotPhase.STARTED)
    return owned + n_other_cells + steps + min(chunks, n_batch) - n_pool


def sets_of(slots: Sequence[SlotView]) -> list[Set]:
    return [chosen for n in range(1, len(slots) + 1) for chosen in combinations(slots, n)]


def fits(view: View, chosen: Set) -> bool:
    """Rule 8: the states of all of these, besides what is held for good; idle buffers of others are given back."""
    if view.ram_limit_bytes is None:
        return True
    running = (SlotPhase.GENERATING, SlotPhase.PROCESSING_PROMPT)
    n_idle = sum(slot.buffer_bytes for slot in view.slots if slot.phase in running)
    n_taken = sum(max(slot.state_bytes, slot.buffer_bytes) for slot in chosen)
    return view.ram_held_bytes - n_idle + n_taken <= view.ram_limit_bytes


def cheapest(allowed: Sequence[Set], n_short: int) -> Set | None:
    """Rule 5: one that covers the shortage, else one whose own step ends it, else as few as possible; then the fewest
    cells."""

    def cost(chosen: Set) -> tuple[int, bool, int]:
        n_cells = sum(slot.n_cells_owned for slot in chosen)
        return (len(chosen), len(chosen) == 1 and n_cells < n_short, n_cells)

    return min(allowed, key=cost, default=None)


def n_bytes_parked(plan: Plan, view: View) -> int:
    return sum(view.slot(action.slot_id).state_bytes for action in plan.actions if isinstance(action, Park))


def n_computed_again(plan: Plan) -> int:
    return sum(isinstance(action, Recompute) for action in plan.actions)


def compare(plan: Plan, view: View, best: Set | None) -> None:
    if best is not None:
        assert n_computed_again(plan) == 0, plan.actions
        assert n_bytes_parked(plan, view) == sum(slot.state_bytes for slot in best), (plan.actions, best)


def parkable(slots: Sequence[SlotView]) -> list[SlotView]:
    return [slot for slot in slots if not slot.has_pending_shift]


@FEWER
@given(slots=residents(), n_free=st.integers(0, 60), limit=limits)
def test_room_for_a_step_is_made_by_the_cheapest_set_of_parks(slots: list[SlotView], n_free: int, limit: int) -> None:
    n_pool = sum(slot.n_cells for slot in slots) + n_free
    assume(all(slot.n_alone_cells <= n_pool for slot in slots))
    view = view_of(*slots, n_cells=n_pool, ram_limit_bytes=limit)
    n_short = n_step_short(slots, 0, n_pool)
    assume(n_short > 0 and (limit is None or view.ram_held_bytes <= limit))
    allowed = [
        chosen
        for chosen in sets_of(parkable(slots))
        if len(chosen) < len(slots)
        and fits(view, chosen)
        and n_step_short([slot for slot in slots if slot not in chosen], 0, n_pool) <= 0
    ]
    compare(decide(view, POLICY), view, cheapest(allowed, n_short))


@FEWER
@given(slots=residents(), n_free=st.integers(0, 300), n_prompt=st.integers(1, 500), limit=limits)
def test_room_for_a_prompt_is_made_by_the_cheapest_set_of_parks(
    slots: list[SlotView], n_free: int, n_prompt: int, limit: int
) -> None:
    n_pool = sum(slot.n_cells + slot.n_step_cells for slot in slots) + n_free
    prompt = started(9, n_prompt, n_step_cells=min(n_prompt, 512))
    assume(n_prompt <= n_pool and all(slot.n_alone_cells <= n_pool for slot in slots))
    view = view_of(*slots, prompt, n_cells=n_pool, ram_limit_bytes=limit)
    n_short = n_step_short([*slots, prompt], 0, n_pool)
    assume(n_short > 0 and n_step_short(slots, 0, n_pool) <= 0)
    assume(limit is None or view.ram_held_bytes <= limit)

    def allowed_for(want: SlotView) -> list[Set]:
        return [
            chosen
            for chosen in sets_of(parkable(slots))
            if len(chosen) < len(slots)
            and fits(view, chosen)
            and n_step_short([*(slot for slot in slots if slot not in chosen), want], 0, n_pool) <= 0
        ]

    plan = decide(view, POLICY)
    assert n_computed_again(plan) == 0
    if allowed_for(prompt.as_whole()):
        compare(plan, view, cheapest(allowed_for(prompt), n_short))
    else:
        assert n_bytes_parked(plan, view) == 0


@FEWER
@given(slots=residents(), n_free=st.integers(0, 300), n_head=st.integers(1, 500), limit=limits)
def test_a_turn_costs_the_cheapest_set_of_the_longest_residents(
    slots: list[SlotView], n_free: int, n_head: int, limit: int
) -> None:
    """Rule 7, and 8 before it: of the first of the longest residents who could make the room, the fewest."""
    n_pool = sum(slot.n_cells + slot.n_step_cells for slot in slots) + n_free
    head = parked(9, n_head, at_s=1.0)
    assume(all(slot.n_alone_cells <= n_pool for slot in [*slots, head]))
    view = view_of(*slots, head, n_cells=n_pool, ram_limit_bytes=limit)
    assume(limit is None or view.ram_held_bytes <= limit)

    def is_enough(chosen: Set) -> bool:
        staying = [*(slot for slot in slots if slot not in chosen), head]
        n_next = sum(max(slot.n_step_cells, slot.n_prompt_left) + slot.n_cells for slot in staying)
        n_ahead = 8 * len(staying) if len(staying) > 1 else 0
        return n_next + n_ahead <= n_pool

    assume(not is_enough(()))
    had_turn = sorted(
        (slot for slot in parkable(slots) if 100 - slot.resident_since_s >= 30),
        key=lambda slot: (slot.resident_since_s, slot.slot_id),
    )
    best = first_of_prefixes(had_turn, lambda chosen: is_enough(chosen) and fits(view, chosen))
    plan = decide(view, ROTATING)
    compare(plan, view, best)
    if best is not None:
        assert any(isinstance(action, Restore) for action in plan.actions)
    elif n_computed_again(plan) == 0:
        assert n_bytes_parked(plan, view) == 0
        could = first_of_prefixes(had_turn, is_enough) is not None
        assert could == any(isinstance(action, RefuseRotation) for action in plan.actions)


def first_of_prefixes(line: Sequence[SlotView], is_allowed: Callable[[Set], bool]) -> Set | None:
    for n in range(1, len(line) + 1):
        best = cheapest([chosen for chosen in sets_of(line[:n]) if is_allowed(chosen)], n_short=0)
        if best is not None:
            return best
    return None


@FEWER
@given(slots=residents(), n_free=st.integers(0, 60), limit=st.integers(0, 400))
def test_as_few_as_possible_are_computed_again_where_parks_alone_do_not_help(
    slots: list[SlotView], n_free: int, limit: int
) -> None:
    n_pool = sum(slot.n_cells for slot in slots) + n_free
    assume(all(slot.n_alone_cells <= n_pool for slot in slots))
    view = view_of(*slots, n_cells=n_pool, ram_limit_bytes=limit)
    assume(n_step_short(slots, 0, n_pool) > 0 and view.ram_held_bytes <= limit)

    def is_enough(chosen: Set) -> bool:
        return len(chosen) < len(slots) and n_step_short([s for s in slots if s not in chosen], 0, n_pool) <= 0

    enough = [chosen for chosen in sets_of(parkable(slots)) if is_enough(chosen)]
    assume(enough)
    n_fewest = min(
        len(chosen) - max((len(kept) for kept in [(), *sets_of(chosen)] if fits(view, kept)), default=0)
        for chosen in enough
    )
    assert n_computed_again(decide(view, POLICY)) == n_fewest


@FEWER
@given(slots=residents(), n_free=st.integers(0, 30), victim=st.sampled_from(VictimPolicy))
def test_nobody_is_parked_whose_stay_would_do_whatever_the_policy(
    slots: list[SlotView], n_free: int, victim: VictimPolicy
) -> None:
    n_pool = sum(slot.n_cells for slot in slots) + n_free
    assume(all(slot.n_alone_cells <= n_pool for slot in slots))
    plan = decide(view_of(*slots, n_cells=n_pool), Policy(victim=victim))
    left = {action.slot_id for action in plan.actions if isinstance(action, Park)}
    for slot in slots:
        if slot.slot_id in left:
            staying = [other for other in slots if other.slot_id not in left or other is slot]
            assert n_step_short(staying, 0, n_pool) > 0
