"""`planner/` imports nothing but data-only standard library modules and itself, and its values cannot be changed."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pyggml_server.planner
import pytest
from pyggml_server.planner import Plan, Policy, SlotPhase, SlotView, View, decide, plan, policy, view

from tests.planner.views import generating, parked, view_of

ALLOWED = {"__future__", "collections.abc", "dataclasses", "enum", "itertools", "typing"}
SOURCES = sorted(Path(pyggml_server.planner.__file__).parent.glob("*.py"))


def imported(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
        elif isinstance(node, ast.Name) and node.id in {"__import__", "open", "print", "input", "exec", "eval"}:
            names.add(node.id)
    return names


def outsiders(source: str) -> set[str]:
    own = "pyggml_server.planner"
    return {name for name in imported(source) if name not in ALLOWED and name != own and not name.startswith(own + ".")}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_planner_imports_only_the_white_list(path: Path) -> None:
    assert outsiders(path.read_text()) == set()


@pytest.mark.parametrize(
    "line", ["import time", "from random import random", "import pyggml", "print(1)", "from . import x"]
)
def test_the_white_list_catches(line: str) -> None:
    assert outsiders(line)


@pytest.mark.parametrize("module", [view, plan, policy], ids=lambda module: module.__name__.rsplit(".", 1)[1])
def test_every_value_is_frozen_and_slotted(module: object) -> None:
    values = [item for item in vars(module).values() if dataclasses.is_dataclass(item) and isinstance(item, type)]
    assert values
    for value in values:
        assert value.__dataclass_params__.frozen, value  # type: ignore[attr-defined]
        assert "__slots__" in vars(value), value


def test_the_same_view_gives_the_same_plan() -> None:
    crowded = view_of(generating(0, 500), generating(1, 500), parked(2, 300))
    assert decide(crowded, Policy()) == decide(crowded, Policy())


def test_a_planner_that_is_off_orders_nothing() -> None:
    assert decide(view_of(generating(0, 500), generating(1, 500)), Policy(is_enabled=False)) is Plan.EMPTY


def test_a_view_without_slots_needs_no_plan() -> None:
    assert decide(View(0.0, 10, 0, (), 1), Policy()) is Plan.EMPTY


def test_asking_for_a_slot_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(KeyError, match=r"no slot 9 in this view; it has \[3\]"):
        view_of(SlotView(3, SlotPhase.IDLE)).slot(9)
