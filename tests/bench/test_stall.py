"""`scripts/bench stall`: what counts as a gap, what it reads in a log, and a small run from end to end."""

from __future__ import annotations

import http.server
import json
import logging
import subprocess
import threading
import xml.etree.ElementTree as ElementTree
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from pyggml_server.engine.preemption.apply import Applier
from pyggml_server.planner.plan import Park, Plan, Reason

from tests.bench.stall.__main__ import verdict
from tests.bench.stall.chats import check_ended_well, run_chats
from tests.bench.stall.fewest_passes import fewest_passes
from tests.bench.stall.gaps import Arrivals, Gap, shared_window, summary_ms, survivors_gaps, tokens_per_s
from tests.bench.stall.svg_plot import gaps_svg
from tests.bench.stall.variants import _copies
from tests.engine.fakes import FakeTransfer, generating_state
from tests.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
PARKED = Arrivals(tokens_s=[0.0, 1.0, 5.0, 6.0], preempted_s=[2.0], resumed_s=[4.0])
RUNS_ON = Arrivals(tokens_s=[0.0, 1.0, 3.0, 6.0])


def test_a_chat_that_is_away_has_no_gap_and_makes_those_of_the_others_count_as_during_a_copy() -> None:
    assert survivors_gaps([PARKED, RUNS_ON]) == [
        Gap(1.0, False),  # before the park
        Gap(1.0, False),  # after the restore
        Gap(1.0, False),
        Gap(2.0, True),
        Gap(3.0, True),
    ]


def test_only_the_time_in_which_every_chat_runs_counts() -> None:
    late = Arrivals(tokens_s=[2.0, 3.0, 4.0])
    assert shared_window([RUNS_ON, late]) == (2.0, 4.0)
    assert survivors_gaps([RUNS_ON, late]) == [Gap(1.0, False), Gap(1.0, False)]
    assert tokens_per_s([RUNS_ON, late]) == 3 / 2


def test_percentiles_are_those_of_the_sorted_gaps_in_milliseconds() -> None:
    summary = summary_ms([i / 1000 for i in range(1000, 0, -1)])
    assert summary == {"n": 1000, "p50": 501.0, "p90": 901.0, "p99": 991.0, "p99.9": 1000.0, "worst": 1000.0}
    assert summary_ms([]) == {"n": 0}


def test_the_servers_own_log_line_is_understood(caplog: pytest.LogCaptureFixture) -> None:
    state = generating_state([FakeTransfer()])
    times = iter([1.0, 1.0005, 1.002])
    state.clock = lambda: next(times)
    with caplog.at_level(logging.INFO):
        Applier(state).carry_out(Plan((Park(0, Reason.FORCED),)))
    copies = _copies("\n".join(record.getMessage() for record in caplog.records), "parked")
    assert (copies["n"], copies["issue_ms_median"], copies["completed_ms_worst"]) == (1, 0.5, 2.0)


def run_of(p99_ms: float, per_s: float, n_finished: int = 4) -> dict[str, Any]:
    gaps = {"n": 9, "p99": p99_ms, "p99.9": 2 * p99_ms, "worst": 3 * p99_ms}
    return {"gaps_beside_copies_ms": gaps, "tokens_per_s_of_all": per_s, "chats_finished": n_finished}


def test_the_verdict_compares_gaps_with_the_control_and_speed_with_a_pool_that_never_fills() -> None:
    runs = {"constant": run_of(1, 100), "control": run_of(10, 90), "async": run_of(11, 80), "short": run_of(1, 95, 3)}
    assert verdict(runs) == {
        "gap_ratio_p99": 1.1,
        "gap_ratio_p999": 1.1,
        "worst_ms": 33,
        "control_worst_ms": 30,
        "chats_finished": 3,
        "tok_s_ratio": 0.95,
    }
    assert verdict({"async": runs["async"], "constant": runs["constant"]}) == {}


