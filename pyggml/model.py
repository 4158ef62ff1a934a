"""A loaded model: weights, metadata and vocabulary. Any thread may use a Model, several at once.

Loading blocks for as long as the file takes and releases the GIL. `close` is safe at any time: the native model is
freed when its last context, sampler and call in flight have let go.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from pyggml import log
from pyggml.backends import load_backends
from pyggml.closing import Closing
from pyggml.errors import InvalidArgumentError, ModelLoadError
from pyggml.ffi import CData, call, ffi, lib
from pyggml.handle import NativeHandle
from pyggml.vocab import Vocab

# llama.cpp asserts on a position beyond the table. Their graphs read `position_embd` (MPT's only if it has one).
_POSITIONS_FROM_A_TABLE = frozenset({"bert", "gpt2", "mpt", "starcoder"})

_backend_lock = threading.Lock()
_backend_started = False


def start_backend() -> None:
    """Loads ggml's backends and routes the native log, once per process."""
    global _backend_started
    with _backend_lock:
        if not _backend_started:
            log.start()
            load_backends()
            call(lib.pyggml_backend_init)
            _backend_started = True


class Model(Closing):
    """A model from a GGUF file.

    `n_gpu_layers`: layers in device memory, negative for all (llama.cpp's default where None). `vocab_only` loads no
    weights: tokenizing works, contexts are refused. Raises ModelLoadError with what llama.cpp said.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        n_gpu_layers: int | None = None,
        vocab_only: bool = False,
        check_tensors: bool = False,
    ):
        self._handle: NativeHandle | None = None
        name = os.fsencode(path)
        if b"\0" in name:
            raise InvalidArgumentError(f"the path {os.fspath(path)!r} contains a NUL byte")
        start_backend()
        params = ffi.new("struct llama_model_params *", lib.llama_model_default_params())
        if n_gpu_layers is not None:
            params.n_gpu_layers = n_gpu_layers
        params.vocab_only = vocab_only
        params.check_tensors = check_tensors
        out = ffi.new("struct llama_model **")
        call(lib.pyggml_model_load, name, params, out, error=ModelLoadError)
        self._adopt(NativeHandle(out[0], lib.llama_model_free, "model"), vocab_only)

    @classmethod
    def from_pointer(cls, pointer: CData, owner: object, *, vocab_only: bool = False) -> Self:
        """Wraps a `struct llama_model *` that other code loaded and will free.

        `owner` is kept alive as long as the model may be used. `close` only ends the use of this object.
        """
        if pointer == ffi.NULL:
            raise InvalidArgumentError("the model pointer is NULL")
        self = cls.__new__(cls)
        self._handle = None
        self._adopt(NativeHandle(pointer, None, "model", keep=owner), vocab_only)
        return self

    def _adopt(self, handle: NativeHandle, vocab_only: bool) -> None:
        self._handle = handle
        self.vocab_only = vocab_only
        self.vocab = Vocab(handle)

    @property
    def handle(self) -> NativeHandle:
        """The native model and its user count, for objects of this package that need it kept."""
        if self._handle is None:
            raise InvalidArgumentError("this model was never loaded")
        return self._handle

    @property
    def closed(self) -> bool:
        return self.handle.closed

    @property
    def description(self) -> str:
        """One line, for example `llama 134M Q4_1`."""
        text = ffi.new("char[]", 256)
        with self.handle.use() as model:
            lib.llama_model_desc(model, text, 256)
        return bytes(ffi.string(text)).decode("utf-8", "replace")

    @property
    def architecture(self) -> str:
        """The architecture's name as the file says it, for example `llama`."""
        with self.handle.use() as model:
            return _sized_text(
                lambda out, size: lib.llama_model_meta_val_str(model, b"general.architecture", out, size)
            )

    @property
    def n_positions(self) -> int | None:
        """How many positions the weights have a row for; None where positions are computed and have no end."""
        return self.n_ctx_train if self.architecture in _POSITIONS_FROM_A_TABLE else None

    @property
    def size_bytes(self) -> int:
        """All tensors together."""
        with self.handle.use() as model:
            return lib.llama_model_size(model)

    @property
    def n_params(self) -> int:
        with self.handle.use() as model:
            return lib.llama_model_n_params(model)

    @property
    def n_ctx_train(self) -> int:
        """The context length, in tokens, that the model was trained for."""
        with self.handle.use() as model:
            return lib.llama_model_n_ctx_train(model)

    @property
    def n_embd(self) -> int:
        with self.handle.use() as model:
            return lib.llama_model_n_embd(model)

    @property
    def n_layer(self) -> int:
        with self.handle.use() as model:
            return lib.llama_model_n_layer(model)

    @property
    def n_swa(self) -> int:
        """The width of the attention window in tokens; 0 where every layer sees the whole context."""
        with self.handle.use() as model:
            return lib.llama_model_n_swa(model)

    @property
    def has_encoder(self) -> bool:
        with self.handle.use() as model:
            return lib.llama_model_has_encoder(model)

    @property
    def is_recurrent(self) -> bool:
        with self.handle.use() as model:
            return lib.llama_model_is_recurrent(model)

    @property
    def is_hybrid(self) -> bool:
        with self.handle.use() as model:
            return lib.llama_model_is_hybrid(model)

    @property
    def metadata(self) -> Mapping[str, str]:
        """The scalar key-value pairs of the file, as text."""
        with self.handle.use() as model:
            return dict(_metadata_pair(model, i) for i in range(lib.llama_model_meta_count(model)))

    def chat_template(self) -> str | None:
        """The chat template (Jinja source) that the file carries, or None."""
        with self.handle.use() as model:
            text = lib.llama_model_chat_template(model, ffi.NULL)
            return None if text == ffi.NULL else bytes(ffi.string(text)).decode("utf-8", "replace")

    def apply_chat_template(self, messages: Sequence[tuple[str, str]], *, add_assistant: bool = True) -> str:
        """The prompt of a chat of (role, content) pairs, by llama.cpp's built-in templates (no Jinja).

        `add_assistant` ends it where the assistant's answer begins. Raises InvalidArgumentError for a template that is
        not built in, or a model that carries none.
        """
        template = self.chat_template()
        if template is None:
            raise InvalidArgumentError("this model has no chat template: write the prompt yourself")
        texts = [(ffi.new("char[]", role.encode()), ffi.new("char[]", text.encode())) for role, text in messages]
        native = ffi.new("struct llama_chat_message[]", [{"role": role, "content": text} for role, text in texts])
        n = ffi.new("int32_t *")
        size = 256 + 2 * sum(len(role) + len(text) for role, text in texts)
        for _ in range(2):
            out = ffi.new("char[]", size)
            arguments = (template.encode(), native, len(texts), add_assistant, out, size, n)
            call(lib.pyggml_chat_apply_template, *arguments)
            if n[0] <= size:
                break
            size = n[0]
        return bytes(ffi.buffer(out, n[0])).decode("utf-8", "replace")

    def close(self) -> None:
        """Allows no new use; existing contexts and samplers keep working. A second call does nothing."""
        if self._handle is not None:
            self._handle.close()

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None and not handle.closed:
            if handle.owned:
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            handle.close()


def _metadata_pair(model: CData, index: int) -> tuple[str, str]:
    return (
        _sized_text(lambda out, size: lib.llama_model_meta_key_by_index(model, index, out, size)),
        _sized_text(lambda out, size: lib.llama_model_meta_val_str_by_index(model, index, out, size)),
    )


def _sized_text(read: Callable[[CData, int], int]) -> str:
    size = 256
    while True:
        out = ffi.new("char[]", size)
        length = read(out, size)
        if length < size:
            return bytes(ffi.string(out)).decode("utf-8", "replace")
        size = length + 1
