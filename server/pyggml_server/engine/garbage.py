"""What the garbage collector looks at while the server serves. Engine thread.

A full collection visits every object that can be part of a cycle, tens of thousands of them once a model is loaded, and
all slots wait for it between two tokens. What is there when the port opens stays until the model is freed, so those
objects are out of its sight until then; what requests leave behind is looked at as before.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def settled() -> Iterator[None]:
    """Inside the block no collection visits what was there at its start. Blocks for one collection at the start."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
