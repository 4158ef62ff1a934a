"""Every exception that the bindings raise. Owns no state, imports nothing of the package, usable from any thread.

Where Python has a built-in that means the same, the exception is one of those too, so that callers need not know ours.
"""

from __future__ import annotations


class PyggmlError(Exception):
    """Base of all exceptions of this package."""


class InvalidArgumentError(PyggmlError, ValueError):
    """An argument was refused, by the bindings before the call or by llama.cpp. Nothing has changed."""


class OutOfMemoryError(PyggmlError, MemoryError):
    """The native side could not allocate."""


class NativeError(PyggmlError, RuntimeError):
    """A call failed inside llama.cpp; the message carries the error lines that it logged."""


class ClosedError(PyggmlError, RuntimeError):
    """The object was closed before."""


class WrongThreadError(PyggmlError, RuntimeError):
    """A context was used from another thread than the one that made it."""


class UnsupportedError(PyggmlError, RuntimeError):
    """The model or the context cannot do this; another configuration may."""


class ModelLoadError(NativeError):
    """The model file could not be loaded."""


class ContextCreationError(NativeError):
    """The context could not be created."""


class NoRoomError(PyggmlError, RuntimeError):
    """Too few free cells for a batch or for a state. Remove a sequence, or make the context larger."""


class AbortedError(PyggmlError, RuntimeError):
    """`Context.request_abort` ended the call. What had been computed stays: ask `seq_pos_max` how far it got."""


class InvalidBatchError(InvalidArgumentError):
    """llama.cpp refused the batch, for example because positions do not continue the sequence. Nothing has changed."""


class ComputeError(NativeError):
    """The computation failed. What had been computed stays: ask `seq_pos_max` how far it got."""


class StateError(NativeError):
    """A sequence state could not be saved or restored."""


class BufferTooSmallError(StateError):
    """A transfer's buffer is too small for the state that should go there: `n_bytes` is what it needs."""

    def __init__(self, message: str, n_bytes: int):
        super().__init__(message)
        self.n_bytes = n_bytes


class UnappliedUpdateError(StateError):
    """The sequence has a shift or a copy that the next decode will carry out; a state saved now would be corrupt."""


class TransferInFlightError(StateError):
    """A transfer's copy uses these cells, or this buffer, and has not ended. Nothing has changed."""
