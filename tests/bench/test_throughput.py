"""`scripts/bench throughput`: what counts as a token, and a small run from end to end."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bench.throughput import load

ROOT = Path(__file__).parents[2]
TOKEN = b'data: {"content":"a \\"data: {\\"","stop":false}\n\n'
LAST = b'data: {"content":"","stop":true,"tokens_predicted":3}\n\n'


@contextmanager
def answering(pieces: list[bytes]) -> Iterator[str]:
    """A server that answers every request with these pieces, each in a write of its own."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            for piece in pieces:
                self.wfile.write(piece)
                self.wfile.flush()

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("n_bytes", [1, 5, 7, 1000])
def test_events_are_counted_however_they_are_cut(n_bytes: int) -> None:
    text = 3 * TOKEN + LAST
    with answering([text[i : i + n_bytes] for i in range(0, len(text), n_bytes)]) as url:
        streams = load.run(url, [{}, {}])
    assert [(len(stream.events_s), stream.n_tokens) for stream in streams] == [(3, 3), (3, 3)]
    assert len(load.gaps_s(streams)) == 4
    assert all(stream.events_s[0] >= stream.sent_s for stream in streams)


@pytest.mark.parametrize("pieces", [[TOKEN], [], [TOKEN, b'data: {"error":{"message":"no"}}\n\n'], [b"HTTP"]])
def test_a_stream_without_an_end_is_an_error(pieces: list[bytes]) -> None:
    with answering(pieces) as url, pytest.raises(RuntimeError, match="ended a stream"):
        load.run(url, [{}])


def test_a_small_run_gives_a_row_for_each_width_and_sampling(smollm2_path: Path, tmp_path: Path) -> None:
    numbers, plot = tmp_path / "throughput.json", tmp_path / "throughput.svg"
    words = ["scripts/bench", "throughput", "--model", str(smollm2_path), "--stock", "", "--variants", "plain"]
    words += ["--chats", "1,3", "--prompt", "8", "--tokens", "6", "--rounds", "1", "--long-prompt", "16"]
    words += ["--json", str(numbers), "--plot", str(plot), "--", "-t", "1", "-fit", "off", "--no-warmup"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(numbers.read_text())
    rows = told["rows"]
    assert [(row["chats"], row["sampling"]) for row in rows] == [
        (n, how) for n in (1, 3) for how in ("greedy", "default")
    ]
    for row in rows:
        assert (row["prompt_cache"], row["backend_sampling"]) == (False, False)
        assert row["ratio_to_decode_alone"] > 0
        assert row["first_token_ms"]["pyggml_server"]["n"] == row["chats"]
    assert told["prompts"]["prompt_tokens_per_s"]["pyggml_server"] > 0
    assert "decode alone" in plot.read_text()
