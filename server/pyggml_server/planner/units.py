"""Units: the slots that must be parked and restored together. One slot, or the members of a group that share cells."""

from __future__ import annotations

from pyggml_server.planner.ledger import Ledger
from pyggml_server.planner.view import PARKABLE_PHASES, SlotPhase, SlotView

Unit = tuple[SlotView, ...]


def resident_units(ledger: Ledger) -> list[Unit]:
    """Every unit that holds cells and runs. Members of a group stand in the order of their slots, as in the line."""
    alone: list[Unit] = []
    groups: dict[int, list[SlotView]] = {}
    for slot in ledger.residents.values():
        if slot.group_id is None:
            alone.append((slot,))
        else:
            groups.setdefault(slot.group_id, []).append(slot)
    return [*alone, *(tuple(sorted(group, key=lambda slot: slot.slot_id)) for group in groups.values())]


def waiting_unit(ledger: Ledger, head: SlotView) -> Unit:
    """The parked slot together with the parked members of its group."""
    if head.group_id is None:
        return (head,)
    return tuple(slot for slot in ledger.slots() if slot.group_id == head.group_id and slot in ledger.line)


def is_parkable(ledger: Ledger, unit: Unit) -> bool:
    """Whether nothing but policy and budget stands against parking it now."""
    return is_droppable(unit) and not (ledger.refused_parks and any(s.slot_id in ledger.refused_parks for s in unit))


def is_droppable(unit: Unit) -> bool:
    """Whether its cells may be dropped and computed again: no state is copied, so a refused park is no obstacle."""
    for slot in unit:
        if slot.has_transfer_in_flight or slot.has_pending_shift or slot.phase not in PARKABLE_PHASES:
            return False
        if not slot.has_run_since_restore:  # it would go out and in without a token in between
            return False
    return True


def is_restorable(unit: Unit) -> bool:
    """Whether its state lies whole on the host, or has to be computed again."""
    return all(slot.phase is SlotPhase.PREEMPTED and not slot.has_transfer_in_flight for slot in unit)


def n_owned_cells(ledger: Ledger, unit: Unit) -> int:
    """Cells that come free when the unit leaves."""
    first = unit[0]
    return first.n_cells_owned if first.group_id is None else ledger.groups[first.group_id].n_cells_owned


def n_return_cells(ledger: Ledger, unit: Unit) -> int:
    """Cells that the parked unit takes to come back: of a group, those that no member holds who stayed."""
    first = unit[0]
    if first.group_id is None:
        return first.n_cells
    group = ledger.groups[first.group_id]
    stayed = any(slot.group_id == first.group_id for slot in ledger.residents.values())
    return group.n_cells - group.n_cells_owned if stayed else group.n_cells
