"""What the engine does to the sequences in the pool: cut, drop, shift, count. Engine thread only.

The one place where a slot's token list and its cells change together outside a decode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyggml_server.engine.slots import chunk_reuse, shared_prompt
from pyggml_server.engine.slots.checkpoints import SlotCheckpoints
from pyggml_server.engine.slots.common_prefix import common_prefix
from pyggml_server.engine.slots.images import Images, n_uncut, named
from pyggml_server.engine.slots.images import n_positions as positions_of
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.native import slot_file
from pyggml_server.native.border import NoRoomError, StateError, UnsupportedError

if TYPE_CHECKING:
    from pyggml_server.native.adapters import Adapters
    from pyggml_server.native.checkpoints import Checkpoints
    from pyggml_server.native.runtime import Runtime


class KvPool:
    """The KV pool, seen through its slots. A draft model's pool has the same sequences and follows it: what is done to
    cells is done in both, and counted in the target's, which never has fewer."""

    def __init__(self, runtime: Runtime) -> None:
        self._context = runtime.context
        self._contexts = runtime.contexts()
        self._runtime = runtime
        self.checkpoints = SlotCheckpoints(runtime)
        self.n_cells = runtime.n_ctx
        self.n_cells_found: int | None = None

    def n_cells_used(self) -> int:
        """Cells in use, each once however many sequences share it; 0 for a model without a KV cache."""
        return self._context.n_cells_used() if self._runtime.has_memory else 0

    def has_room(self, slots: Iterable[Slot], n_cells: int, *, giving_up: Slot | None = None) -> bool:
        """Whether so many cells are free and promised to none of the slots, once one has given up its own."""
        n_given_up = 0 if giving_up is None else shared_prompt.n_owned_cells(giving_up)
        n_taken = self.n_cells_used() - n_given_up + shared_prompt.n_promised_cells(slots)
        return n_taken + n_cells <= self.n_cells

    def note_refusal(self, n_tokens: int) -> None:
        """A batch of so many tokens found no room: what runs has to do with less than it would have taken."""
        self.n_cells_found = self.n_cells_used() + n_tokens - 1

    def forget_refusal(self) -> None:
        """A request ended: there may be room again."""
        self.n_cells_found = None

    def state_bytes(self, slot: Slot) -> int:
        """Host memory that a park of the slot needs now."""
        return sum(context.state_size(slot.id) for context in self._contexts)

    def release_cells(self, slot: Slot) -> None:
        """Give the slot's cells back; its token list stays (a parked slot needs it)."""
        if self._runtime.has_memory:
            for context in self._contexts:
                context.seq_remove(slot.id)

    def clear(self, slot: Slot) -> None:
        """Drop everything that the slot holds in the pool."""
        self.release_cells(slot)
        slot.tokens.clear()
        self.checkpoints.clear(slot)
        shared_prompt.leave(slot)

    def copy(self, source: Slot, target: Slot) -> None:
        """Make the target hold what the source holds; in the same cells, where the pool is unified."""
        self.clear(target)
        for context in self._contexts:
            context.seq_copy(source.id, target.id)
        target.tokens[:] = source.tokens
        target.images = source.images

    def cut_prompt(self, slot: Slot, n_cells: int) -> None:
        """Take the first `n_cells` out of the slot's sequence; its token list stays."""
        for context in self._contexts:
            context.seq_remove(slot.id, 0, slot.n_positions(n_cells))

    def share_prompt(self, source: Slot, target: Slot, n_cells: int) -> None:
        """Give the target, which lacks them, the source's first `n_cells`."""
        for context in self._contexts:
            context.seq_copy(source.id, target.id, 0, source.n_positions(n_cells))

    def cut(self, slot: Slot, n_keep: int) -> int:
        """Keep the first `n_keep` tokens, but no part of an image. None, if the memory cannot continue from there, or
        if the cut would go through shared cells. Returns how many remain."""
        if n_keep >= len(slot.tokens):
            return len(slot.tokens)
        n_keep = n_uncut(slot.images, n_keep)
        is_whole = slot.shared is None or n_keep >= slot.shared.n_cells
        if n_keep > 0 and is_whole and self.remembers(slot, n_keep):
            return self._cut_tail(slot, n_keep)
        self.clear(slot)
        return 0

    def switch_adapters(self, slot: Slot, adapters: Adapters) -> None:
        """Forget the tokens that these adapters would have decoded with other scales."""
        self.cut(slot, slot.adapters.n_common(adapters, len(slot.tokens)))
        slot.adapters = adapters

    def _cut_tail(self, slot: Slot, n_keep: int) -> int:
        try:
            for context in self._contexts:
                context.seq_remove(slot.id, slot.n_positions(n_keep))
        except UnsupportedError:
            self.clear(slot)
            return 0
        del slot.tokens[n_keep:]
        return n_keep

    def save_file(self, slot: Slot, path: str) -> int:
        """Write the slot to a sequence file as llama-server does, with its checkpoints. Returns the bytes written;
        raises OSError and PyggmlError."""
        checkpoints = self.checkpoints.of(slot).to_bytes()
        if not checkpoints and not slot.has_images:
            return self._context.save_state_file(path, slot.id, slot.tokens, wrap_tokens=True)
        return slot_file.write(path, [self._context.save_state(slot.id)], slot.tokens, slot.saved_images(), checkpoints)

    def load_file(self, slot: Slot, file: slot_file.SlotFile, images: Images) -> None:
        """Replace what the slot holds by that of a file, whose runs are the images. Raises PyggmlError, with the slot
        as it was."""
        with self.replacing(slot, self.states_of(slot) if self.can_copy(slot) else []):
            self._context.restore_state(file.state, slot.id)
            self.set_restored_tokens(slot, file, images)

    @contextmanager
    def replacing(self, slot: Slot, states: list[slot_file.State]) -> Iterator[None]:
        """Clears the slot, the draft's cells too. Where what follows raises, the slot gets back what it held.

        states  that in each context; empty: nothing is put back.
        """
        tokens, checkpoints = list(slot.tokens), self.checkpoints.take(slot) if states else None
        self.clear(slot)
        try:
            yield
        except BaseException:
            self.clear(slot)
            if checkpoints is not None:
                self._put_back(slot, states, tokens, checkpoints)
            raise

    def set_restored_tokens(self, slot: Slot, file: slot_file.SlotFile, images: Images) -> None:
        """The slot's cells, which were restored from a file, are those of its tokens. Raises PyggmlError if not."""
        pos_max = self._context.seq_pos_max(slot.id)
        n_positions = 0 if pos_max is None else pos_max + 1
        if n_positions != positions_of(images, len(file.tokens)):
            raise StateError(f"The slot save file has {len(file.tokens)} tokens for {n_positions} positions")
        if file.checkpoints and self._runtime.n_checkpoints_max > 0:
            self.checkpoints.of(slot).take_bytes_of(file.checkpoints, len(file.tokens))
        slot.hold(named(file.tokens, images), images)

    def can_copy(self, slot: Slot) -> bool:
        """False where there is nothing, or a shift that waits for the next decode, which no copy can have."""
        return bool(slot.tokens) and not slot.has_pending_shift

    def states_of(self, slot: Slot) -> list[slot_file.State]:
        """What the slot holds in each context. Blocks for the copies."""
        return [context.save_state(slot.id) for context in self._contexts]

    def _put_back(self, slot: Slot, states: list[slot_file.State], tokens: list[int], checkpoints: Checkpoints) -> None:
        """In an empty slot. Where others have had its prompt too there may be no room for one of its own."""
        try:
            for context, state in zip(self._contexts, states, strict=True):
                context.restore_state(state, slot.id)
        except NoRoomError:
            self.clear(slot)
            return
        slot.tokens[:] = tokens
        self.checkpoints.put_back(slot, checkpoints)

    def n_common(self, slot: Slot, prompt: list[int]) -> int:
        """Tokens that the slot's sequence and the prompt begin with alike."""
        return common_prefix(slot.tokens, prompt)

    def reusable_prefix(self, slot: Slot, prompt: list[int], may_reuse: bool, n_least_chunk: int = 0) -> int:
        """Tokens of the prompt that the slot's cells can stand for: the common prefix, as far as the memory has it,
        and with `n_least_chunk` above 0 what follows after shifting chunks of so many tokens or more.

        At least one token of a prompt is always left to decode, for its logits. A memory that has already forgotten
        what the next token attends to (window, recurrent) goes back to a checkpoint, or reuses nothing.
        """
        if not may_reuse or not slot.tokens or not prompt:
            return 0
        is_shared = slot.shared is not None  # a shift would move the others' positions too
        if is_shared and self._runtime.shifts_context:
            return 0
        n_past = common_prefix(slot.tokens, prompt)
        if n_least_chunk > 0 and not is_shared and self._runtime.can_shift:
            n_past = self._shift_chunks(slot, prompt, n_past, n_least_chunk)
        n_past = self._go_back(slot, n_past, n_past < len(prompt))
        self.checkpoints.drop_beyond(slot, n_past)
        return min(n_past, len(prompt) - 1)

    def _go_back(self, slot: Slot, n_past: int, has_new_tokens: bool) -> int:
        """As many of the first `n_past` tokens as the memory can continue from."""
        if n_past == 0 or self.remembers(slot, n_past, has_new_tokens):
            return n_past
        pos_needed = self._first_needed(slot.n_positions(n_past), has_new_tokens)
        n_good = self.checkpoints.go_back(slot, n_past, pos_needed)
        return self._cut_tail(slot, n_good) if n_good else 0

    def _first_needed(self, pos_next: int, has_new_tokens: bool) -> int:
        return max(0, pos_next - self._runtime.n_swa - (0 if has_new_tokens else 1))

    def remembers(self, slot: Slot, n_past: int, has_new_tokens: bool = True) -> bool:
        """Whether the memory still has what a token after the first `n_past` attends to."""
        pos_min = self._context.seq_pos_min(slot.id)
        return pos_min is not None and pos_min < max(1, self._first_needed(slot.n_positions(n_past), has_new_tokens))

    def _shift_chunks(self, slot: Slot, prompt: list[int], n_past: int, n_least: int) -> int:
        moves = list(chunk_reuse.moves(slot.tokens, prompt, n_past, n_least))
        for move in moves:
            end = move.source + move.n_tokens
            for context in self._contexts:
                context.seq_remove(slot.id, move.target, move.source)
                context.seq_add(slot.id, move.source, end, move.target - move.source)
            n_past = move.target + move.n_tokens
        if moves:
            for context in self._contexts:
                context.seq_remove(slot.id, n_past)
            slot.tokens[:] = prompt[:n_past]
            slot.has_pending_shift = True
        return n_past

    def note_decoded(self) -> None:
        """A decode went through: every pending shift is applied."""
        for context in self._contexts:
            context.note_decoded()

    def shift(self, slot: Slot, n_keep: int, n_discard: int) -> None:
        """Forget `n_discard` tokens after the first `n_keep` and move the rest down; applied by the next decode."""
        end = n_keep + n_discard
        for context in self._contexts:
            context.seq_remove(slot.id, n_keep, end)
            context.seq_add(slot.id, end, len(slot.tokens), -n_discard)
        del slot.tokens[n_keep:end]
        slot.has_pending_shift = True
