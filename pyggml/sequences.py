"""The sequences in a context's memory: remove, copy, keep, shift, and how many cells they use.

On the context's thread; metadata only, so nothing here blocks for long. Remembers which sequences have a shift or copy
that llama.cpp applies in the next decode, since a state saved before that would be corrupt.
Positions are ranges [p0, p1) as in llama.cpp; None means from the start or to the end.
"""

from __future__ import annotations

from pyggml.errors import InvalidArgumentError, UnappliedUpdateError, UnsupportedError
from pyggml.ffi import CData, call, ffi, lib
from pyggml.handle import NativeHandle
from pyggml.model import Model
from pyggml.native_context import NativeContext
from pyggml.transfers_in_flight import TransfersInFlight

_INT32_MAX = 2**31 - 1


def position_range(p0: int | None, p1: int | None) -> tuple[int, int]:
    """[p0, p1) with llama.cpp's -1 for open ends. Raises InvalidArgumentError for negative or crossed ends."""
    start, end = 0 if p0 is None else p0, _INT32_MAX if p1 is None else p1
    if not 0 <= start < end <= _INT32_MAX:
        raise InvalidArgumentError(f"the positions [{p0}, {p1}) are not a range: 0 <= p0 < p1 is required, or None")
    return (-1 if p0 is None else p0), (-1 if p1 is None else p1)


