"""The prompt cache (--cache-ram, --cache-idle-slots): prompts that lose their slot are kept in host memory.

Engine thread; blocks for its copies. It is as in llama-server, which also decides what is kept and what is found. Of a
prompt that is found only what the new one begins with is used, so no request is answered from another's text or images.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable

from pyggml_server.engine.slots.images import ImageNames, Images
from pyggml_server.engine.slots.kv_pool import KvPool
from pyggml_server.engine.slots.slot import Job, Slot
from pyggml_server.native.adapters import NO_ADAPTERS
from pyggml_server.native.border import PyggmlError
from pyggml_server.native.prompt_cache import NativePromptCache
from pyggml_server.native.runtime import Runtime

log = logging.getLogger(__name__)

N_IMAGES_KEPT = 4096  # of the latest prompts with images: beyond that they are not found again


class PromptCache:
    """The prompts of slots that others took."""

    def __init__(self, runtime: Runtime, pool: KvPool, slots: Iterable[Slot], names: ImageNames) -> None:
        self._names = names
        self._images: deque[Images] = deque(maxlen=N_IMAGES_KEPT)  # keeps the names that are in cached prompts
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
            self._hold(slot, found)

    def _hold(self, slot: Slot, tokens: list[int]) -> None:
        """The slot's cells are those of a cached prompt now."""
        images = self._names.images_in(tokens)
        if images is None:
            log.debug("slot %d: the cached prompt has images that are no longer known", slot.id)
            self._pool.clear(slot)
            return
        slot.hold(tokens, images)
        log.info("slot %d: took %d tokens from the prompt cache", slot.id, len(tokens))

    def _note_images(self, slot: Slot) -> None:
        """What the slot holds goes to the cache."""
        if slot.has_images:
            self._images.append(slot.images)

    def keep_idle(self, slots: Iterable[Slot]) -> None:
        """A task has started: the prompts of idle slots make room for it (--cache-idle-slots)."""
        if self._cache is None or not self._caches_idle:
            return
        for slot in slots:
            if slot.is_idle and slot.tokens:
                if self._keep(slot):
                    log.debug("slot %d: __TEST_TAG_CACHE_IDLE_SLOT__", slot.id)
                    self._cache.trim()
                if self._runtime.is_unified:  # else its cells are no use to others
                    self._pool.clear(slot)

    def _keep(self, slot: Slot) -> bool:
        cache = self._cache_for(slot)
        if cache is None:
            return False
        self._note_images(slot)
        try:
            return cache.save(slot.id, slot.tokens, self._pool.checkpoints.of(slot))
        except PyggmlError as error:
            log.warning("slot %d: the prompt is not cached: %s", slot.id, error)
            return False

    def _cache_for(self, slot: Slot) -> NativePromptCache | None:
        """The cache for what the slot holds; None where it holds nothing that can be kept."""
        if self._cache is None or not slot.tokens or slot.has_pending_shift:
            return None
        if slot.adapters != self._adapters:
            self._cache = NativePromptCache(self._runtime)  # it holds prompts of one set of scales only, the latest
            self._adapters = slot.adapters
        return self._cache
