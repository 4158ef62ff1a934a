"""The prompt cache (--cache-ram, --cache-idle-slots): prompts that lose their slot are kept in host memory.

Engine thread; blocks for its copies. Prompts with images are not kept: they stay in their slots while there is room.
Else it is as in llama-server, which also decides what is kept and what is found. Of a
prompt that is found only what the new one begins with is used, so no request is answered from another's text.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pyggml_server.engine.slots.kv_pool import KvPool
from pyggml_server.engine.slots.slot import Job, Slot
from pyggml_server.native.adapters import NO_ADAPTERS
from pyggml_server.native.border import PyggmlError
from pyggml_server.native.prompt_cache import NativePromptCache
from pyggml_server.native.runtime import Runtime

log = logging.getLogger(__name__)


class PromptCache:
    """The prompts of slots that others took."""

    def __init__(self, runtime: Runtime, pool: KvPool, slots: Iterable[Slot]) -> None:
        self._runtime = runtime
        self._pool = pool
        self._slots = slots
        self._cache = NativePromptCache(runtime) if runtime.has_prompt_cache and runtime.has_memory else None
        self._adapters = NO_ADAPTERS
        if self._caches_idle:
            log.debug("__TEST_TAG_CACHE_IDLE_SLOTS_ENABLED__")  # llama-server's own tests look for these two

    @property
    def _caches_idle(self) -> bool:
        return self._cache is not None and self._runtime.caches_idle_slots

    def start_exchange(self, _slot: Slot, _job: Job) -> bool:
        """Begin an exchange while others decode, while the job waits in line. False: `exchange` once it is launched."""
        return False

    def exchange(self, slot: Slot, job: Job) -> None:
        """Keep what a slot holds, and give it what is known of the job's prompt, if that is more."""
        if self._cache is None or not job.prompt:
            return
        log.debug("slot %d: updating prompt cache", slot.id)
        self._keep(slot)
        if slot.has_pending_shift:
            self._pool.clear(slot)
        self._pool.switch_adapters(slot, job.task.adapters)
        if job.task.adapters == self._adapters:
            self._take(self._cache, slot, job.prompt)
        self._cache.trim()

    def _finds_no_room(self, cache: NativePromptCache, slot: Slot, prompt: list[int]) -> bool:
        """Whether there is a better prompt that the pool cannot hold now. If so, the slot is emptied, as in
        llama-server."""
        n_found = cache.find(slot.tokens, prompt)
        if n_found == 0 or self._pool.has_room(self._slots, n_found, giving_up=slot):
            return False
        log.debug("slot %d: there is no room for the cached prompt of %d tokens", slot.id, n_found)
        self._pool.clear(slot)
        return True

    def _take(self, cache: NativePromptCache, slot: Slot, prompt: list[int]) -> None:
        if self._finds_no_room(cache, slot, prompt):
            return
        found = cache.load(slot.id, slot.tokens, prompt, self._pool.checkpoints.of(slot))
        if found is None:
            log.warning("slot %d: a cached prompt could not be restored: no room", slot.id)
            self._pool.clear(slot)
        elif found != slot.tokens:
            log.info("slot %d: took %d tokens from the prompt cache", slot.id, len(found))
            slot.hold_text(found)

    def keep_idle(self, slots: Iterable[Slot]) -> None:
        """A task has started: the prompts of idle slots make room for it (--cache-idle-slots)."""
        if self._cache is None or not self._caches_idle:
            return
        for slot in slots:
            if slot.is_idle and slot.tokens and not slot.has_images:
                if self._keep(slot):
                    log.debug("slot %d: __TEST_TAG_CACHE_IDLE_SLOT__", slot.id)
                    self._cache.trim()
                if self._runtime.is_unified:  # else its cells are no use to others
                    self._pool.clear(slot)

    def _keep(self, slot: Slot) -> bool:
        cache = self._cache_for(slot)
        if cache is None:
            return False
        try:
            return cache.save(slot.id, slot.tokens, self._pool.checkpoints.of(slot))
        except PyggmlError as error:
            log.warning("slot %d: the prompt is not cached: %s", slot.id, error)
            return False

    def _cache_for(self, slot: Slot) -> NativePromptCache | None:
        """The cache for what the slot holds; None where it holds nothing that can be kept."""
        if self._cache is None or not slot.tokens or slot.has_pending_shift or slot.has_images:
            return None
        if slot.adapters != self._adapters:
            self._cache = NativePromptCache(self._runtime)  # it holds prompts of one set of scales only, the latest
            self._adapters = slot.adapters
        return self._cache
