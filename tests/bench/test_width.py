"""What becomes of the output of `width_bench`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.collect_width import main, runs_in


def test_each_run_is_kept_in_order(tmp_path: Path) -> None:
    printed, target = tmp_path / "printed", tmp_path / "width.json"
    printed.write_text('{"label": "before",\n"constant": {"n": 1}}\n{"label": "after"}\n')
    main(str(printed), str(target))
    assert json.loads(target.read_text())["runs"] == [{"label": "before", "constant": {"n": 1}}, {"label": "after"}]


def test_a_run_that_ended_early_is_an_error() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        runs_in('{"label": "before",\n')