@pytest.mark.parametrize(("n_cells", "n_passes"), [(84, 32), (42, 52), (62, 42)])
def test_the_fewest_passes_are_those_of_chats_that_take_turns_where_they_do_not_fit(
    n_cells: int, n_passes: int
) -> None:
    """Two chats of 10 + 32: in 42 cells both run until each has 12 new tokens, then one after the other."""
    assert fewest_passes(2, n_prompt=10, n_tokens=32, n_cells=n_cells) == n_passes


def test_a_chat_that_fits_nowhere_has_no_fewest_passes() -> None:
    with pytest.raises(ValueError, match="10 \\+ 32 tokens does not fit into 20 cells"):
        fewest_passes(2, n_prompt=10, n_tokens=32, n_cells=20)


def events(*lines: dict[str, object]) -> bytes:
    return b"".join(b"data: " + json.dumps(line).encode() + b"\n\n" for line in lines)


class OneStream(http.server.BaseHTTPRequestHandler):
    body: ClassVar[bytes] = b""

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        if self.path == "/tokenize":
            self.wfile.write(b'{"tokens": [5, 6, 5]}')
        else:
            assert sorted(json.loads(asked)["logit_bias"]) == [[5, 100.0], [6, 100.0]]
            self.wfile.write(self.body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Says nothing."""


@pytest.mark.parametrize(("n_predicted", "ends_well"), [(3, True), (2, False)])
def test_a_chat_is_complete_by_the_servers_own_count(n_predicted: int, ends_well: bool) -> None:
    """Its second token ended inside a character and came in no event."""
    body = events({"tokens": [7]}, {"tokens": [9]}, {"stop": True, "tokens_predicted": n_predicted})
    handler = type("Handler", (OneStream,), {"body": body})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = cast(ServerProcess, SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}"))
        with nullcontext() if ends_well else pytest.raises(RuntimeError, match="2 of 3 tokens"):
            (chat,) = run_chats(place, n_chats=1, n_prompt=1, n_tokens=3, n_apart=1)
            check_ended_well([chat])
            assert len(chat.tokens_s) == 2
        server.shutdown()


def test_the_picture_is_svg_with_a_line_for_each_run_that_has_gaps() -> None:
    picture = ElementTree.fromstring(gaps_svg("a <b> & c", {"async": [0.001, 0.002], "sync": [0.001, 0.2], "none": []}))
    svg = "{http://www.w3.org/2000/svg}"
    assert len(picture.findall(f"{svg}polyline")) == 2
    assert {"async", "sync", "a <b> & c"} <= {text.text for text in picture.findall(f"{svg}text")}


def test_a_small_run_writes_results_and_a_picture(smollm2_path: Path, tmp_path: Path) -> None:
    numbers, picture = tmp_path / "stall.json", tmp_path / "stall.svg"
    only = "constant,control,sync,short"
    words = ["scripts/bench", "stall", "--model", str(smollm2_path), "--only", only, "--prompt", "8", "--short", "256"]
    words += ["--rounds", "2", "--tokens", "72", "--every", "24", "--json", str(numbers), "--plot", str(picture)]
    words += ["--", "-t", "1", "-fit", "off", "--no-warmup"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(numbers.read_text())
    runs = found["runs"]
    assert [(name, run["n_parks"] > 0, run["gaps_ms"]["n"] > 0) for name, run in runs.items()] == [
        ("constant", False, True),
        ("control", True, True),
        ("sync", True, True),
        ("short", True, True),
    ]
    assert {run["n_runs"] for run in runs.values()} == {2}
    assert found["chats_finished"] == 4
    assert found["tok_s_ratio"] > 0
    assert found["tok_s_ratio_of_fewest_passes"] == round(72 / fewest_passes(4, 8, 72, 256), 3)
    assert runs["sync"]["restores"]["n"] == runs["sync"]["n_parks"]
    assert "synchronous copies to pageable memory (--no-preempt-async)" in runs["sync"]["banner"]
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
