"""The groups of the series: which can be sent without which, and the patches that each needs below it.

A patch names its group in its header. Reads headers only; applying a group on its base is check.py's work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from build_support.series import Patch

#: Each group, and the groups that its patches need below them. None: on the pinned source.
NEEDS: dict[str, tuple[str, ...]] = {"A": (), "B": (), "C": ("B",), "D": ("A", "B", "C")}
#: Patches of requests of their own: each on the pinned source, alone.
APART = "apart"


@dataclass(frozen=True)
class Group:
    """What is sent together: `below` has to be applied first. A patch apart is a group by itself."""

    name: str
    below: tuple[Patch, ...]
    patches: tuple[Patch, ...]


def groups_of(patches: list[Patch]) -> list[Group]:
    """In the order of the series. Patches of unknown groups are left out: the lint names them."""
    found = []
    for name, needed in NEEDS.items():
        own = tuple(patch for patch in patches if patch.group == name)
        below = tuple(patch for patch in patches if patch.group in needed)
        found += [Group(name, below, own)] if own else []
    return [*found, *(Group(APART, (), (patch,)) for patch in patches if patch.group == APART)]


def group_problems(patches: Iterable[Patch]) -> list[str]:
    """What is wrong with the groups: unknown ones, and patches that do not stand behind what they need."""
    order = [*NEEDS, APART]
    found, last = [], 0
    for patch in patches:
        if patch.group not in order:
            found.append(f"{patch.name}: the group {patch.group!r} is none of {', '.join(order)}")
        elif order.index(patch.group) < last:
            found.append(f"{patch.name}: group {patch.group} stands behind group {order[last]}")
        else:
            last = order.index(patch.group)
    return found
