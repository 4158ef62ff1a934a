"""How many cells are missing, and for what (rules 2, 3 and 6). Arithmetic only.

A `Shortage` is kept as sums, so that it is quick to tell what is left of it once somebody leaves: no view is built for
the question.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pyggml_server.planner.ledger import Ledger
from pyggml_server.planner.policy import Policy
from pyggml_server.planner.units import Unit, n_return_cells
from pyggml_server.planner.view import SlotView


class Share(NamedTuple):
    """What goes from a shortage when a unit leaves: its cells and steps, its prompt chunk, its steps ahead."""

    n_cells: int
    n_chunk_cells: int = 0
    n_ahead_cells: int = 0

    @property
    def n_most_cells(self) -> int:
        """The most by which the shortage can shrink."""
        return self.n_cells + self.n_chunk_cells + self.n_ahead_cells


@dataclass(frozen=True, slots=True)
class Shortage:
    """Cells asked for, less those that may be used. Above 0 there are too few.

    n_cells          all but what follows; below 0 when there is room.
    n_chunk_cells    prompt chunks. They share a batch: they take at most `n_chunk_most` together.
    n_ahead_cells    steps ahead, waived once none of these `n_runners` slots runs.
    is_for_whole     prompts count whole (rule 6), and the steps ahead of each slot with them.
    n_steps_ahead    steps ahead that a leaving slot no longer asks for (rule 3: of those that free cells late).
    """

    n_cells: int
    n_chunk_cells: int = 0
    n_chunk_most: int = 0
    n_ahead_cells: int = 0
    n_runners: int = 1
    is_for_whole: bool = False
    n_steps_ahead: int = 0

    @property
    def n_short(self) -> int:
        return self.n_short_without(0, 0, 0, 0)

    def n_short_without(self, n_cells: int, n_chunk_cells: int, n_ahead_cells: int, n_leaving: int) -> int:
        """What is short once `n_leaving` slots have left, with shares of these sums."""
        n_ahead = self.n_ahead_cells - n_ahead_cells if self.n_runners > n_leaving else 0
        return self.n_cells - n_cells + min(self.n_chunk_cells - n_chunk_cells, self.n_chunk_most) + n_ahead

    def share_of(self, unit: Unit, n_owned_cells: int) -> Share:
        """What the unit takes off when it leaves with the cells that it owns."""
        n_cells, n_chunk_cells, n_ahead_cells = n_owned_cells, 0, 0
        for slot in unit:
            if self.is_for_whole:
                n_cells += max(slot.n_step_cells, slot.n_prompt_left)
                n_ahead_cells += self.n_steps_ahead * slot.n_decode_step_cells
                continue
            if slot.n_prompt_left and not slot.is_media_step:
                n_chunk_cells += slot.n_step_cells
            else:
                n_cells += slot.n_step_cells
            if slot.frees_on_completion:
                n_cells += self.n_steps_ahead * slot.n_decode_step_cells
        return Share(n_cells, n_chunk_cells, n_ahead_cells)


def step_shortage(ledger: Ledger, extra: Iterable[SlotView] = (), n_more_cells: int = 0) -> Shortage:
    """Cells missing for the next step of every resident and of the `extra` slots; `n_more_cells` can be had as well."""
    n_steps, n_chunks = ledger.n_step_cells, ledger.n_chunk_cells
    for slot in extra:
        if slot.n_prompt_left and not slot.is_media_step:
            n_chunks += slot.n_step_cells
        else:
            n_steps += slot.n_step_cells
    n_cells = ledger.n_cells_used + n_steps - ledger.n_cells_usable - n_more_cells
    return Shortage(n_cells, n_chunks, ledger.n_batch_tokens)


def lookahead_shortage(ledger: Ledger, policy: Policy) -> Shortage:
    """Cells missing for the steps ahead, where parks free cells late; cells about to come free count as free."""
    if not ledger.n_late_decode_cells:
        return Shortage(0)
    step = step_shortage(ledger, ledger.promised)
    n_coming = sum(slot.n_cells_owned for slot in ledger.parks_in_flight)
    n_ahead = policy.n_lookahead_steps * ledger.n_late_decode_cells
    return Shortage(
        step.n_cells - n_coming + n_ahead,
        step.n_chunk_cells,
        ledger.n_batch_tokens,
        n_steps_ahead=policy.n_lookahead_steps,
    )


def restore_shortage(ledger: Ledger, unit: Unit, policy: Policy, n_more_cells: int = 0) -> Shortage:
    """Cells missing to admit a parked unit. The steps ahead are waived when it will have the pool to itself.

    Prompts on their way in count whole: if a unit came in with half a prompt, it would leave for the other half.
    """
    return _entry_shortage(ledger, unit, n_return_cells(ledger, unit), policy, n_more_cells)


def passing_shortage(ledger: Ledger, prompt: SlotView, policy: Policy) -> Shortage:
    """Cells missing to let a started prompt in as a parked one comes in: whole, with the steps ahead of everybody."""
    return _entry_shortage(ledger, (prompt,), 0, policy, ledger.n_reclaimable_cells)


def head_shortage_after_prompts(ledger: Ledger, head: Unit, prompt: SlotView, policy: Policy) -> int:
    """Cells missing to admit the head once this prompt is in, and those that run already: each of them may leave the
    head its room, but not all."""
    n_used = ledger.n_cells_used + ledger.n_left_tokens + prompt.n_prompt_left
    n_steps = ledger.n_step_cells + ledger.n_chunk_cells - ledger.n_prompt_step_cells + ledger.n_prompt_decode_cells
    n_decode = ledger.n_decode_cells + prompt.n_decode_step_cells
    for slot in ledger.promised:
        if slot.slot_id != prompt.slot_id:
            n_steps += max(slot.n_step_cells, slot.n_prompt_left)
            n_decode += slot.n_decode_step_cells
    n_steps += prompt.n_decode_step_cells
    for slot in head:
        n_steps += max(slot.n_step_cells, slot.n_prompt_left)
        n_decode += slot.n_decode_step_cells
    n_ahead = policy.n_lookahead_steps * n_decode
    return n_used + n_return_cells(ledger, head) + n_steps + n_ahead - ledger.n_cells_usable


def _entry_shortage(ledger: Ledger, unit: Unit, n_return: int, policy: Policy, n_more_cells: int) -> Shortage:
    n_steps = ledger.n_step_cells + ledger.n_chunk_cells + ledger.n_beyond_cells
    n_decode, n_runners = ledger.n_decode_cells, len(ledger.residents)
    entering = [*ledger.promised, *unit]
    n_runners += len(entering) - len(unit)
    for slot in entering:
        n_steps += max(slot.n_step_cells, slot.n_prompt_left)
        n_decode += slot.n_decode_step_cells
    return Shortage(
        ledger.n_cells_used + n_return + n_steps - ledger.n_cells_usable - n_more_cells,
        n_ahead_cells=policy.n_lookahead_steps * n_decode,
        n_runners=n_runners,
        is_for_whole=True,
        n_steps_ahead=policy.n_lookahead_steps,
    )
