"""Four chats on one server whose KV pool is too small for them: shows them live, then as a table.

Owns the server that it starts. One thread per chat reads its stream; the main thread alone prints. Exit code 0 only
if all four chats finished and at least one of them was parked and restored, with `--stock` too: there it is 1.
"""

from __future__ import annotations

import argparse
import json
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

REPOSITORY = Path(__file__).resolve().parents[1]
READY_TIMEOUT_S = 300
SILENCE_TIMEOUT_S = 300
N_SHOWN_LOG_LINES = 20
N_TOKENS_PER_REPORT = 50
STYLE = (
    "You tell stories slowly and with many details. Describe the place first, then who lives there, then what happens "
    "on an ordinary day, and only then what happens on the day that changes everything. Name colours, sounds and "
    "smells, let people speak, never sum up, and do not stop before the story has come to its end. The story is about "
)
SUBJECTS = ("a lighthouse keeper", "a baker in a small town", "the first school on Mars", "a fox that learns to count")


@dataclass
class Chat:
    """What one chat has seen so far. Written by its own thread, read by the main thread."""

    subject: str
    n_tokens: int = 0
    n_parks: int = 0
    n_restores: int = 0
    longest_gap_s: float = 0.0
    result: str = "running"


@dataclass
class Totals:
    """What /metrics counted; a server without preemption counts nothing."""

    preemptions: int = 0
    restores: int = 0


@dataclass
class Run:
    """The four chats, and the lines that their threads have to say."""

    url: str
    n_tokens: int
    chats: list[Chat] = field(default_factory=lambda: [Chat(subject) for subject in SUBJECTS])
    lines: queue.SimpleQueue[str | None] = field(default_factory=queue.SimpleQueue)

    def say(self, chat: Chat, what: str) -> None:
        self.lines.put(f"chat {self.chats.index(chat) + 1}  {chat.n_tokens:4d} tokens  {what}")


def main() -> int:
    options = parse_options()
    program = stock_program() if options.stock else our_program()
    print(f"{program.name} with {options.cells} cells for 4 chats of {options.tokens} tokens and their prompts")
    with server(program, options) as url:
        if not options.stock:
            print(f"the pool, live, while this runs: {url}/pool")
        run = Run(url, options.tokens)
        watch(run)
        totals = read_totals(url)
    print_table(run, totals)
    return 0 if is_shown(run, totals) else 1


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--stock", action="store_true", help="run llama-server of the same tree instead")
    parser.add_argument("--model", required=True, help="the GGUF file (scripts/demo names the default model)")
    parser.add_argument("--cells", type=int, default=1024, help="size of the KV pool (default: 1024)")
    parser.add_argument("--tokens", type=int, default=350, help="tokens that each chat generates (default: 350)")
    parser.add_argument("server_flags", nargs="*", metavar="-- FLAGS", help="more flags for the server")
    return parser.parse_args()


# -- the server --------------------------------------------------------------------------------------------------------


def our_program() -> Path:
    """pyggml-server of this Python's environment."""
    return existing(Path(sys.executable).with_name("pyggml-server"), "scripts/setup dev")


def stock_program() -> Path:
    """llama-server of the same tree."""
    return existing(REPOSITORY / "build/cmake/bin/llama-server", "PYGGML_WITH_LLAMA_SERVER=1 scripts/setup dev")


def existing(program: Path, remedy: str) -> Path:
    if not program.is_file():
        sys.exit(f"{program.name} is not built: run {remedy}")
    return program


@contextmanager
def server(program: Path, options: argparse.Namespace) -> Iterator[str]:
    """Its URL, once it listens. Ends it afterwards, also when a signal ends this program. Main thread."""
    signal.signal(signal.SIGTERM, exit_by_signal)  # else it would end this program alone, at once
    size = ["-c", str(options.cells), "-np", "4", "--kv-unified"]
    argv = [
        str(program),
        "-m",
        options.model,
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        *size,
        "--metrics",
        *options.server_flags,
    ]
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    try:
        yield wait_for_url(process)
    finally:
        process.terminate()
        process.wait()


def exit_by_signal(number: int, _: object) -> None:
    """Handler: leave by way of what has to be ended, with the exit code that shells give the signal."""
    sys.exit(128 + number)


def wait_for_url(process: subprocess.Popen[str]) -> str:
    """Read the log on a thread, up to its end, so that the server never waits for a reader."""
    found: queue.SimpleQueue[str] = queue.SimpleQueue()
    log: deque[str] = deque(maxlen=N_SHOWN_LOG_LINES)

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            log.append(line)
            if listening := re.search(r"listening on (http://\S+)", line):
                found.put(listening[1])
        found.put("")

    threading.Thread(target=read, daemon=True).start()
    try:
        url = found.get(timeout=READY_TIMEOUT_S)
    except queue.Empty:
        url = ""
    if not url:
        sys.exit("the server did not start; the end of its log:\n" + "".join(log))
    return url


