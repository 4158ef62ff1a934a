"""Which headers of the shim include which: no circle, and what guesses ahead knows nothing of tasks."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from build_support.layout import of_this_clone

SHIM = of_this_clone().native / "shim"


def includes(folder: Path) -> dict[str, set[str]]:
    """For each file of a folder the headers of the same folder that it names."""
    found = {
        path.name: set(re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE))
        for path in (*folder.glob("*.h"), *folder.glob("*.hpp"), *folder.glob("*.cpp"))
    }
    return {name: named & found.keys() for name, named in found.items()}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The files of one circle, or none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_header_of_the_shim_includes_itself_by_way_of_others() -> None:
    graph = includes(SHIM)
    assert graph["server_types.hpp"] > {"server_draft.hpp", "server.h"}
    assert circle(graph) == []


def test_a_circle_is_found_whoever_is_in_it(tmp_path: Path) -> None:
    for name, other in [("a.hpp", "b.hpp"), ("b.hpp", "c.h"), ("c.h", "a.hpp"), ("d.cpp", "a.hpp")]:
        (tmp_path / name).write_text(f'#include <string>\n#include "{other}"\n#include "llama.h"\n')
    assert sorted(set(circle(includes(tmp_path)))) == ["a.hpp", "b.hpp", "c.h"]


@pytest.mark.parametrize(
    ("header", "known"), [("server.h", {"error.h"}), ("server_draft.hpp", {"server.h"}), ("row_pool.hpp", set())]
)
def test_what_stands_below_a_servers_types_knows_nothing_of_them(header: str, known: set[str]) -> None:
    assert includes(SHIM)[header] == known
