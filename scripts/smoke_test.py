"""Starts a server and asks it for one chat: smoke_test.py PROGRAM MODEL VERSION. Exits with 1 and the log if it fails.

Needs the standard library only, so that an empty environment can run it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from typing import Any

READY_S = 60


def main(program: str, model: str, version: str) -> int:
    started_s = time.monotonic()
    flags = ["-m", model, "--port", "0", "-c", "512", "-np", "2", "--kv-unified"]
    server = subprocess.Popen([program, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log: list[str] = []
    try:
        url = wait_for_url(server, log)
        body = {"messages": [{"role": "user", "content": "Name a sea."}], "max_tokens": 8}
        answer = ask(f"{url}/v1/chat/completions", body)
        text = answer["choices"][0]["message"]["content"]
        print(f"first answer after {time.monotonic() - started_s:.1f} s: {text!r} (pyggml {version})")
        return 0 if text and answer["usage"]["completion_tokens"] > 0 else 1
    except (OSError, KeyError, RuntimeError) as error:
        print("".join(log), error, sep="\n")
        return 1
    finally:
        server.terminate()
        server.wait()


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
    sys.exit(main(*sys.argv[1:4]))
