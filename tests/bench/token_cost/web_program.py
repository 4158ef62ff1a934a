"""The web side alone: streams tokens of an engine that computes nothing. `__main__` starts it and reads the streams.

Both speak by lines. This one says its address, waits for as many streams as the first line names, and says `open`.
Then each line `step` gets one step, a token for each stream. At `end` it says the CPU seconds since `begin`.
"""

from __future__ import annotations

import sys
import time

from pyggml_server.messages import Began, Finished

from tests.web.fakes import token
from tests.web.running import running

DATA = b'{"choices":[{"finish_reason":null,"index":0,"delta":{"content":" word"}}],"created":1700000000,'
DATA += b'"id":"chatcmpl-0123456789abcdefghijklmnopqrstuv","model":"m","object":"chat.completion.chunk"}'


def main() -> None:
    with running() as server:
        _say(server.url)
        task_ids = server.engine.next_task_ids(int(sys.stdin.readline()))
        server.engine.say(*(Began(task_id) for task_id in task_ids))
        _say("open")
        began_s = time.process_time()
        while (line := sys.stdin.readline()) != "end\n":
            if line == "begin\n":
                began_s = time.process_time()
            else:
                server.engine.say(*(token(task_id, DATA) for task_id in task_ids))
        _say(str(time.process_time() - began_s))
        server.engine.say(*(Finished(task_id, b"{}") for task_id in task_ids))


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
