"""Slots to files and back: at once, or while others decode. Engine thread.

A file has the target's state only. Of a draft model's cells a restore leaves none, and drafts begin anew. Where the
pool has no room for a file, idle slots' prompts are given up first, as for a prompt.

Asynchronously a saved slot is free for others once its cells are not needed any more; the file appears when it is
whole. What cannot be restored leaves the slot as it was: what it holds is copied to pageable memory before it is
cleared. A slot's checkpoints are in its file too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pyggml_server.engine.background.jobs import Steps, completion
from pyggml_server.engine.background.runner import BackgroundRunner
from pyggml_server.engine.idle_slots import idle_prompts
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.transfers.transfer import TransferRefusedError
from pyggml_server.native import slot_file
from pyggml_server.native.border import NoRoomError, PyggmlError


class TooLargeError(Exception):
    """The state does not fit into that memory; nothing has changed."""


class SlotFiles(Protocol):
    """The steps of saves and restores."""

    def save(self, slot: Slot, path: str) -> Steps[int]:
        """Write what the slot holds. Returns the bytes written; raises OSError, PyggmlError, TransferRefusedError."""

    def restore(self, slot: Slot, path: str) -> Steps[int]:
        """Replace what the slot holds by a file. Returns the bytes read; raises as `save` does."""


class SyncSlotFiles:
    """Copies inside the call: no step waits for anything."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def save(self, slot: Slot, path: str) -> Steps[int]:
        """Blocks for the copy and the file."""
        yield from ()
        return self._state.pool.save_file(slot, path)

    def restore(self, slot: Slot, path: str) -> Steps[int]:
        """Blocks for the file and the copy. What it cannot restore leaves the slot as it was."""
        yield from ()
        n_bytes = Path(path).stat().st_size
        self._load(slot, _read(self._state, path, slot.n_ctx))
        return n_bytes

    def _load(self, slot: Slot, file: slot_file.SlotFile) -> None:
        """Idle slots' prompts are given up until it fits."""
        images = self._state.image_names.images_of_runs(file.runs)
        while True:
            try:
                self._state.pool.load_file(slot, file, images)
                return
            except NoRoomError:
                if not idle_prompts.drop_one_for_file(self._state, slot):
                    raise


class AsyncSlotFiles:
    """Through the memory that cached prompts pass through, while others decode."""

    def __init__(self, state: EngineState, copies: BackgroundRunner) -> None:
        self._state = state
        self._copies = copies

    def save(self, slot: Slot, path: str) -> Steps[int]:
        """Returns the bytes written. Raises OSError, PyggmlError, TransferRefusedError, TooLargeError."""
        out = self._copies.out
        yield self._copies.turn(out)
        tokens, checkpoints = list(slot.tokens), self._state.pool.checkpoints.of(slot).to_bytes()
        media = slot.saved_images()
        with out.turn():
            sizes_bytes = out.sizes_bytes(slot.id, is_target_only=True)
            if not (yield from out.room_for(sizes_bytes)):
                raise TooLargeError
            out.save(slot.id, sizes_bytes)
            if not out.frees_on_issue:
                yield from completion(out)
            slot.background_job = None
            yield from completion(out)
            states = out.states()
            return (
                yield from self._copies.helper.run(lambda: slot_file.write(path, states, tokens, media, checkpoints))
            )

    def restore(self, slot: Slot, path: str) -> Steps[int]:
        """Returns the bytes read. Raises TooLargeError, OSError, PyggmlError and TransferRefusedError, with the slot as
        it was."""
        into, helper, pool = self._copies.into, self._copies.helper, self._state.pool
        n_bytes = Path(path).stat().st_size
        states = yield from self._states_of(slot)
        yield self._copies.turn(into)
        with into.turn():
            file = yield from helper.run(lambda: _read(self._state, path, slot.n_ctx))
            if self._state.runtime.can_cut_prompts:
                yield from helper.run(lambda: slot_file.check_whole(file.state))
            n_tokens, images = len(file.tokens), self._state.image_names.images_of_runs(file.runs)
            if not (yield from into.room_for([len(file.state)])):
                raise TooLargeError
            blanks = into.blanks([len(file.state)])
            yield from helper.run(lambda: _fill(blanks, file.state))
            yield from idle_prompts.make_room(self._state, slot, n_tokens)
            if not pool.has_room(self._state.slots, n_tokens, giving_up=slot):
                raise NoRoomError(f"there is no room for {n_tokens} cells")
            with pool.replacing(slot, states):
                try:
                    into.restore(slot.id)
                    pool.set_restored_tokens(slot, file, images)
                except BaseException:
                    into.wait()
                    raise
            yield from completion(into)
            return n_bytes

    def _states_of(self, slot: Slot) -> Steps[list[slot_file.State]]:
        """Copies of what the slot holds, in every context; empty where that is nothing. They stop nobody, but where
        they are larger than the memory that they pass through."""
        out = self._copies.out
        yield self._copies.turn(out)
        with out.turn():
            if not self._state.pool.can_copy(slot):
                return []
            sizes_bytes = out.sizes_bytes(slot.id)
            if not (yield from out.room_for(sizes_bytes)):
                return self._state.pool.states_of(slot)
            out.save(slot.id, sizes_bytes)
            yield from completion(out)
            views = out.states()
            return (yield from self._copies.helper.run(lambda: _copied(views)))


def _read(state: EngineState, path: str, n_ctx: int) -> slot_file.SlotFile:
    """Any thread: of the state only what never changes is read."""
    runtime = state.runtime
    return slot_file.read(path, n_ctx, runtime.model.vocab.n_tokens, runtime.has_media)


def _copied(views: list[slot_file.State]) -> list[slot_file.State]:
    """Takes the views out of their list."""
    copies = [view.copy() for view in views]
    views.clear()
    return copies


def _fill(blanks: list[slot_file.State], state: slot_file.State) -> None:
    blanks.pop()[:] = state


def reason_of(error: Exception) -> Exception:
    """What was behind a copy that was refused."""
    if not isinstance(error, TransferRefusedError):
        return error
    return error.__cause__ if isinstance(error.__cause__, PyggmlError) else NoRoomError(str(error))
