"""Starts a server and asks it for one chat: smoke_test.py PROGRAM MODEL VERSION [--log TEXT]... [-- FLAG...].

Exits with 1 and the log if there is no answer, or if no line of the log has TEXT; prints the lines that have it. The
flags go to the server. Needs the standard library only, so that an empty environment can run it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
import urllib.request
from typing import Any

READY_S = 180  # a busy machine with two cores


def main(program: str, model: str, version: str, texts: list[str], more_flags: list[str]) -> int:
    started_s = time.monotonic()
    flags = ["-m", model, "--port", "0", "-c", "512", "-np", "2", "--kv-unified", *more_flags]
    server = subprocess.Popen([program, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log: list[str] = []
    try:
        url = wait_for_url(server, log)
        body = {"messages": [{"role": "user", "content": "Name a sea."}], "max_tokens": 8}
        answer = ask(f"{url}/v1/chat/completions", body)
        text = answer["choices"][0]["message"]["content"]
        for wanted in texts:
            print(lines_with(wanted, log), end="")
        print(f"first answer after {time.monotonic() - started_s:.1f} s: {text!r} (pyggml {version})")
        return 0 if text and answer["usage"]["completion_tokens"] > 0 else 1
    except (OSError, KeyError, RuntimeError) as error:
        print("".join(log), error, sep="\n")
        return 1
    finally:
        server.terminate()
        server.wait()


def lines_with(text: str, log: list[str]) -> str:
    found = "".join(line for line in log if text in line)
    if not found:
        raise RuntimeError(f"no line of the log has {text!r}")
    return found


def wait_for_url(server: subprocess.Popen[str], log: list[str]) -> str:
    assert server.stdout is not None
    for line in server.stdout:
        log.append(line)
        if listening := re.search(r"listening on (http://\S+)", line):
            return listening[1]
    raise RuntimeError("the server ended before it listened")


def ask(url: str, body: object) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=READY_S) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


if __name__ == "__main__":
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("version")
    parser.add_argument("--log", action="append", default=[], metavar="TEXT")
    given = parser.parse_args(sys.argv[1:at])
    sys.exit(main(given.program, given.model, given.version, given.log, sys.argv[at + 1 :]))
