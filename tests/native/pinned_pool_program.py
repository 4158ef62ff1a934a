"""A pool of pinned memory on simdev: `pinned_pool_program.py MODEL CASE`. Prints one JSON object.

Run in a process of its own, with simdev's variables. Counts what simdev's trace says, times nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from pyggml import ClosedError, Context, ContextParams, Model, PinnedPool
from tests.native.state_transfers_program import Trace

PIECE = 1 << 16

Result = dict[str, object]


def grows(pool: PinnedPool, trace: Trace) -> Result:
    """One piece for each call, and none for a call too many."""
    pool.grow(3 * PIECE)
    n_pins, calls = [], 0
    while pool.is_growing:
        if pool.advance():
            n_pins.append(trace.count("pin"))
        calls += 1
    return {"n_pins": n_pins, "again": pool.advance(), "pinned": pool.pinned_bytes, "can_grow": pool.can_grow}


def gives_back(pool: PinnedPool, trace: Trace) -> Result:
    """Taking and giving back lock and unlock nothing; trimming unlocks what lies behind the last range."""
    pool.fill(4 * PIECE)
    first, second = pool.take(PIECE), pool.take(PIECE // 2)
    assert first is not None
    assert second is not None
    first.view[:] = 5
    side_by_side = second.address == first.address + PIECE
    aligned = first.address % PIECE == 0
    first.give_back()
    first.give_back()
    try:
        first.view[:] = 1
    except ClosedError as error:
        after = str(error)
    held = pool.held_bytes
    unpins_before = trace.count("unpin")
    pool.trim()
    kept, unpins = pool.pinned_bytes, trace.count("unpin")
    second.give_back()
    pool.trim(PIECE)
    return {
        "side_by_side": side_by_side,
        "aligned": aligned,
        "held": held,
        "after": after,
        "unpins": [unpins_before, unpins, trace.count("unpin")],
        "pinned": [kept, pool.pinned_bytes],
    }


def grows_again(pool: PinnedPool, trace: Trace) -> Result:
    """After a trim the same pieces are locked again."""
    pool.fill(3 * PIECE)
    pool.trim()
    return {"filled": pool.fill(2 * PIECE), "pins": trace.count("pin"), "unpins": trace.count("unpin")}


def fills(pool: PinnedPool, trace: Trace) -> Result:
    """Filled at once; the program then closes the context before the pool."""
    return {"filled": pool.fill(2 * PIECE), "unpins": trace.count("unpin")}


def refuses_to_close(pool: PinnedPool, trace: Trace) -> Result:
    """A range that is held keeps the pool from being closed."""
    pool.fill(PIECE)
    part = pool.take(10)
    assert part is not None
    try:
        pool.close()
    except BufferError as error:
        part.give_back()
        return {"said": str(error), "unpins": trace.count("unpin")}
    return {"said": "closed"}


CASES: dict[str, Callable[[PinnedPool, Trace], Result]] = {
    case.__name__: case for case in (grows, gives_back, grows_again, fills, refuses_to_close)
}


def run_case(model: Model, case: str) -> Result:
    """What the case says, and what the trace has when context and pool are closed, in this order."""
    trace = Trace()
    context = Context(model, ContextParams(n_ctx=256, n_threads=1, n_threads_batch=1))
    pool = PinnedPool(context, 4 * PIECE, PIECE)
    said = CASES[case](pool, trace)
    context.close()
    pool.close()
    return said | {"all_pins": trace.count("pin"), "all_unpins": trace.count("unpin")}


if __name__ == "__main__":
    with Model(sys.argv[1], n_gpu_layers=99) as model:
        print(json.dumps(run_case(model, sys.argv[2])))
