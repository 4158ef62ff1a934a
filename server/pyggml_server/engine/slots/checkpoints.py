"""Context checkpoints (--ctx-checkpoints): where a prompt may go back to in a memory that cannot be rolled back.

A window cache forgets what is out of the window, a recurrent state has no yesterday. So while a prompt is computed,
copies of that part of the state are made where later prompts are likely to branch off: before the last message of the
user, and shortly before the end. Which places, and which copies go when there are too many, is as in llama-server.
Engine thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from pyggml_server.engine.slots.images import n_tokens_up_to
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.native.checkpoints import Checkpoint, Checkpoints
from pyggml_server.native.runtime import Runtime

log = logging.getLogger(__name__)

N_TOKENS_BEFORE_END = 4  # templates end a prompt with a few tokens that the next turn does not have


class SlotCheckpoints:
    """The checkpoints of every slot."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lists = [Checkpoints(runtime) for _ in range(runtime.n_slots)]

    def of(self, slot: Slot) -> Checkpoints:
        """The native list of one slot, for the prompt cache."""
        return self._lists[slot.id]

    def clear(self, slot: Slot) -> None:
        """Forget what the slot has."""
        self._lists[slot.id].clear()

    def take(self, slot: Slot) -> Checkpoints:
        """What the slot has, which has none then."""
        taken, self._lists[slot.id] = self._lists[slot.id], Checkpoints(self._runtime)
        return taken

    def put_back(self, slot: Slot, taken: Checkpoints) -> None:
        """Make what was taken the slot's again."""
        self._lists[slot.id] = taken

    def go_back(self, slot: Slot, n_past: int, pos_needed: int) -> int:
        """Restore the latest checkpoint within the first `n_past` tokens that knows positions before `pos_needed`.

        Returns how many tokens the sequence's memory is good for now, and 0 where there is no such checkpoint.
        """
        found = self._lists[slot.id].all()
        pos_next = slot.n_positions(n_past)
        for i in reversed(range(len(found))):
            checkpoint = found[i]
            if checkpoint.pos_max <= pos_next and (checkpoint.pos_min < pos_needed or checkpoint.pos_min == 0):
                if not self._lists[slot.id].restore(i, slot.id):
                    return 0
                n_known = n_tokens_up_to(slot.images, max(checkpoint.pos_min + 1, checkpoint.pos_max))
                n_good = min(n_past, checkpoint.n_tokens, n_known)
                log.info("slot %d: went back to the checkpoint of %d tokens", slot.id, checkpoint.n_tokens)
                return n_good
        return 0

    def drop_beyond(self, slot: Slot, n_past: int) -> None:
        """Forget those of tokens that the slot is about to lose."""
        pos_next = slot.n_positions(n_past)
        self._erase(slot, (i for i, c in enumerate(self._lists[slot.id].all()) if c.pos_max > pos_next))

    def n_tokens_until_break(self, slot: Slot) -> int:
        """How many prompt tokens may be decoded before a place where a checkpoint belongs, or the end."""
        job = slot.active_job
        n_done = len(slot.tokens)
        if not self._wants_some(slot):
            return len(job.to_process) - n_done
        n_batch, n_ubatch = self._runtime.n_batch, self._runtime.n_ubatch
        ends = (len(job.to_process) - min(n_batch, n) for n in (N_TOKENS_BEFORE_END + n_ubatch, N_TOKENS_BEFORE_END))
        last = self._last_n_tokens(slot)
        starts = (
            at
            for at in job.task.user_starts
            if at == job.task.user_starts[-1] or last is None or at > last + self._runtime.checkpoint_min_step
        )
        return min((at - n_done for at in (*ends, *starts, len(job.to_process)) if at > n_done), default=0)

    def make_before(self, slot: Slot, n_next: int) -> None:
        """Make one of the slot as it is, if the place is right: `n_next` prompt tokens are decoded next."""
        context = self._runtime.context
        if not self._wants_some(slot) or slot.has_pending_shift or not self._is_place(slot, n_next):
            return
        pos_min, pos_max = context.seq_pos_min(slot.id), context.seq_pos_max(slot.id)
        if pos_min is None or pos_max is None:
            return
        self._make_room(slot)
        task_id, n_tokens = slot.active_job.task_id, len(slot.tokens)
        made = self._lists[slot.id].add(slot.id, n_tokens, pos_min, pos_max, task_id)
        log.debug("slot %d: checkpoint of %d tokens, %.3f MiB", slot.id, made.n_tokens, made.n_bytes / 1024**2)

    def _wants_some(self, slot: Slot) -> bool:
        return self._runtime.n_checkpoints_max > 0 and not slot.active_job.task.embeds

    def _is_place(self, slot: Slot, n_next: int) -> bool:
        job, n_done = slot.active_job, len(slot.tokens)
        if any(run.end == n_done for run in job.images):
            return False  # right behind an image llama-server makes none either
        starts = job.task.user_starts
        is_near_end = len(job.to_process) < n_done + n_next + self._runtime.n_ubatch
        if n_done + n_next < len(job.to_process) and n_done not in starts and not is_near_end:
            return False
        last = self._last_n_tokens(slot)
        is_last_message = bool(starts) and n_done == starts[-1]
        return last is None or is_last_message or is_near_end or n_done > last + self._runtime.checkpoint_min_step

    def _make_room(self, slot: Slot) -> None:
        """For one more of the slot's tokens: first those go that stand too close together, then the oldest."""
        n_max = self._runtime.n_checkpoints_max
        mine = self._lists[slot.id]
        if len(mine) + 1 >= n_max:
            self._erase(slot, self._crowded(mine.all(), slot.active_job.task_id))
        while len(mine) >= n_max:
            mine.erase(0)
        self._erase(slot, (i for i, c in enumerate(mine.all()) if c.n_tokens == len(slot.tokens)))

    def _crowded(self, found: list[Checkpoint], task_id: int) -> Iterator[int]:
        last: int | None = None
        for i, checkpoint in enumerate(found):
            is_close = last is not None and checkpoint.n_tokens <= last + self._runtime.checkpoint_min_step
            if checkpoint.task_id != task_id and is_close:
                yield i
            else:
                last = checkpoint.n_tokens

    def _erase(self, slot: Slot, indices: Iterator[int]) -> None:
        for i in sorted(indices, reverse=True):
            self._lists[slot.id].erase(i)

    def _last_n_tokens(self, slot: Slot) -> int | None:
        found = self._lists[slot.id].all()
        return found[-1].n_tokens if found else None
