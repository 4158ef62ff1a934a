"""Moments of a full pool in which `decide` has to think, for any number of slots. Nothing here measures.

In each of them something is held. The same question comes back pass after pass, so its cost is paid for each token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyggml_server.planner import Policy, SlotView, View

from tests.planner.views import generating, idle, parked, prompting, started, view_of

N_CELLS_EACH = 1000
POLICY = Policy(rotate_s=30.0)


def calm(n_slots: int) -> View:
    """Everybody generates, and there is room."""
    return _pool([_chat(i) for i in range(n_slots)], n_free=100 * n_slots)


def calm_with_late_copies(n_slots: int) -> View:
    """The same where parks free cells late, so that the steps ahead are counted."""
    return _pool([_chat(i, frees_on_completion=True) for i in range(n_slots)], n_free=100 * n_slots)


def a_prompt_for_which_all_would_have_to_leave(n_slots: int) -> View:
    """It waits until residents end."""
    slots = [_chat(i) for i in range(n_slots - 1)]
    return _pool([*slots, _prompt(n_slots - 1, N_CELLS_EACH * (n_slots - 1))], n_free=n_slots)


def a_prompt_that_host_memory_refuses(n_slots: int) -> View:
    """Parking some would make its room, and the budget holds none of them."""
    slots = [_chat(i, is_park_refusal_known=True) for i in range(n_slots - 1)]
    return _pool([*slots, _prompt(n_slots - 1, 3 * N_CELLS_EACH)], n_free=n_slots, ram_limit_bytes=N_CELLS_EACH // 2)


def the_same_before_sizes_are_asked_for(n_slots: int) -> View:
    """The engine's first look: sizes of residents are left out, so the budget seems to hold them."""
    view = a_prompt_that_host_memory_refuses(n_slots)
    return replace(view, slots=tuple(replace(slot, state_bytes=0) for slot in view.slots))


def a_prompt_behind_a_parked_head(n_slots: int) -> View:
    """Half of all slots are parked, and the head does not fit."""
    n_resident = n_slots // 2
    slots = [_chat(i) for i in range(n_resident)]
    line = [parked(i, N_CELLS_EACH, at_s=80.0) for i in range(n_resident, n_slots - 1)]
    return _pool([*slots, *line, _prompt(n_slots - 1, 100)], n_free=n_slots)


def many_prompts(n_slots: int) -> View:
    """Half of all slots run, half hold a prompt that does not fit: the first waits, the others wait behind it."""
    n_resident = n_slots // 2
    slots = [_chat(i) for i in range(n_resident)]
    prompts = [_prompt(i, N_CELLS_EACH * n_resident) for i in range(n_resident, n_slots)]
    return _pool([*slots, *prompts], n_free=n_slots)


def a_turn_that_host_memory_refuses(n_slots: int) -> View:
    """The head has waited for its turn; the budget holds no state but the parked ones."""
    n_resident = n_slots // 2
    slots = [_chat(i) for i in range(n_resident)]
    line = [parked(i, N_CELLS_EACH, at_s=1.0, is_rotation_refusal_known=True) for i in range(n_resident, n_slots)]
    return _pool([*slots, *line], n_free=n_slots, ram_limit_bytes=N_CELLS_EACH * len(line))


def cached_prompts(n_slots: int) -> View:
    """Half of all slots are idle and keep their prompts, half process prompts of their own."""
    half = n_slots // 2
    slots = [prompting(i, N_CELLS_EACH, n_left=400) for i in range(half)]
    return _pool([*slots, *(idle(i, N_CELLS_EACH) for i in range(half, n_slots))], n_free=1000 * n_slots)


SCENES: tuple[Callable[[int], View], ...] = (
    calm,
    calm_with_late_copies,
    a_prompt_for_which_all_would_have_to_leave,
    a_prompt_that_host_memory_refuses,
    the_same_before_sizes_are_asked_for,
    a_prompt_behind_a_parked_head,
    many_prompts,
    a_turn_that_host_memory_refuses,
    cached_prompts,
)


def _chat(slot_id: int, **changes: object) -> SlotView:
    return generating(slot_id, N_CELLS_EACH, **changes)


def _prompt(slot_id: int, n_tokens: int) -> SlotView:
    return started(slot_id, n_tokens, started_at_s=90.0)


def _pool(slots: list[SlotView], n_free: int, **changes: object) -> View:
    view = view_of(*slots, **changes)
    n_largest = max(slot.n_alone_cells for slot in slots)
    return view_of(*slots, n_cells=max(view.n_cells_used + n_free, n_largest), **changes)
