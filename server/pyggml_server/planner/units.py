"""Units: the slots that must be parked and restored together. One slot, or the members of a group that share cells."""

from __future__ import annotations

from collections.abc import Iterator

from pyggml_server.planner.view import PARKABLE_PHASES, RESIDENT_PHASES, WAITING_PHASES, SlotPhase, SlotView, View

Unit = tuple[SlotView, ...]


def resident_units(view: View) -> Iterator[Unit]:
    """Every unit that holds cells and runs."""
    return _units(view, RESIDENT_PHASES)


def waiting_unit(view: View, head: SlotView) -> Unit:
    """The parked slot together with the parked members of its group."""
    return _unit_of(view, head, WAITING_PHASES)


def is_parkable(view: View, unit: Unit) -> bool:
    """Whether nothing but policy and budget stands against parking it now."""
    return is_droppable(unit) and not any(slot.slot_id in view.refused_parks for slot in unit)


def is_droppable(unit: Unit) -> bool:
    """Whether its cells may be dropped and computed again: no state is copied, so a refused park is no obstacle."""
    return all(
        slot.phase in PARKABLE_PHASES
        and not slot.has_transfer_in_flight
        and not slot.has_pending_shift
        and slot.has_run_since_restore  # else it would go out and in without a token in between
        for slot in unit
    )


def is_restorable(unit: Unit) -> bool:
    """Whether its state lies whole on the host, or has to be computed again."""
    return all(slot.phase is SlotPhase.PREEMPTED and not slot.has_transfer_in_flight for slot in unit)


def n_owned_cells(view: View, unit: Unit) -> int:
    """Cells that come free when the unit leaves."""
    first = unit[0]
    return first.n_cells_owned if first.group_id is None else view.group(first.group_id).n_cells_owned


def n_return_cells(view: View, unit: Unit) -> int:
    """Cells that the parked unit takes to come back: of a group, those that no member holds who stayed."""
    first = unit[0]
    if first.group_id is None:
        return first.n_cells
    group = view.group(first.group_id)
    stayed = any(slot.group_id == first.group_id for slot in view.residents())
    return group.n_cells - group.n_cells_owned if stayed else group.n_cells


def _units(view: View, phases: frozenset[SlotPhase]) -> Iterator[Unit]:
    seen: set[int] = set()
    for slot in view.slots:
        if slot.phase in phases and slot.slot_id not in seen:
            unit = _unit_of(view, slot, phases)
            seen.update(member.slot_id for member in unit)
            yield unit


def _unit_of(view: View, slot: SlotView, phases: frozenset[SlotPhase]) -> Unit:
    if slot.group_id is None:
        return (slot,)
    return tuple(s for s in view.slots if s.group_id == slot.group_id and s.phase in phases)
