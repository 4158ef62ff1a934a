"""The page at `/pool` over a real server: a chat that is parked and comes back is seen doing so."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.conftest import StartServer
from tests.e2e.sse import post_stream
from tests.web.browser import browser

CHAT = {"prompt": "A lighthouse keeper", "n_predict": 70, "temperature": 0, "ignore_eos": True, "id_slot": 1}


def test_parks_restores_gaps_and_cells_of_a_real_chat_are_shown(start_ours: StartServer, tmp_path: Path) -> None:
    with start_ours(LLAMA_SERVER_PREEMPT_EVERY="32") as server, browser(tmp_path) as page:
        page.open(server.url + "/pool")
        page.until_text("status", "Live")
        post_stream(server, "/completion", CHAT)
        page.until(lambda: page.count("#lanes path.mark") == 4)
        assert page.text("lanes-text") == "2 parks and 2 restores in the last minute."
        assert page.texts("#events li")[0].endswith(": head of the line")
        n_cells = server.slots()[1]["n_cells"]
        page.until_text("cells-text", f"{n_cells} of 512 cells in use: slot 1 keeps {n_cells}, ")
        page.until(lambda: page.count("#gaps rect.bar") > 0)
        assert [entry for entry in page.complaints() if server.url in str(entry["message"])] == []
