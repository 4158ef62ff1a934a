"""How much memory on each device parks and restores pass through. Pure; decided before the model is loaded."""

from __future__ import annotations

from typing import Protocol

from pyggml_server.config import PreemptOptions
from pyggml_server.engine.transfers.host_memory_budget import MIB


class PoolSettings(Protocol):
    """The command line, as far as it decides whether chats can be parked."""

    @property
    def n_parallel(self) -> int:
        """Number of slots."""

    @property
    def kv_unified(self) -> bool:
        """Whether they share one pool."""


def staging_bytes(settings: PoolSettings, options: PreemptOptions) -> int:
    """For each device; 0 where nothing will be parked while others decode, so that no memory is taken for nothing."""
    can_park = options.ram_mib != 0 and settings.n_parallel > 1 and settings.kv_unified
    return options.staging_mib * MIB if can_park and options.use_async else 0
