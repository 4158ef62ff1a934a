"""How long chats wait while an image of another request is encoded: `scripts/bench images`.

Chats generate on both servers in turns. Once all of them do, images come one after the other, each in a request for a
single token. Measured are the gaps between two tokens of a chat, as a client sees them, that lie in the time of such a
request for a part, and the others. Without --model, the default model gets an encoder with random weights: what it sees
means nothing, how long it looks does. Compare inside one run only: machines differ.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.bench.command_line import server_parser
from tests.bench.images.gaps import gaps_in_and_outside
from tests.bench.machine import default_model, ran_on
from tests.bench.stall.chats import SILENCE_TIMEOUT_S, Chat, check_ended_well
from tests.bench.stall.gaps import summary_ms
from tests.bench.stall.servers import running
from tests.server_process import ServerProcess
from tests.vision_models import Eyes, png, write_gemma_eyes

# a quarter of the layers and a third of the width of Gemma 3's, on images of a quarter of the area
EYES = Eyes(width=384, n_ff=1536, n_layers=12, n_heads=6, image_size=448, patch=14, merge=4, n_embd=576)
MARKER = "<__media__>"
N_TOKENS_BEFORE = 5  # of every chat before the first image


def main(words: list[str]) -> int:
    options = parse(words)
    programs = {"ours": options.ours} | ({"llama-server": options.stock} if options.stock else {})
    with tempfile.TemporaryDirectory() as folder:
        mmproj = options.mmproj or write_gemma_eyes(Path(folder) / "mmproj.gguf", EYES)
        argv = ["-m", options.model or default_model(), "--mmproj", mmproj, "--port", "0", "-np", options.chats + 1]
        argv += ["-c", "4096", "--kv-unified", "-t", "1", "-fit", "off", "--cache-ram", "0", *options.server_flags]
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in programs}
        for i in range(options.rounds):  # in turns, so that what changes with time changes both
            for name, program in programs.items():
                print(f"round {i + 1}, {name}", file=sys.stderr, flush=True)
                with running([*program, *map(str, argv)], {"LLAMA_MEDIA_MARKER": MARKER}) as server:
                    rounds[name].append(measured(server, options))
    results = {name: told(outcomes) for name, outcomes in rounds.items()}
    print(table(results))
    if options.json:
        command = shlex.join(["scripts/bench", "images", *words])
        document = {"command": command, **ran_on(), "results": results}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def parse(words: list[str]) -> argparse.Namespace:
    parser = server_parser("images", __doc__)
    parser.add_argument("--mmproj", help="the encoder of --model (default: one for the default model)")
    parser.add_argument("--chats", type=int, default=3, help="chats that generate (default: 3)")
    parser.add_argument("--tokens", type=int, default=200, help="tokens of each (default: 200)")
    parser.add_argument("--images", type=int, default=2, help="requests with an image (default: 2)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each server (default: 3)")
    return parser.parse_args(words)


def measured(server: ServerProcess, options: argparse.Namespace) -> dict[str, Any]:
    """The gaps of one run, and the seconds that each image took from its request to its answer."""
    chats = [Chat(server, i, 0, options.tokens, prompt=f"Chat {i} begins") for i in range(options.chats)]
    for chat in chats:
        chat.start()
    for chat in chats:
        chat.wait_for_tokens(N_TOKENS_BEFORE)
    windows = [ask_about_image(server, i) for i in range(options.images)]
    for chat in chats:
        chat.join()
    arrivals = [chat.arrivals for chat in chats]
    for chat in chats:
        chat.arrivals.error = chat.error
    check_ended_well(arrivals)
    inside, outside = gaps_in_and_outside(arrivals, windows)
    return {"inside": inside, "outside": outside, "image_s": [end_s - begin_s for begin_s, end_s in windows]}


def ask_about_image(server: ServerProcess, seed: int) -> tuple[float, float]:
    """When the request went out, and when its answer was here. Raises RuntimeError for any other than 200."""
    image = base64.b64encode(png(448, 448, seed)).decode()
    prompt = {"prompt_string": f"Look at {MARKER} and say", "multimodal_data": [image]}
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=SILENCE_TIMEOUT_S)
    begin_s = time.monotonic()
    body = json.dumps({"prompt": prompt, "n_predict": 1, "cache_prompt": False})
    connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    if response.status != 200:
        raise RuntimeError(f"the image was answered with {response.status}: {answer.decode(errors='replace')}")
    return begin_s, time.monotonic()


def told(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """All rounds of one server together."""
    together = {name: [value for outcome in outcomes for value in outcome[name]] for name in outcomes[0]}
    return {
        "gaps_during_an_image_ms": summary_ms(together["inside"]),
        "other_gaps_ms": summary_ms(together["outside"]),
        "image_s": [round(seconds, 3) for seconds in together["image_s"]],
        "worst_gap_of_each_round_ms": [round(1e3 * max(outcome["inside"], default=0.0), 1) for outcome in outcomes],
    }


def table(results: dict[str, Any]) -> str:
    """A line for each server."""
    row = "{:<13} {:>9} {:>9} {:>9} {:>10} {:>9} {:>9}"
    lines = [row.format("server", "gaps", "p50 ms", "p99 ms", "worst ms", "else p50", "image s")]
    for name, result in results.items():
        gaps, others, image_s = result["gaps_during_an_image_ms"], result["other_gaps_ms"], sorted(result["image_s"])
        numbers = [gaps["n"], *(gaps.get(what, "-") for what in ("p50", "p99", "worst")), others.get("p50", "-")]
        lines.append(row.format(name, *numbers, image_s[len(image_s) // 2] if image_s else "-"))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
