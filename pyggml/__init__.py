"""Python bindings for llama.cpp that can save a sequence's state and restore it elsewhere.

    with Model("model.gguf") as model, Context(model, ContextParams(n_ctx=2048, n_seq_max=2)) as context:
        context.decode(Batch.from_arrays(tokens, range(len(tokens)), seq_id=0))
        state = context.save_state(0)       # bytes in a numpy array
        context.seq_remove(0)               # its cells are free for others
        context.restore_state(state, 1)     # the same conversation, as sequence 1

A Context belongs to the thread that made it; models and vocabularies may be used from any. What fails raises a
PyggmlError, or OSError where a file of a state cannot be read or written. Messages of llama.cpp go to the loggers
`pyggml.llama` and `pyggml.ggml`. Knows nothing of HTTP, scheduling or requests.
"""

from pyggml.batch import Batch
from pyggml.context import Context
from pyggml.errors import (
    AbortedError,
    BufferTooSmallError,
    ClosedError,
    ComputeError,
    ContextCreationError,
    InvalidArgumentError,
    InvalidBatchError,
    ModelLoadError,
    NativeError,
    NoRoomError,
    OutOfMemoryError,
    PyggmlError,
    StateError,
    TransferInFlightError,
    UnappliedUpdateError,
    UnsupportedError,
    WrongThreadError,
)
from pyggml.model import Model
from pyggml.params import CacheType, ContextParams, FlashAttention, Pooling
from pyggml.pinned_pool import PinnedPool
from pyggml.pinned_range import PinnedRange
from pyggml.sampler import Sampler
from pyggml.sequence_states import StateFlags
from pyggml.state_format import file_to_state, rows_by_position, state_to_file
from pyggml.transfer import Transfer
from pyggml.vocab import Vocab

__all__ = [
    "AbortedError",
    "Batch",
    "BufferTooSmallError",
    "CacheType",
    "ClosedError",
    "ComputeError",
    "Context",
    "ContextCreationError",
    "ContextParams",
    "FlashAttention",
    "InvalidArgumentError",
    "InvalidBatchError",
    "Model",
    "ModelLoadError",
    "NativeError",
    "NoRoomError",
    "OutOfMemoryError",
    "PinnedPool",
    "PinnedRange",
    "Pooling",
    "PyggmlError",
    "Sampler",
    "StateError",
    "StateFlags",
    "Transfer",
    "TransferInFlightError",
    "UnappliedUpdateError",
    "UnsupportedError",
    "Vocab",
    "WrongThreadError",
    "file_to_state",
    "rows_by_position",
    "state_to_file",
]
