"""One conversation leaves for host memory while the other goes on, and comes back as another sequence.

    .venv/bin/python examples/park_while_decoding.py model.gguf

Takes a device that copies asynchronously (a CUDA build, `n_gpu_layers`); says why and exits with 2 where there is none.
Prints how many tokens the other one decoded meanwhile, and exits with 1 if the conversation that was away is changed.
"""

from __future__ import annotations

import asyncio
import sys

import numpy as np

from pyggml import Batch, Context, ContextParams, Model, Transfer, UnsupportedError, rows_by_position

AWAY, STAYS, BACK = 0, 1, 2  # sequences


class Writer:
    """Appends the most likely token to a sequence, again and again."""

    def __init__(self, context: Context, seq_id: int, tokens: list[int]):
        self.context = context
        self.seq_id = seq_id
        self.pending = tokens
        self.written: list[int] = []

    def go_on(self, n_tokens: int) -> None:
        for _ in range(n_tokens):
            end = self.context.seq_pos_max(self.seq_id)
            first = 0 if end is None else end + 1
            positions = range(first, first + len(self.pending))
            self.context.decode(Batch.from_arrays(self.pending, positions, self.seq_id))
            self.pending = [int(np.argmax(self.context.logits()))]
            self.written += self.pending


async def write_until_done(writer: Writer, transfer: Transfer) -> int:
    """Decodes while the transfer's copy is in flight; how many tokens that were."""
    n_before = len(writer.written)
    while not transfer.done():
        writer.go_on(1)
        await asyncio.sleep(0)
    return len(writer.written) - n_before


async def park_and_restore(context: Context, away: Writer, stays: Writer) -> None:
    with Transfer(context) as transfer:
        n_bytes = transfer.save(AWAY)  # issued, not done
        n_meanwhile = await write_until_done(stays, transfer)
        print(f"parked {n_bytes} bytes, pinned: {transfer.is_pinned}; {n_meanwhile} tokens decoded meanwhile")
        context.seq_remove(AWAY)  # only now are its cells free
        stays.go_on(20)

        transfer.restore(BACK)
        n_meanwhile = await write_until_done(stays, transfer)
        print(f"restored as sequence {BACK}; {n_meanwhile} tokens decoded meanwhile")
        away.seq_id = BACK


def main(path: str) -> int:
    params = ContextParams(n_ctx=512, n_seq_max=3)
    with Model(path, n_gpu_layers=99) as model, Context(model, params) as context:
        away = Writer(context, AWAY, model.vocab.tokenize("The sea is").tolist())
        stays = Writer(context, STAYS, model.vocab.tokenize("Bread is made of").tolist())
        away.go_on(20)
        before = rows_by_position(context.save_state(AWAY))
        try:
            asyncio.run(park_and_restore(context, away, stays))
        except UnsupportedError as error:
            print(error)
            return 2
        same = rows_by_position(context.save_state(BACK)) == before
        away.go_on(20)
        print(model.vocab.detokenize(away.written))
        return 0 if same else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
