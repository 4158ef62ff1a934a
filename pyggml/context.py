"""A context: decoding batches with a model, and what comes out. Sequence operations and states are in the base classes.

On the thread that made it. `decode` and `encode` block for as long as the computation takes and release the GIL.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pyggml.batch import Batch
from pyggml.batch_checks import BatchLimits, check_batch
from pyggml.errors import (
    AbortedError,
    ComputeError,
    ContextCreationError,
    InvalidArgumentError,
    InvalidBatchError,
    NativeError,
    NoRoomError,
    PyggmlError,
    UnsupportedError,
)
from pyggml.ffi import CData, call, ffi, lib
from pyggml.handle import NativeHandle
from pyggml.model import Model
from pyggml.native_context import borrow_context, own_context
from pyggml.params import ContextParams
from pyggml.sequence_states import SequenceStates

# What llama_decode returns apart from 0; anything else below 0 is a failed computation.
_NO_ROOM, _ABORTED, _INVALID = 1, 2, -1


class Context(SequenceStates):
    """Creates a native context for `model`. Raises ContextCreationError with what llama.cpp said."""

    def __init__(self, model: Model, params: ContextParams | None = None):
        params = ContextParams() if params is None else params
        params.check_for(model)
        out = ffi.new("struct llama_context **")
        with model.handle.use() as native:
            call(lib.pyggml_context_init, native, params.to_native(), out, error=ContextCreationError)
            handle, flag = own_context(out[0], model.handle)
        super().__init__(handle, model, kv_unified=params.kv_unified, abort_flag=flag)
        n_outputs = 0 if model.has_encoder else params.n_outputs_max
        self._start_outputs(n_outputs, params.embeddings)

    @classmethod
    def from_pointer(
        cls,
        pointer: CData,
        model: Model,
        owner: object,
        *,
        kv_unified: bool,
        n_outputs_max: int = 0,
        embeddings: bool = False,
    ) -> Context:
        """Wraps a `struct llama_context *` that other code created, on the thread that may use it, and will free.

        `owner` is kept alive as long as the context may be used; `close` only ends the use of this object. The keyword
        arguments are the parameters that it was created with and that llama.cpp does not tell. After a decode that did
        not go through this object, call `note_decoded`.
        """
        self = cls.__new__(cls)
        handle = borrow_context(pointer, model.handle, owner)
        SequenceStates.__init__(self, handle, model, kv_unified=kv_unified, abort_flag=None)
        self._start_outputs(n_outputs_max, embeddings)
        return self

    def _start_outputs(self, n_outputs_max: int, embeddings: bool) -> None:
        self._n_outputs_max = n_outputs_max or self.n_batch
        self._embeddings = embeddings
        self._output_flags: npt.NDArray[np.bool_] | None = None
        self._n_rows_reserved = self.n_seq_max
        self._views: weakref.WeakSet[_Row] = weakref.WeakSet()

    def decode(self, batch: Batch) -> None:
        """Computes the batch and adds its tokens to the memory; applies shifts and copies that are waiting.

        Waits for transfers in flight before it applies a shift.

        Raises InvalidBatchError (nothing changed), NoRoomError (nothing changed but applied shifts), AbortedError and
        ComputeError (a part of the batch may be in the memory), BufferError (a view of earlier outputs is alive and
        llama.cpp would move them). Views of earlier outputs show the new ones afterwards.
        """
        self._run(lib.pyggml_decode, batch, encoder=not self.has_memory)

    def encode(self, batch: Batch) -> None:
        """Runs the encoder over the batch; every token is an output. Errors as in `decode`."""
        if self.has_memory and not self.model.has_encoder:
            raise UnsupportedError("this model has no encoder: use decode")
        self._run(lib.pyggml_encode, batch, encoder=True)

    def note_decoded(self) -> None:
        """Says that the context was decoded from elsewhere: shifts are applied, indices of outputs are unknown here."""
        self._note_applied()
        self._output_flags = None
        self._n_rows_reserved = self.n_batch

    def synchronize(self) -> None:
        """Waits until the device has finished what was decoded."""
        call(lib.pyggml_synchronize, self._context())

    def logits(self, index: int = -1) -> npt.NDArray[np.float32]:
        """The logits of the batch's token `index`, or counted from the last output where negative: float32[n_vocab].

        A view into the context's output buffer, without a copy: the next decode overwrites it, copy what must last.
        Reading it after `close` is safe. Raises InvalidArgumentError for an index without output.
        """
        return self._row(lib.pyggml_logits, self._check_output(index), self._n_vocab)

    def embeddings_at(self, index: int = -1) -> npt.NDArray[np.float32]:
        """The embedding of the batch's token `index`, a view as in `logits`: float32[n_embd_out]."""
        self._check_embeddings()
        width = lib.llama_model_n_embd_out(lib.llama_get_model(self._context()))
        return self._row(lib.pyggml_embeddings, self._check_output(index), width)

    def embeddings(self, seq_id: int) -> npt.NDArray[np.float32]:
        """The pooled embedding of a sequence of the last batch, copied: float32[n_embd_out], or [n_cls_out] scores."""
        self._check_embeddings()
        context = self._context()
        model = lib.llama_get_model(context)
        pooling = lib.llama_pooling_type(context)
        if pooling == lib.LLAMA_POOLING_TYPE_NONE:
            raise UnsupportedError("this context does not pool: use embeddings_at, or create it with a Pooling")
        is_rank = pooling == lib.LLAMA_POOLING_TYPE_RANK
        width = lib.llama_model_n_cls_out(model) if is_rank else lib.llama_model_n_embd_out(model)
        out = ffi.new("float **")
        call(lib.pyggml_embeddings_seq, context, self._check_seq(seq_id), out)
        return np.frombuffer(ffi.buffer(out[0], 4 * width), np.float32).copy()

    def sample_pointer(self, index: int) -> CData:
        """The native context, for a sampler that reads the output `index`. Raises as `logits` does."""
        self._check_output(index)
        return self._context()

    def _run(self, function: Callable[..., int], batch: Batch, *, encoder: bool) -> None:
        context = self._context()
        outputs_all = encoder or self._embeddings
        check_batch(batch, self._limits(encoder, outputs_all))
        n = len(batch)
        flags = np.ones(n, bool) if outputs_all else batch.output[:n] != 0
        self._reserve_rows(int(np.count_nonzero(flags)))
        self._wait_before_applying()
        result = ffi.new("int32_t *", _INVALID)
        self._output_flags = np.zeros(0, bool)
        try:
            call(function, context, batch.native(), result)
        except NativeError as error:
            raise self._decode_error(int(result[0]), n, error) from None
        finally:
            if self._abort_flag is not None:
                lib.pyggml_abort_flag_set(self._abort_flag, False)
            if result[0] != _INVALID:
                self._note_applied()
        self._output_flags = flags

    def _decode_error(self, result: int, n_tokens: int, error: NativeError) -> PyggmlError:
        if result == _NO_ROOM:
            return NoRoomError(
                f"no room for a batch of {n_tokens} tokens: {self.n_cells_used()} of {self.n_ctx} cells are in use; "
                "remove a sequence, decode fewer tokens or create the context with a larger n_ctx"
            )
        if result == _ABORTED:
            return AbortedError("request_abort ended this call")
        return InvalidBatchError(str(error)) if result == _INVALID else ComputeError(str(error))

    def _limits(self, encoder: bool, outputs_all: bool) -> BatchLimits:
        return BatchLimits(
            n_tokens_max=min(self.n_batch, self.n_ubatch) if encoder or not self._causal else self.n_batch,
            n_outputs_max=self._n_outputs_max,
            n_vocab=self._n_vocab,
            n_positions=self._n_positions,
            n_seq_max=self.n_seq_max,
            one_seq_per_token=self._copies_by_stream,
            outputs_all=outputs_all,
        )

    def _reserve_rows(self, n_outputs: int) -> None:
        """llama.cpp moves its output buffer when a batch has more outputs than any before: not under a view."""
        if n_outputs > self._n_rows_reserved:
            if self._views:
                raise BufferError(
                    f"a view of earlier outputs is still alive and {n_outputs} outputs do not fit where it points: "
                    "drop it, or copy it, before this decode"
                )
            self._n_rows_reserved = n_outputs

    def _check_output(self, index: int) -> int:
        flags = self._output_flags
        if flags is None:  # decoded from elsewhere, or never: llama.cpp answers by itself
            return index
        n_outputs = int(np.count_nonzero(flags))
        if not -n_outputs <= index < len(flags) or (index >= 0 and not flags[index]):
            raise InvalidArgumentError(
                f"the last batch has no output at index {index}: it had {len(flags)} tokens and {n_outputs} outputs; "
                "set output for the token when adding it"
            )
        return index

    def _check_embeddings(self) -> None:
        self._context()
        if not self._embeddings:
            raise UnsupportedError("this context computes no embeddings: create it with embeddings=True")

    def _row(self, get: Callable[..., int], index: int, width: int) -> npt.NDArray[np.float32]:
        out = ffi.new("float **")
        call(get, self._context(), index, out)
        row = _Row(self._handle, out[0], width)
        self._views.add(row)
        view = np.asarray(row)
        view.flags.writeable = False
        return view


class _Row:
    """One row of a context's output buffer, as numpy sees it; the array's base. Keeps the context from being freed."""

    def __init__(self, handle: NativeHandle, pointer: CData, width: int):
        handle.acquire()
        self._handle = handle
        self.__array_interface__ = {
            "shape": (width,),
            "typestr": "<f4",
            "data": (int(ffi.cast("uintptr_t", pointer)), False),
            "version": 3,
        }

    def __del__(self) -> None:
        self._handle.release()
