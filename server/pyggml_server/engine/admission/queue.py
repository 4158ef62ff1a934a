"""Tasks on their way to a slot: which slot a task gets, and the line of those that found none. Engine thread."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from pyggml_server.engine.admission.admissible import check_admissible
from pyggml_server.engine.admission.line_limits import has_waited_too_long, one_too_many, retry_after_s
from pyggml_server.engine.idle_slots.async_prompt_cache import AsyncPromptCache
from pyggml_server.engine.idle_slots.prompt_cache import PromptCache
from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.slots.images import named
from pyggml_server.engine.slots.slot import Job, Slot
from pyggml_server.engine.slots.slot_states import SlotPhase

if TYPE_CHECKING:
    from pyggml_server.native.task import Task

log = logging.getLogger(__name__)

KEPT_SHARE = 0.5  # a slot that would keep less of what it holds gives it to the prompt cache first


class TaskQueue:
    """The line in front of the slots, by class and then first come first served, among those whose slot is
    free."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._kept = _kept_prompts(state)
        self._line: deque[Job] = deque()

    def __len__(self) -> int:
        return sum(1 + len(job.children) for job in self._line)

    def add(self, task_id: int, task: Task, priority: int = 0) -> None:
        """A new task: into the line. One that cannot ever run does not wait there while all slots are busy."""
        state = self._state
        state.n_requests += 1
        images = state.image_names.images_of(task)
        prompt = named(task.tokens.tolist(), images)
        job = Job(task_id, task, state.n_requests, prompt, priority, state.clock(), images)
        if self._joins_its_parent(job):
            return
        refusal = check_admissible(job, state.runtime)
        if refusal is not None and not any(slot.is_free_for(job) for slot in state.slots):
            endings.fail_unplaced(state, task_id, refusal.message, refusal.error_type, **refusal.extra)
            task.close()
            return
        self._line.append(job)
        is_orphan = task.parent is not None and job.n_prompt > 0
        n_idle = sum(slot.is_idle for slot in state.slots)
        too_many = job if is_orphan else one_too_many(self._by_class(), n_idle, state.serve.max_queue)
        if too_many is not None:  # an orphan's request was refused before
            self._refuse(
                too_many, f"the server is busy: {state.serve.max_queue} requests are already waiting (--max-queue)"
            )

    def _joins_its_parent(self, job: Job) -> bool:
        """Where a request wants several answers (n > 1) their jobs wait as one, with the first."""
        for other in self._line:
            if other.task is job.task.parent and other.prompt:
                other.children.append(job)
                return True
        return False

    def cancel(self, task_id: int) -> bool:
        """Take a task out of the line, and those that wait for its prompt with it. False if it is not there."""
        for job in self._line:
            if job.task_id == task_id:
                self._line.remove(job)
                self._end_as_cancelled(job, *job.children)
                return True
            for child in job.children:
                if child.task_id == task_id:
                    job.children.remove(child)
                    job.n_children_gone += 1
                    self._end_as_cancelled(child)
                    return True
        return False

    def _end_as_cancelled(self, *jobs: Job) -> None:
        for job in jobs:
            self._leave_reserved_slot(job)
            job.task.close()
            endings.cancel_unplaced(self._state, job.task_id)

    def _leave_reserved_slot(self, job: Job) -> None:
        for slot in self._state.slots:
            if slot.reserved_for is job:
                slot.reserved_for = None

    def _refuse(self, job: Job, message: str) -> None:
        """Take a job and its children out of the line: it has no hope of a slot soon."""
        now_s = self._state.clock()
        longest_s = max(now_s - other.arrived_at_s for other in self._line)
        self._line.remove(job)
        for one in (job, *job.children):
            self._leave_reserved_slot(one)
            one.task.close()
            endings.refuse_as_busy(self._state, one.task_id, message, retry_after_s(longest_s))

    @property
    def is_time_up(self) -> bool:
        """Whether one in line has waited for longer than `--max-queue-seconds`."""
        now_s, limit_s = self._state.clock(), self._state.serve.max_queue_s
        return any(has_waited_too_long(job, now_s, limit_s) for job in self._line)

    def expire(self) -> None:
        """Refuse those who have waited for longer than `--max-queue-seconds` and have not begun."""
        state = self._state
        now_s, limit_s = state.clock(), state.serve.max_queue_s
        message = f"the server is busy: the request waited for {limit_s:g} seconds (--max-queue-seconds)"
        for job in list(self._line):
            if has_waited_too_long(job, now_s, limit_s):
                self._refuse(job, message)
        for slot in state.busy():
            if slot.phase is SlotPhase.STARTED and has_waited_too_long(slot.active_job, now_s, limit_s):
                state.counters.tally.requests_refused_total += 1 + len(slot.children)
                endings.fail(state, slot, message, "unavailable_error", retry_after_s=retry_after_s(limit_s))

    def cancel_all(self) -> None:
        """Take every task out of the line."""
        while self._line:
            self.cancel(self._line[0].task_id)

    def place(self) -> None:
        """Give free slots to those in the line; one that wants a busy slot of its own does not hold the others up."""
        self._kept.poll(self._line)
        for job in self._by_class():
            if self._state.is_held_up:
                return
            chosen = self._choose(job) if self._has_room_for_all(job) else None
            if chosen is None or self._waits_for_file(*chosen, job):
                continue
            if not self._exchanges_first(*chosen, job):
                self._line.remove(job)  # before anything can go wrong with it: the others keep their places
                self._try_to_launch(*chosen, job)

    def _by_class(self) -> list[Job]:
        """Lower goes first, and then who came first. One that has waited for `--priority-age` is of the best class."""
        best = min((job.priority for job in self._line), default=0)
        age_s, now_s = self._state.policy.age_s, self._state.clock()

        def counts_as(job: Job) -> int:
            return best if 0 < age_s < now_s - job.arrived_at_s else job.priority

        return sorted(self._line, key=counts_as)

    def close(self) -> None:
        """The model is freed soon, and nothing runs or waits. Blocks to write prompts to files."""
        self._kept.close()

    def _waits_for_file(self, slot: Slot, loses_much: bool, job: Job) -> bool:
        """Whether its prompt is read from a file of the prompt cache; the slot can be had by others meanwhile."""
        return loses_much and not job.task.embeds and self._kept.fetch(slot, job)

    def _exchanges_first(self, slot: Slot, loses_much: bool, job: Job) -> bool:
        """Whether the slot, which is the job's from now on, changes prompts while others decode, for which it waits."""
        slot.drop_background_job()
        if loses_much and not job.task.embeds and self._kept.start_exchange(slot, job):
            slot.reserved_for = job
            return True
        return False

    def _has_room_for_all(self, job: Job) -> bool:
        """Whether the job's children have all arrived, and each finds an idle slot too."""
        n_missing = job.task.n_children - job.n_children_gone - len(job.children) if job.prompt else 0
        n_idle = sum(slot.is_free_for(job) for slot in self._state.slots)
        return n_missing == 0 and n_idle > len(job.children)

    def _choose(self, job: Job) -> tuple[Slot, bool] | None:
        """An idle slot for the job, and whether the slot would lose so much that the prompt cache should have it."""
        slots = self._state.slots
        reserved = next((slot for slot in slots if slot.reserved_for is job), None)
        if reserved is not None:
            return (reserved, False) if reserved.is_free_for(job) else None
        if job.task.id_slot != -1:
            wanted = slots[job.task.id_slot % len(slots)]
            share = self._share_above_threshold(wanted, job)
            return (wanted, self._loses_much(wanted, job, share)) if wanted.is_free_for(job) else None
        idle = [slot for slot in slots if slot.is_free_for(job)]
        if not idle:
            return None
        share, similar = max(
            ((self._share_above_threshold(slot, job), slot) for slot in idle), key=lambda pair: pair[0]
        )
        if share > 0.0:
            return similar, self._loses_much(similar, job, share)
        # of slots that were never used llama-server takes the last
        return min(idle, key=lambda slot: (slot.last_used_s, -slot.id)), True

    def _share_above_threshold(self, slot: Slot, job: Job) -> float:
        """The share of the prompt that the slot holds; 0 if it is not above --slot-prompt-similarity."""
        threshold = self._state.runtime.slot_prompt_similarity
        if threshold == 0.0 or not job.prompt:
            return 0.0
        n_common = slot.adapters.n_common(job.task.adapters, self._state.pool.n_common(slot, job.prompt))
        share = n_common / job.n_prompt
        return share if share > threshold else 0.0

    def _loses_much(self, slot: Slot, job: Job, share: float) -> bool:
        has_threshold = self._state.runtime.slot_prompt_similarity != 0.0
        return has_threshold and bool(slot.tokens) and share * job.n_prompt < KEPT_SHARE * len(slot.tokens)

    def _try_to_launch(self, slot: Slot, loses_much: bool, job: Job) -> None:
        """A job that cannot be launched fails alone."""
        slot.job = job
        slot.reserved_for = None
        slot.started_at_s = self._state.clock()
        slot.state.move(SlotPhase.STARTED)
        self._seat_children(slot, job)
        try:
            for child in slot.children:
                if self._state.policy.is_enabled:  # else it makes room when the prompt comes, as in llama-server
                    self._state.pool.clear(child)
                child.active_job.task.start(child.id, child.n_ctx, 0)
            if loses_much and not job.task.embeds:
                self._kept.exchange(slot, job)
            self._launch(slot, job)
        except Exception as error:
            log.exception("slot %d: task %d could not be launched", slot.id, job.task_id)
            endings.fail_and_clear(self._state, slot, f"got exception: {error}")

    def _seat_children(self, slot: Slot, job: Job) -> None:
        """The children take the first idle slots, as in llama-server, and wait there for their parent's prompt."""
        idle = [other for other in self._state.slots if other.is_free_for(None)]
        for child, its_slot in zip(job.children, idle, strict=False):
            its_slot.drop_background_job()
            its_slot.job = child
            its_slot.started_at_s = slot.started_at_s
            its_slot.state.move(SlotPhase.WAIT_OTHER)
            slot.children.append(its_slot)
        job.children = []

    def _launch(self, slot: Slot, job: Job) -> None:
        task = job.task
        self._state.pool.switch_adapters(slot, task.adapters)
        self._kept.keep_idle(other for other in self._state.slots if other is not slot)
        refusal = check_admissible(job, self._state.runtime)
        if refusal is not None:  # only here, as in llama-server: its slot counts as used
            endings.fail(self._state, slot, refusal.message, refusal.error_type, **refusal.extra)
            return
        may_reuse = task.caches_prompt and not task.embeds
        job.n_kept = self._state.pool.reusable_prefix(slot, job.prompt, may_reuse, task.n_cache_reuse)
        log.info("slot %d: processing task %d: %d tokens, %d kept", slot.id, job.task_id, job.n_prompt, job.n_kept)
        if job.n_prompt == 0:
            job.task.start(slot.id, slot.n_ctx, 0)
            endings.finish(self._state, slot)


def _kept_prompts(state: EngineState) -> PromptCache:
    """The prompt cache: copied while others decode where that can be."""
    if state.background is None:
        return PromptCache(state.runtime, state.pool, state.slots, state.image_names, state.prompt_files)
    return AsyncPromptCache(
        state.runtime, state.pool, state.slots, state.image_names, state.background, state.prompt_files
    )
