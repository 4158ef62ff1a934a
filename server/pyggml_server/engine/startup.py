"""From a loaded model and the options to an engine state, and the banner that says what was decided. Engine thread."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyggml_server.config import PreemptOptions
from pyggml_server.engine.background.disk import Disk
from pyggml_server.engine.background.memory import start_background_runner
from pyggml_server.engine.background.piecewise_file import StateFileError
from pyggml_server.engine.background.prompt_files import PromptFiles
from pyggml_server.engine.background.prompt_folder import FolderInUseError, PromptFolder
from pyggml_server.engine.background.prompt_origin import origin_of
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.reporting.counters import Counters
from pyggml_server.engine.slots.kv_pool import KvPool
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.transfers.choice import TransferChoice, choose_transfers, synchronous_transfers
from pyggml_server.engine.transfers.host_memory_budget import MIB, default_ram_limit_bytes
from pyggml_server.errors import LoadError
from pyggml_server.planner.policy import Policy, VictimPolicy

if TYPE_CHECKING:
    from pyggml_server.native.runtime import Runtime

log = logging.getLogger(__name__)


def build_state(
    runtime: Runtime, options: PreemptOptions, counters: Counters | None = None, *, has_slot_files: bool = False
) -> EngineState:
    """Slots, pool and policy for this model load; says in one line whether chats can be parked, and why not.

    Raises LoadError where the files of --preempt-disk or --cache-disk cannot be made.

    `counters`: those of an earlier load, since a model may be loaded more than once in a run.
    `has_slot_files`: slots may be saved to files.
    """
    limit_bytes = default_ram_limit_bytes() if options.ram_mib is None else options.ram_mib * MIB
    why_off = why_preemption_is_off(runtime, limit_bytes)
    policy = Policy(
        is_enabled=why_off is None,
        victim=VictimPolicy(options.policy),
        rotate_s=options.rotate_s,
        age_s=options.priority_age_s,
        n_preempt_every=options.every_n_tokens,
    )
    choice = _choose_transfers(runtime, options, limit_bytes, why_off)
    n = runtime.n_slots
    slots = [Slot(i, runtime.n_ctx_slot, choice.make(i), speculates=runtime.speculates) for i in range(n)]
    state = EngineState(runtime, KvPool(runtime), slots, policy, limit_bytes, choice.memory, choice.sizes)
    state.counters = counters or state.counters
    _open_disk(state, options, why_off)
    state.background = start_background_runner(
        runtime, choice, use_async=options.use_async, has_slot_files=has_slot_files
    )
    return state


def _open_disk(state: EngineState, options: PreemptOptions, why_off: str | None) -> None:
    """Files for parked states, for prompts, for both, as was asked for. Raises LoadError."""
    runtime = state.runtime
    has_cache = bool(options.cache_disk_mib) and runtime.has_prompt_cache and runtime.has_memory
    states_mib = options.disk_mib if why_off is None else 0
    if options.cache_disk_mib and not has_cache:
        reason = "--cache-ram is 0" if runtime.has_memory else "the model has no KV cache"
        log.warning("prompt cache: no files (--cache-disk): %s", reason)
    if not states_mib and not has_cache:
        return
    state.disk = Disk(states_mib * MIB, options.disk_path, is_for_prompts=has_cache)
    state.memory.add_pageable(state.disk.abandoned)
    if has_cache:
        state.prompt_files = _prompt_files(runtime, state.disk, options.cache_disk_mib * MIB)


def _prompt_files(runtime: Runtime, disk: Disk, limit_bytes: int) -> PromptFiles | None:
    """None where another server has them. Says in one line what is there. Raises LoadError."""
    try:
        origin = origin_of(*runtime.state_origin())
        folder = PromptFolder(disk.folder, origin.hex()[:16])
        files = PromptFiles(disk, folder, origin, limit_bytes, keeps_checkpoints=not runtime.speculates)
    except FolderInUseError as error:
        log.warning("prompt cache: no files (--cache-disk): %s; name another folder with --disk-path", error)
        return None
    except (OSError, StateFileError) as error:
        disk.close()
        raise LoadError(f"--cache-disk: {error}; name another folder with --disk-path") from error
    used_mib, limit_mib = files.held_bytes / MIB, limit_bytes // MIB
    log.info("prompt cache: %d prompts in files, %.1f of %d MiB in %s", len(files), used_mib, limit_mib, folder.path)
    return files


def _choose_transfers(
    runtime: Runtime, options: PreemptOptions, limit_bytes: int, why_off: str | None
) -> TransferChoice:
    """Makes each slot's transfer. Without preemption none is asynchronous: a decode then records no fences."""
    if why_off is not None:
        log.info("preemption: off, %s", why_off)
        return TransferChoice(synchronous_transfers(runtime), why_off)
    choice = choose_transfers(runtime, options.use_async, limit_bytes, options.staging_mib)
    log.info("preemption: on, %s, up to %d MiB, policy %s", choice.banner, limit_bytes // MIB, options.policy)
    return choice


def why_preemption_is_off(runtime: Runtime, ram_limit_bytes: int) -> str | None:
    """The reason for serving without preemption, or None."""
    if ram_limit_bytes <= 0:
        return "--preempt-ram is 0"
    if not runtime.has_memory:
        return "the model has no KV cache"
    if runtime.is_recurrent:
        return "a purely recurrent model has no pool to run out of"
    if runtime.n_slots < 2:
        return "there is one slot only"
    if not runtime.is_unified:
        return "each slot has a KV cache of its own (no --kv-unified)"
    return None
