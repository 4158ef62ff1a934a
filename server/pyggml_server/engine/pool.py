"""What the engine does to the sequences in the pool: cut, drop, shift, count. Engine thread only.

The one place where a slot's token list and its cells change together outside a decode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyggml_server.engine.slot import Slot
from pyggml_server.native.border import StateError, UnsupportedError

if TYPE_CHECKING:
    from pyggml_server.native.runtime import Runtime


class Pool:
    """The KV pool of one context, seen through its slots."""

    def __init__(self, runtime: Runtime) -> None:
        self._context = runtime.context
        self._runtime = runtime
        self.n_cells = runtime.n_ctx

    def n_cells_used(self) -> int:
        """Cells in use, each once however many sequences share it; 0 for a model without a KV cache."""
        return self._context.n_cells_used() if self._runtime.has_memory else 0

    def state_bytes(self, slot: Slot) -> int:
        """Host memory that a park of the slot needs now."""
        return self._context.state_size(slot.id)

    def release_cells(self, slot: Slot) -> None:
        """Give the slot's cells back; its token list stays (a parked slot needs it)."""
        if self._runtime.has_memory:
            self._context.seq_remove(slot.id)

    def clear(self, slot: Slot) -> None:
        """Drop everything that the slot holds in the pool."""
        self.release_cells(slot)
        slot.tokens.clear()

    def cut(self, slot: Slot, n_keep: int) -> int:
        """Keep the first `n_keep` tokens, or none where the memory cannot remove a tail. Returns how many are kept."""
        if n_keep >= len(slot.tokens):
            return len(slot.tokens)
        if n_keep > 0:
            try:
                self._context.seq_remove(slot.id, n_keep)
            except UnsupportedError:
                pass
            else:
                del slot.tokens[n_keep:]
                return n_keep
        self.clear(slot)
        return 0

    def save_file(self, slot: Slot, path: str) -> int:
        """Write the slot to a sequence file as llama-server does. Returns the bytes written; raises OSError and
        PyggmlError."""
        return self._context.save_state_file(path, slot.id, slot.tokens, wrap_tokens=True)

    def load_file(self, slot: Slot, path: str) -> None:
        """Replace what the slot holds by a sequence file. Raises OSError and PyggmlError; the slot may hold anything
        then."""
        tokens = self._context.load_state_file(path, slot.id, max_tokens=slot.n_ctx)
        n_vocab = self._runtime.model.vocab.n_tokens
        if ((tokens < 0) | (tokens >= n_vocab)).any():
            raise StateError("Invalid tokens in slot save file")
        pos_max = self._context.seq_pos_max(slot.id)
        n_positions = 0 if pos_max is None else pos_max + 1
        if n_positions != len(tokens):
            raise StateError(f"The slot save file has {len(tokens)} tokens for {n_positions} positions")
        slot.tokens[:] = tokens.tolist()

    def n_common(self, slot: Slot, prompt: list[int]) -> int:
        """Tokens that the slot's sequence and the prompt begin with alike."""
        return _common_prefix(slot.tokens, prompt)

    def reusable_prefix(self, slot: Slot, prompt: list[int], may_reuse: bool) -> int:
        """Tokens of the prompt that the slot's cells can stand for: the common prefix, as far as the memory has it.

        At least one token of a prompt is always left to decode, for its logits. A memory that has already forgotten
        what the next token attends to (window, recurrent) reuses nothing.
        """
        if not may_reuse or not slot.tokens or not prompt:
            return 0
        n_past = _common_prefix(slot.tokens, prompt)
        has_new_tokens = n_past < len(prompt)
        if n_past > 0:
            pos_min = self._context.seq_pos_min(slot.id)
            threshold = max(0, n_past - self._runtime.n_swa - (0 if has_new_tokens else 1))
            if pos_min is None or pos_min >= max(1, threshold):
                return 0
        return n_past if has_new_tokens else n_past - 1

    def note_decoded(self) -> None:
        """A decode went through: every pending shift is applied."""
        self._context.note_decoded()

    def shift(self, slot: Slot, n_keep: int, n_discard: int) -> None:
        """Forget `n_discard` tokens after the first `n_keep` and move the rest down; applied by the next decode."""
        end = n_keep + n_discard
        self._context.seq_remove(slot.id, n_keep, end)
        self._context.seq_add(slot.id, end, len(slot.tokens), -n_discard)
        del slot.tokens[n_keep:end]
        slot.has_pending_shift = True


def _common_prefix(a: list[int], b: list[int]) -> int:
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    low, high = 0, n  # the prefixes of length `low` are equal, those of length `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
