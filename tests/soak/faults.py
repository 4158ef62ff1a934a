"""What goes wrong in a soak on purpose: parks that are refused, memory that cannot be pinned."""

from __future__ import annotations

import ctypes
import os
import random
from typing import Any

import pytest
from pyggml_server.engine.preemption import apply
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.transfers.transfer import TransferRefusedError

REFUSED_SHARE = 0.1
#: States of the soak's model are a few MiB: some above, some below these.
LOCKED_BYTES = (0, 2 * 1024 * 1024, 2**64 - 1, 2**64 - 1)


class Refusals:
    """Makes every tenth park fail as an allocation that is refused does; counts them."""

    def __init__(self, patch: pytest.MonkeyPatch, rng: random.Random) -> None:
        self.n = 0
        issue = apply.Applier._park

        def park(applier: apply.Applier, unit: list[Slot], reason: Any) -> bool:
            if rng.random() >= REFUSED_SHARE:
                return issue(applier, unit, reason)
            self.n += 1
            with pytest.MonkeyPatch.context() as once:
                once.setattr(type(unit[0].transfer), "save", _refuse)
                return issue(applier, unit, reason)

        patch.setattr(apply.Applier, "_park", park)


def _refuse(_transfer: object, seq_id: int, **_how: bool) -> None:
    raise TransferRefusedError(f"sequence {seq_id} is not saved: the soak refuses it")


def choose_pageable(rng: random.Random) -> str:
    """On simdev: how much can be pinned. Returns what was chosen, in words."""
    if "GGML_BACKEND_PATH" not in os.environ:
        return "on the CPU"
    most_bytes = rng.choice(LOCKED_BYTES)
    library = ctypes.CDLL(os.environ["GGML_BACKEND_PATH"])
    library.simdev_set.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
    assert library.simdev_set(b"pin_fails_above_bytes", most_bytes)
    return "on simdev, never pageable" if most_bytes == LOCKED_BYTES[-1] else f"on simdev, {most_bytes} bytes locked"