class SequenceMemory(NativeContext):
    """Sequence operations of Context."""

    def __init__(self, handle: NativeHandle, model: Model, *, kv_unified: bool, abort_flag: CData | None):
        super().__init__(handle, model, kv_unified=kv_unified, abort_flag=abort_flag)
        self._shifted: set[int] = set()
        self._copying: dict[int, int] = {}  # destination -> source, copies between streams
        self.transfers = TransfersInFlight()

    def clear(self, *, data: bool = True) -> None:
        """Empties all sequences; `data` also zeroes the buffers."""
        memory = self._memory()
        self.transfers.check_none(None, "cleared")
        call(lib.pyggml_memory_clear, memory, data)
        self._note_applied()

    def seq_remove(self, seq_id: int, p0: int | None = None, p1: int | None = None) -> None:
        """Removes the sequence's positions [p0, p1). Raises UnsupportedError where a part cannot be removed."""
        memory, first, last = self._memory(), *position_range(p0, p1)
        removed = ffi.new("bool *")
        self.transfers.check_none(self._check_seq(seq_id), "removed")
        if not self._ends_before_tail(seq_id, last):
            call(lib.pyggml_memory_seq_rm, memory, seq_id, first, last, removed)
        if not removed[0]:
            raise UnsupportedError(
                f"this memory cannot remove the part [{p0}, {p1}) of sequence {seq_id}: remove it whole"
            )
        if p0 in (None, 0) and p1 is None:
            self._shifted.discard(seq_id)

    def seq_copy(self, source: int, destination: int, p0: int | None = None, p1: int | None = None) -> None:
        """Makes [p0, p1) of `source` part of `destination` too. In a unified pool both then share the cells.

        Raises InvalidArgumentError where the destination already has some of these positions, and UnsupportedError for
        a part in a pool that is not unified.
        """
        memory, first, last = self._memory(), *position_range(p0, p1)
        self._check_seq(source)
        self._check_seq(destination)
        if source == destination:
            return
        if not self._copies_by_stream:
            # also while a copy is in flight: it says whose the cells are, and moves nothing
            self._check_disjoint(source, destination, max(first, 0), last if last >= 0 else _INT32_MAX)
        elif p0 not in (None, 0) or p1 is not None:
            raise UnsupportedError("without kv_unified only a whole sequence can be copied: leave p0 and p1 out")
        else:
            self._check_applied(source, "copied")
            self.transfers.check_none(source, "copied")
            self.transfers.check_none(destination, "copied to")
        call(lib.pyggml_memory_seq_cp, memory, source, destination, first, last)
        if self._copies_by_stream:
            self._copying[destination] = source
        elif source in self._shifted:
            self._shifted.add(destination)

    def seq_keep(self, seq_id: int) -> None:
        """Removes every other sequence."""
        memory = self._memory()
        for other in range(self.n_seq_max):
            if other != seq_id:
                self.transfers.check_none(other, "removed")
        call(lib.pyggml_memory_seq_keep, memory, self._check_seq(seq_id))
        if not self.kv_unified:  # llama.cpp looks only at the stream of the one that stays
            for other in range(self.n_seq_max):
                if other != seq_id:
                    self.seq_remove(other)
        self._shifted &= {seq_id}

    def seq_add(self, seq_id: int, p0: int | None, p1: int | None, delta: int) -> None:
        """Shifts the positions [p0, p1) by `delta`; those that become negative are removed.

        Cells shared with other sequences shift for those too. The keys follow in the next decode; until then the
        sequence cannot be saved. Raises UnsupportedError where `can_shift` is False.
        """
        memory, first, last = self._shiftable_memory(), *position_range(p0, p1)
        if not -_INT32_MAX <= delta + (self.seq_pos_max(seq_id) or 0) <= _INT32_MAX:
            raise InvalidArgumentError(f"a shift by {delta} leaves the range of positions")
        if delta == 0:
            return
        self._note_shift(seq_id)
        call(lib.pyggml_memory_seq_add, memory, seq_id, first, last, delta)

    def seq_divide(self, seq_id: int, p0: int | None, p1: int | None, divisor: int) -> None:
        """Divides the positions [p0, p1) by `divisor` > 1, with the limits of `seq_add`."""
        memory, first, last = self._shiftable_memory(), *position_range(p0, p1)
        self._check_seq(seq_id)
        if not 1 < divisor <= _INT32_MAX:
            raise InvalidArgumentError(f"the divisor is {divisor}, a whole number above 1 is required")
        self._note_shift(seq_id)
        call(lib.pyggml_memory_seq_div, memory, seq_id, first, last, divisor)

    def seq_pos_min(self, seq_id: int) -> int | None:
        """The smallest position in the memory, or None for an empty sequence. Above 0 in window caches."""
        return self._seq_pos(seq_id)[0]

    def seq_pos_max(self, seq_id: int) -> int | None:
        """The largest position in the memory, or None for an empty sequence."""
        return self._seq_pos(seq_id)[1]

    def seq_is_empty(self, seq_id: int) -> bool:
        """Whether the memory has nothing of the sequence."""
        return self._seq_pos(seq_id) == (None, None)

    @property
    def can_shift(self) -> bool:
        """Whether `seq_add` and `seq_divide` are possible."""
        self._context()
        return self.has_memory and lib.llama_memory_can_shift(self._memory_or_null)

    def n_cells_used(self) -> int:
        """Cells that hold at least one sequence; a shared cell counts once."""
        n_cells = ffi.new("uint32_t *")
        call(lib.pyggml_memory_n_cells_used, self._memory(), n_cells)
        return int(n_cells[0])

    def seq_n_cells(self, seq_id: int, *, owned_only: bool = False) -> int:
        """Cells of the sequence; with `owned_only` those that no other sequence uses, which removing it would free."""
        n_cells = ffi.new("uint32_t *")
        call(lib.pyggml_memory_seq_n_cells, self._memory(), self._check_seq(seq_id), owned_only, n_cells)
        return int(n_cells[0])

    @property
    def _copies_by_stream(self) -> bool:
        return not self.kv_unified and not self._is_recurrent

    def _ends_before_tail(self, seq_id: int, last: int) -> bool:
        """Whether a removal up to `last` would spare a recurrent state's end: llama.cpp then does nothing, silently."""
        if last < 0 or not (self._is_recurrent or self._is_hybrid):
            return False
        end = self.seq_pos_max(seq_id)
        return end is not None and last <= end

    def _shiftable_memory(self) -> CData:
        memory = self._memory()
        if not self.can_shift:
            raise UnsupportedError("this model or context cannot shift positions: remove the sequence and decode again")
        return memory

    def _seq_pos(self, seq_id: int) -> tuple[int | None, int | None]:
        low, high = ffi.new("llama_pos *"), ffi.new("llama_pos *")
        call(lib.pyggml_memory_seq_pos, self._memory(), self._check_seq(seq_id), low, high)
        return (None if low[0] < 0 else low[0]), (None if high[0] < 0 else high[0])

    def _check_disjoint(self, source: int, destination: int, first: int, last: int) -> None:
        (s0, s1), (d0, d1) = self._seq_pos(source), self._seq_pos(destination)
        if s0 is None or s1 is None or d0 is None or d1 is None:
            return
        if max(s0, first, d0) <= min(s1, last - 1, d1):
            raise InvalidArgumentError(
                f"sequence {destination} already has positions {d0} to {d1}: remove it before copying into it"
            )

    def _check_applied(self, seq_id: int, what: str) -> None:
        """Raises UnappliedUpdateError if the next decode has to change the sequence's rows first."""
        if seq_id in self._shifted or seq_id in self._copying:
            raise UnappliedUpdateError(
                f"sequence {seq_id} has a shift or copy that is not applied yet and cannot be {what}: decode first"
            )

    def _note_shift(self, seq_id: int) -> None:
        """The cells of `seq_id` shift, and with them those of any sequence that shares cells with it."""
        shifted = {seq_id}
        if self._shares_cells(seq_id):
            shifted.update(other for other in range(self.n_seq_max) if self._shares_cells(other))
        for each in shifted:
            self.transfers.check_none(each, "shifted")
        self._shifted |= shifted

    def _shares_cells(self, seq_id: int) -> bool:
        return self.seq_n_cells(seq_id) != self.seq_n_cells(seq_id, owned_only=True)

    def _wait_before_applying(self) -> None:
        """A shift is one graph over all keys, in place: no copy may read or write meanwhile."""
        if self._shifted:
            self.transfers.wait_for_all()

    def _note_applied(self) -> None:
        """A decode got as far as applying all shifts and copies (or there is nothing left to apply them to)."""
        self._shifted.clear()
        self._copying.clear()
