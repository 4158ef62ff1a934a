"""Prints what a model says: `greedy_program.py MODEL N_GPU_LAYERS`. One JSON object; run in a process of its own.

The backend is loaded once per process, so the devices are chosen by the environment of that process.
"""

from __future__ import annotations

import hashlib
import json
import sys

from pyggml import Batch, Context, ContextParams, Model

PROMPT = "Once upon a time there was a small robot who wanted to learn how to paint the sea."
N_TOKENS = 32


def speak(model: Model) -> dict[str, object]:
    """Greedy tokens of one sequence that is parked half-way, the last logits, and the state that was parked."""
    prompt = model.vocab.tokenize(PROMPT)
    chosen: list[int] = []
    with Context(model, ContextParams(n_ctx=256, n_seq_max=2, n_ubatch=8, n_threads=1, n_threads_batch=1)) as context:
        context.decode(Batch.from_arrays(prompt, range(len(prompt)), 0))
        state, seq_id = b"", 0
        for i in range(N_TOKENS):
            chosen.append(int(context.logits().argmax()))
            context.decode(Batch.from_arrays([chosen[-1]], [len(prompt) + i], seq_id))
            if i == N_TOKENS // 2:
                state = bytes(context.save_state(0))
                context.seq_remove(0)
                seq_id = 1
                context.restore_state(state, seq_id)
        logits = hashlib.sha256(context.logits().tobytes()).hexdigest()
    return {"tokens": chosen, "logits": logits, "state": hashlib.sha256(state).hexdigest()}


if __name__ == "__main__":
    with Model(sys.argv[1], n_gpu_layers=int(sys.argv[2])) as model:
        print(json.dumps(speak(model)))