def read_totals(url: str) -> Totals:
    text = requests.get(url + "/metrics", timeout=SILENCE_TIMEOUT_S).text
    counts = {name: int(float(value)) for name, value in re.findall(r"^llamacpp:(\w+) (\S+)$", text, re.MULTILINE)}
    return Totals(counts.get("preemptions_total", 0), counts.get("restores_total", 0))


# -- the chats ---------------------------------------------------------------------------------------------------------


def watch(run: Run) -> None:
    """Run the four chats at once and print what they say until the last has ended."""
    for chat in run.chats:
        threading.Thread(target=follow, args=(run, chat), daemon=True).start()
    started_s = time.monotonic()
    n_running = len(run.chats)
    while n_running:
        line = run.lines.get()
        if line is None:
            n_running -= 1
        else:
            print(f"{time.monotonic() - started_s:6.1f} s  {line}", flush=True)


def follow(run: Run, chat: Chat) -> None:
    try:
        chat.result = read_chat(run, chat)
    except (requests.RequestException, ValueError) as error:
        chat.result = f"error: {error}"
    run.say(chat, chat.result)
    run.lines.put(None)


def read_chat(run: Run, chat: Chat) -> str:
    """Follow the stream to its end; how it ended."""
    body = {
        "messages": [{"role": "user", "content": STYLE + chat.subject + "."}],
        "max_tokens": run.n_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "seed": 1,
        "stream": True,
    }
    path = run.url + "/v1/chat/completions"
    with requests.post(path, json=body, stream=True, timeout=SILENCE_TIMEOUT_S) as response:
        if response.status_code != 200:
            return f"error: {response.json()['error']['message']}"
        return read_events(run, chat, response)


def read_events(run: Run, chat: Chat, response: requests.Response) -> str:
    last_token_s: float | None = None
    for line in response.iter_lines(chunk_size=1, decode_unicode=True):
        if line.startswith(": "):
            note_comment(run, chat, line[2:])
        elif line == "data: [DONE]":
            return "finished" if chat.n_tokens == run.n_tokens else f"ended after {chat.n_tokens} tokens"
        elif line.startswith("data: "):
            event = json.loads(line[6:])
            if "error" in event:
                return f"error: {event['error']['message']}"
            now_s = time.monotonic()
            if last_token_s is not None:
                chat.longest_gap_s = max(chat.longest_gap_s, now_s - last_token_s)
            last_token_s = now_s
            note_tokens(run, chat, event)
    return "error: the stream broke off"


def note_comment(run: Run, chat: Chat, comment: str) -> None:
    if comment == "preempted":
        chat.n_parks += 1
        run.say(chat, "parked")
    elif comment == "resumed":
        chat.n_restores += 1
        run.say(chat, "restored")


def note_tokens(run: Run, chat: Chat, event: dict[str, Any]) -> None:
    """An event with text is one token; the last event has the exact count."""
    if event["choices"] and event["choices"][0]["delta"].get("content"):
        chat.n_tokens += 1
        if chat.n_tokens % N_TOKENS_PER_REPORT == 0:
            run.say(chat, "running")
    chat.n_tokens = event.get("timings", {}).get("predicted_n", chat.n_tokens)


# -- the result --------------------------------------------------------------------------------------------------------


def print_table(run: Run, totals: Totals) -> None:
    row = "{:<4}  {:>6}  {:>5}  {:>8}  {:>11}  {}"
    print("\n" + row.format("chat", "tokens", "parks", "restores", "longest gap", "result"))
    for number, chat in enumerate(run.chats, 1):
        gap = f"{chat.longest_gap_s:.2f} s"
        print(row.format(number, chat.n_tokens, chat.n_parks, chat.n_restores, gap, chat.result))
    n_finished = sum(chat.result == "finished" for chat in run.chats)
    print(f"\n{n_finished} of 4 finished; the server counts {totals.preemptions} parks and {totals.restores} restores")


def is_shown(run: Run, totals: Totals) -> bool:
    """Whether the demonstration succeeded: all finished, after at least one park and restore."""
    has_finished = all(chat.result == "finished" for chat in run.chats)
    return has_finished and totals.preemptions >= 1 and totals.restores >= 1


if __name__ == "__main__":
    sys.exit(main())
