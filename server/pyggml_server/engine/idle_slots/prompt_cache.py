"""The prompt cache (--cache-ram, --cache-idle-slots): prompts that lose their slot are kept in host memory.

Engine thread; blocks for its copies. It is as in llama-server, which also decides what is kept and what is found. Of a
prompt that is found only what the new one begins with is used, so no request is answered from another's text or images.
With `--cache-disk` what it has no room for goes to files, and comes back from there; neither blocks.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Iterable

from pyggml_server.engine.background.prompt_files import PromptFiles, PromptRead
from pyggml_server.engine.background.prompt_index import NO_ENTRY, Entry
from pyggml_server.engine.slots.images import ImageNames, Images
from pyggml_server.engine.slots.kv_pool import KvPool
from pyggml_server.engine.slots.slot import Job, Slot
from pyggml_server.native.adapters import NO_ADAPTERS, Adapters
from pyggml_server.native.border import PyggmlError
from pyggml_server.native.kept_prompt import KeptPrompt
from pyggml_server.native.prompt_cache import NativePromptCache
from pyggml_server.native.runtime import Runtime

log = logging.getLogger(__name__)

#: How long the end of a server, or of a model load, waits for files at most.
LAST_WRITES_S = 30.0
N_IMAGES_KEPT = 4096  # of the latest prompts with images: beyond that they are not found again


class PromptCache:
    """The prompts of slots that others took."""

    def __init__(
        self,
        runtime: Runtime,
        pool: KvPool,
        slots: Iterable[Slot],
        names: ImageNames,
        files: PromptFiles | None = None,
    ) -> None:
        self._names = names
        self._files = files
        self._reads: dict[Entry, PromptRead] = {}
        self._images: deque[Images] = deque(maxlen=N_IMAGES_KEPT)  # keeps the names that are in cached prompts
        self._runtime = runtime
        self._pool = pool
        self._slots = slots
        self._cache = self._new_cache() if runtime.has_prompt_cache and runtime.has_memory else None
        self._adapters = NO_ADAPTERS
        if self._caches_idle:
            log.debug("__TEST_TAG_CACHE_IDLE_SLOTS_ENABLED__")  # llama-server's own tests look for these two

    @property
    def _caches_idle(self) -> bool:
        return self._cache is not None and self._runtime.caches_idle_slots

    # -- files --------------------------------------------------------------------------------------------------------

    def poll(self, line: Iterable[Job]) -> None:
        """Once a pass: prompts that have no room any more go to files. `line`: who may wait for one."""
        if self._files is None or self._cache is None:
            return
        self._files.poll()
        if self._reads:
            wanted = {job.wanted_file for job in line}
            for entry in [entry for entry, read in self._reads.items() if read.has_ended and entry not in wanted]:
                self._add_read(self._cache, entry)
        while (kept := self._cache.take_evicted()) is not None:
            self._files.write(kept, _digest(self._adapters))

    def fetch(self, slot: Slot, job: Job) -> bool:
        """Whether a prompt is read for the job, which waits in line for that: one that is better than what slot and
        cache have. A job gets one such read."""
        if self._files is None or self._cache is None or not job.prompt or not job.task.caches_prompt:
            return False
        if job.wanted_file is None:
            job.wanted_file = self._find_file(self._files, self._cache, slot, job) or NO_ENTRY
            if job.wanted_file is not NO_ENTRY and job.wanted_file not in self._reads:
                self._reads[job.wanted_file] = self._files.read(job.wanted_file)
        read = self._reads.get(job.wanted_file)
        return read is not None and self._files.is_worth_waiting_for(read)

    def _add_read(self, cache: NativePromptCache, entry: Entry | None) -> None:
        """What was read of a file is in the cache now, as its newest. Nothing where nothing was."""
        read = None if entry is None else self._reads.get(entry)
        if read is None or not read.has_ended:
            return
        del self._reads[read.entry]
        if read.kept is not None and read.entry.adapters == _digest(self._adapters):
            cache.add(read.kept)

    def _find_file(self, files: PromptFiles, cache: NativePromptCache, slot: Slot, job: Job) -> Entry | None:
        adapters = job.task.adapters
        if adapters != self._adapters:
            if cache.size().n_prompts:
                return None  # it holds prompts of other scales
            self._adapters = adapters
        found = files.find(_digest(adapters), slot.tokens if slot.adapters == adapters else [], job.prompt)
        if found is None or len(found[0].tokens) > slot.n_ctx:
            return None
        entry, n_common = found
        limit_bytes = self._runtime.cache_ram_bytes
        if cache.find(slot.tokens, job.prompt)[1] >= n_common or (limit_bytes and entry.n_bytes > limit_bytes):
            return None
        log.info("slot %d: reading a prompt of %d tokens from a file", slot.id, len(entry.tokens))
        return entry

    def close(self) -> None:
        """The model is freed soon, and no slot works: write what files have room for. Blocks, but not for ever."""
        if self._files is None or self._cache is None:
            return
        for slot in self._slots:
            slot.wait_for_background_job()
            self._keep(slot)
        left: list[KeptPrompt] = []
        for take in (self._cache.take_evicted, self._cache.take_oldest):
            while (kept := take()) is not None:
                left.append(kept)
        self._files.finish(left, _digest(self._adapters), LAST_WRITES_S)

    def _new_cache(self) -> NativePromptCache:
        return NativePromptCache(self._runtime, hands_out=self._files is not None)

    def _change_adapters(self, adapters: Adapters) -> None:
        """The cache holds prompts of one set of scales only, the latest."""
        if self._files is not None and self._cache is not None:
            while (kept := self._cache.take_evicted() or self._cache.take_oldest()) is not None:
                self._files.write(kept, _digest(self._adapters))
        self._cache = self._new_cache()
        self._adapters = adapters

    # -- host memory --------------------------------------------------------------------------------------------------

    def start_exchange(self, _slot: Slot, _job: Job) -> bool:
        """Begin an exchange while others decode, while the job waits in line. False: `exchange` once it is launched."""
        return False

    def exchange(self, slot: Slot, job: Job) -> None:
        """Keep what a slot holds, and give it what is known of the job's prompt, if that is more."""
        if self._cache is None or not job.prompt:
            return
        log.debug("slot %d: updating prompt cache", slot.id)
        self._keep(slot)
        self._add_read(self._cache, job.wanted_file)
        if slot.has_pending_shift:
            self._pool.clear(slot)
        self._pool.switch_adapters(slot, job.task.adapters)
        if job.task.adapters == self._adapters:
            self._take(self._cache, slot, job.prompt)
        self._cache.trim()

    def _finds_no_room(self, cache: NativePromptCache, slot: Slot, prompt: list[int]) -> bool:
        """Whether there is a better prompt that the pool cannot hold now. If so, the slot is emptied, as in
        llama-server."""
        n_found, _ = cache.find(slot.tokens, prompt)
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
            self._change_adapters(slot.adapters)
        return self._cache


def _digest(adapters: Adapters) -> bytes:
    """Of the scales, for files."""
    return hashlib.sha256(repr(adapters).encode()).digest()
