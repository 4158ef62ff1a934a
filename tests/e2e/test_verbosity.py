"""How much the log says: -v and -lv show what is for debugging, as llama-server's do."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import StartServer

TAG = "__TEST_TAG_CACHE_IDLE_SLOTS_ENABLED__"  # a line of ours at the level for debugging


@pytest.mark.parametrize(("flags", "is_shown"), [((), False), (("-v",), True), (("-lv", "5"), True)])
def test_lines_for_debugging_are_shown_where_they_are_asked_for(
    start_ours: StartServer, flags: tuple[str, ...], is_shown: bool
) -> None:
    with start_ours(*flags, "--cache-ram", "64") as server:
        assert (TAG in server.whole_log()) is is_shown
