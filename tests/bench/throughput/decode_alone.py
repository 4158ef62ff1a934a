"""How fast the same decode runs without a server, as a program: `... decode_alone N_CHATS N_PROMPT N_TOKENS FLAGS...`.

One token of each chat in a batch, step after step, the logits of every row on the host; nothing is sampled, nobody is
told. The flags are the server's. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

import numpy as np
from pyggml_server.native.command_line import CommandLine
from pyggml_server.native.runtime import BatchArrays, Runtime

N_FIRST = 4  # steps before the clock runs: a device compiles and captures in them


def main(words: Sequence[str]) -> int:
    n_chats, n_prompt, n_tokens = (int(word) for word in words[:3])
    runtime = Runtime.load(CommandLine.parse(list(words[3:])))
    try:
        print(json.dumps({"tokens_per_s": run(runtime, n_chats, n_prompt, n_tokens)}))
    finally:
        runtime.close()
    return 0


def run(runtime: Runtime, n_chats: int, n_prompt: int, n_tokens: int) -> float:
    """Tokens per second of all chats. Raises RuntimeError for a pool that cannot hold them."""
    for chat in range(n_chats):
        _decode(runtime, np.arange(n_prompt), np.full(n_prompt, chat), n_outputs=1)
    first_s = 0.0
    for step in range(N_FIRST + n_tokens):
        if step == N_FIRST:
            first_s = time.monotonic()
        _decode(runtime, np.full(n_chats, n_prompt + step), np.arange(n_chats), n_outputs=n_chats)
    return n_chats * n_tokens / (time.monotonic() - first_s)


def _decode(runtime: Runtime, pos: np.ndarray, chats: np.ndarray, n_outputs: int) -> None:
    n = len(pos)
    output = np.arange(n) >= n - n_outputs
    token, position, seq_id = (column.astype(np.int32) for column in (1000 + (7 * chats + pos) % 500, pos, chats))
    status, _ = runtime.step(BatchArrays(token, position, seq_id, output.astype(np.int8)), [])
    if status != 0:
        raise RuntimeError(f"llama_decode gave {status} for a batch of {n} tokens")
    runtime.context.synchronize()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
