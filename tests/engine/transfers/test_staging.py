"""How much staging memory a server takes before it loads its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.engine.transfers.staging import staging_bytes


@dataclass(frozen=True)
class Settings:
    n_parallel: int = 4
    kv_unified: bool = True


def test_it_is_what_the_flag_says() -> None:
    assert staging_bytes(Settings(), PreemptOptions()) == 256 * 1024**2
    assert staging_bytes(Settings(), PreemptOptions(staging_mib=7)) == 7 * 1024**2


@pytest.mark.parametrize("options", [{"ram_mib": 0}, {"use_async": False}, {"staging_mib": 0}])
def test_nothing_is_taken_where_no_copy_runs_while_others_decode(options: dict[str, Any]) -> None:
    assert staging_bytes(Settings(), PreemptOptions(**options)) == 0


@pytest.mark.parametrize("settings", [Settings(n_parallel=1), Settings(kv_unified=False)])
def test_nothing_is_taken_where_nobody_can_be_parked(settings: Settings) -> None:
    assert staging_bytes(settings, PreemptOptions()) == 0
