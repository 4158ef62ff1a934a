"""The prompt cache while others decode: states go through pinned memory, and the helper thread moves the bytes.

Engine thread; blocks only for a state that is larger than that memory. A prompt is found by others once it is whole:
until then who wants it waits. An idle slot that waits for its turn to be saved can still be had, with what it holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyggml_server.engine.background.jobs import BackgroundJob, InLine, Steps, completion
from pyggml_server.engine.background.prompt_files import PromptFiles
from pyggml_server.engine.background.runner import BackgroundRunner
from pyggml_server.engine.idle_slots.prompt_cache import PromptCache
from pyggml_server.engine.slots.common_prefix import common_prefix
from pyggml_server.engine.slots.images import ImageNames
from pyggml_server.engine.slots.kv_pool import KvPool
from pyggml_server.engine.slots.slot import Job, Slot
from pyggml_server.engine.transfers.transfer import TransferRefusedError
from pyggml_server.native.kept_prompt import KeptPrompt
from pyggml_server.native.prompt_cache import NativePromptCache
from pyggml_server.native.runtime import Runtime

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Save(InLine):
    """A prompt on its way to the cache. `has_left`: what the slot does with its cells is of no more interest."""

    tokens: list[int]
    job: BackgroundJob | None = None
    has_left: bool = False

    def begin(self) -> None:
        """Take its first steps now, if it can."""
        if self.job is not None:
            self.job.advance()

    def is_done(self) -> bool:
        return self.has_left or self.job is None or self.job.is_done()

    def wait(self) -> None:
        while self.job is not None and not self.is_done():
            self.job.wait_for_step()


class AsyncPromptCache(PromptCache):
    """The same decisions, with copies that stop no other slot."""

    def __init__(
        self,
        runtime: Runtime,
        pool: KvPool,
        slots: Iterable[Slot],
        names: ImageNames,
        copies: BackgroundRunner,
        files: PromptFiles | None = None,
    ) -> None:
        super().__init__(runtime, pool, slots, names, files)
        self._copies = copies
        self._coming: list[_Save] = []

    def keep_idle(self, slots: Iterable[Slot]) -> None:
        """A task has started: the prompts of idle slots make room for it, one after the other."""
        if not self._caches_idle:
            return
        for slot in slots:
            if slot.is_free_for(None) and slot.tokens and slot.background_job is None:
                slot.background_job = self._start_save(slot, self._leaves, is_optional=True).job

    def start_exchange(self, slot: Slot, job: Job) -> bool:
        if self._cache is None or not job.prompt:
            return False
        slot.background_job = self._copies.start(f"slot {slot.id}: the exchange of prompts", self._exchange(slot, job))
        return True

    # -- out ----------------------------------------------------------------------------------------------------------

    def _start_save(self, slot: Slot, then: Callable[[Slot], None], *, is_optional: bool = False) -> _Save:
        save = _Save(list(slot.tokens))
        steps = self._save(slot, save, then)
        save.job = self._copies.start(f"slot {slot.id}: the save of its prompt", steps, is_optional=is_optional)
        self._coming = [*(other for other in self._coming if not _has_ended(other)), save]
        return save

    def _leaves(self, slot: Slot) -> None:
        slot.background_job = None
        if self._runtime.is_unified:  # else its cells are no use to others
            self._pool.clear(slot)

    def _save(self, slot: Slot, save: _Save, then: Callable[[Slot], None]) -> Steps[None]:
        """`then` is called once the slot's cells are not needed any more."""
        out = self._copies.out
        yield self._copies.turn(out)
        with out.turn():
            try:
                issued = yield from self._issue(slot)
                if issued is not None and not out.frees_on_issue:
                    yield from completion(out)
            finally:
                save.has_left = True
                then(slot)
            if issued is not None:
                yield from completion(out)
                yield from self._bring(*issued)
                log.debug("slot %d: __TEST_TAG_CACHE_IDLE_SLOT__", slot.id)

    def _issue(self, slot: Slot) -> Steps[tuple[NativePromptCache, KeptPrompt] | None]:
        """Issue the copy out. None where there is nothing to bring to the cache."""
        cache = self._cache_for(slot)
        if cache is None:
            return None
        sizes_bytes = self._copies.out.sizes_bytes(slot.id)
        if not (yield from self._copies.out.room_for(sizes_bytes)):
            log.info("slot %d: the prompt is larger than the memory it must pass through", slot.id)
            if self._keep(slot):
                cache.trim()
            return None
        self._note_images(slot)
        kept = cache.begin(slot.tokens, self._pool.checkpoints.of(slot), sum(sizes_bytes))
        if kept is None:
            return None
        try:
            self._copies.out.save(slot.id, sizes_bytes)
        except TransferRefusedError as error:
            log.warning("slot %d: the prompt is not cached: %s", slot.id, error)
            return None
        return cache, kept

    def _bring(self, cache: NativePromptCache, kept: KeptPrompt) -> Steps[None]:
        states = self._copies.out.states()
        yield from self._copies.helper.run(lambda: kept.put(states))
        cache.add(kept)

    # -- in -----------------------------------------------------------------------------------------------------------

    def _exchange(self, slot: Slot, job: Job) -> Steps[None]:
        """As `exchange`, step by step. It ends early where the job was cancelled."""
        try:
            log.debug("slot %d: updating prompt cache", slot.id)
            if slot.tokens:
                save = self._start_save(slot, lambda _: None)
                save.begin()
                yield save
            if slot.has_pending_shift:
                self._pool.clear(slot)
            self._pool.switch_adapters(slot, job.task.adapters)
            cache, loaded = self._cache, None
            if cache is not None and job.task.adapters == self._adapters:
                yield _Coming(self._coming, slot.tokens, job.prompt)
                yield self._copies.turn(self._copies.into)
                self._add_read(cache, job.wanted_file)
                loaded = yield from self._load(cache, slot, job)
        finally:
            slot.background_job = None
        if loaded is not None:
            yield from self._copies.helper.run(loaded.close)

    def _load(self, cache: NativePromptCache, slot: Slot, job: Job) -> Steps[KeptPrompt | None]:
        """Give the slot what the cache knows of the job's prompt, if that is more. Returns what can be freed then."""
        into = self._copies.into
        with into.turn():
            if slot.reserved_for is not job or self._finds_no_room(cache, slot, job.prompt):
                return None
            kept = cache.take(slot.tokens, job.prompt)
            if kept is None:
                return None
            images = self._names.images_in(kept.tokens)
            if images is None:
                return kept  # nobody can use it any more
            if not (yield from into.room_for(kept.sizes_bytes)):
                cache.add(kept)
                self._take(cache, slot, job.prompt)
                return None
            blanks = into.blanks(kept.sizes_bytes)
            yield from self._copies.helper.run(lambda: kept.copy_to(blanks))
            if slot.reserved_for is not job:
                cache.add(kept)
                return None
            self._pool.clear(slot)
            if not self._pool.has_room(self._slots, len(kept.tokens)):
                log.debug("slot %d: there is no longer room for the cached prompt", slot.id)
                cache.add(kept)
                return None
            try:
                into.restore(slot.id)
            except TransferRefusedError as error:
                log.warning("slot %d: a cached prompt could not be restored: %s", slot.id, error)
                cache.add(kept)
                return None
            slot.hold(kept.tokens, images)
            kept.give_checkpoints(self._pool.checkpoints.of(slot))
            yield from completion(into)
            log.info("slot %d: took %d tokens from the prompt cache", slot.id, len(slot.tokens))
            return kept


class _Coming(InLine):
    """The moment at which no prompt is on its way to the cache that has more in common with the wanted one."""

    def __init__(self, saves: list[_Save], have: list[int], wanted: list[int]) -> None:
        n_have = common_prefix(have, wanted)
        self._saves = [save for save in saves if not _has_ended(save) and common_prefix(save.tokens, wanted) > n_have]

    def is_done(self) -> bool:
        return all(_has_ended(save) for save in self._saves)

    def wait(self) -> None:
        for save in self._saves:
            if save.job is not None:
                save.job.wait()


def _has_ended(save: _Save) -> bool:
    return save.job is None or save.job.is_done()
