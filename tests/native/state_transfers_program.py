"""Counts the transfers of a save and a restore on simdev: `state_transfers_program.py MODEL LAYOUT [exhausted]`.

LAYOUT says how the cells of four sequences lie. Prints one JSON object. Run in a process of its own, with simdev's
variables.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import random
import sys
import tempfile

from pyggml import Batch, Context, ContextParams, FlashAttention, Model

N_SEQUENCES, N_CELLS, MEASURED = 4, 60, 1


def owners_of_cells(layout: str) -> list[int]:
    """The sequence of each cell, in order of cells."""
    if layout == "blocks":
        return [seq_id for seq_id in range(N_SEQUENCES) for _ in range(N_CELLS)]
    owners = list(range(N_SEQUENCES)) * N_CELLS
    if layout == "irregular":
        random.Random(5).shuffle(owners)
    return owners


def fill(context: Context, owners: list[int]) -> None:
    positions = [owners[:i].count(seq_id) for i, seq_id in enumerate(owners)]
    context.decode(Batch.from_arrays([5 + i % 90 for i in range(len(owners))], positions, owners))
    context.synchronize()


class Trace:
    """simdev's trace of this process."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(os.environ["GGML_BACKEND_PATH"])

    def set_knob(self, name: str, value: int) -> None:
        self.library.simdev_set.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
        assert self.library.simdev_set(name.encode(), value)

    def clear(self) -> None:
        self.library.simdev_trace_clear()

    def count(self, *kinds: str) -> int:
        """Operations of these kinds since the last clear; a 2-D transfer counts once."""
        with tempfile.NamedTemporaryFile() as file:
            self.library.simdev_trace_dump.argtypes = [ctypes.c_char_p]
            assert self.library.simdev_trace_dump(file.name.encode())
            return sum(json.loads(line)["kind"] in kinds for line in file)

    def n_transfers(self) -> int:
        """Sets and gets since the last clear."""
        return self.count("set", "get")


def digest(context: Context, seq_id: int) -> str:
    return hashlib.sha256(bytes(context.save_state(seq_id))).hexdigest()


def count(model: Model, layout: str, exhausted: bool) -> dict[str, object]:
    """Transfers of the second save and restore (the first asks the device what it can), and what they moved.

    `exhausted`: the device gives no more memory from then on.
    """
    params = ContextParams(
        n_ctx=512, n_seq_max=N_SEQUENCES, n_threads=1, n_threads_batch=1, flash_attention=FlashAttention.ON
    )
    with Context(model, params) as context:
        fill(context, owners_of_cells(layout))
        trace = Trace()
        state = bytes(context.save_state(MEASURED))
        neighbours = [digest(context, seq_id) for seq_id in range(N_SEQUENCES) if seq_id != MEASURED]
        if exhausted:
            trace.set_knob("memory_bytes", 1)
        trace.clear()
        saved = bytes(context.save_state(MEASURED))
        n_save = trace.n_transfers()
        context.seq_remove(MEASURED)
        trace.clear()
        context.restore_state(state, MEASURED)
        n_restore = trace.n_transfers()
        same = [digest(context, seq_id) for seq_id in range(N_SEQUENCES) if seq_id != MEASURED]
        restored = bytes(context.save_state(MEASURED))
    return {
        "n_save": n_save,
        "n_restore": n_restore,
        "state": hashlib.sha256(state).hexdigest(),
        "unchanged": state == saved == restored and neighbours == same,
    }


if __name__ == "__main__":
    with Model(sys.argv[1], n_gpu_layers=99) as model:
        print(json.dumps(count(model, sys.argv[2], exhausted=sys.argv[3:] == ["exhausted"])))
