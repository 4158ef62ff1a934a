"""Text to tokens and back. Any thread may use a Vocab, several at once; it keeps its model from being freed while it
works, and a call after the model was closed raises ClosedError. Does not hold a model open by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from pyggml.errors import InvalidArgumentError, UnsupportedError
from pyggml.ffi import CData, call, ffi, lib
from pyggml.handle import NativeHandle

Tokens = npt.NDArray[np.int32]

_INT32_MAX = 2**31 - 1


def token_array(tokens: Iterable[int] | Tokens, n_vocab: int) -> Tokens:
    """`tokens` as a contiguous int32 array, each checked to be in [0, n_vocab). Raises InvalidArgumentError."""
    array = np.asarray(tokens if isinstance(tokens, np.ndarray) else list(tokens))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidArgumentError(f"tokens must be a one-dimensional sequence of integers, not {array.dtype}")
    wrong = array[(array < 0) | (array >= n_vocab)] if array.size else array
    if wrong.size:
        raise InvalidArgumentError(f"token {wrong[0]} is not in the vocabulary of {n_vocab} tokens")
    return np.ascontiguousarray(array, dtype=np.int32)


class Vocab:
    """The vocabulary of one model; get it as `Model.vocab`."""

    def __init__(self, model: NativeHandle):
        self._model = model
        with model.use() as pointer:
            vocab = lib.llama_model_get_vocab(pointer)
            self._vocab = vocab
            self._has_tokens = lib.llama_vocab_type(vocab) != lib.LLAMA_VOCAB_TYPE_NONE
            self._n_tokens = lib.llama_vocab_n_tokens(vocab)

    @property
    def n_tokens(self) -> int:
        return self._n_tokens

    @property
    def bos(self) -> int | None:
        """The token that begins a text; None where the model has none (so for the other special tokens)."""
        return self._special(lib.llama_vocab_bos)

    @property
    def eos(self) -> int | None:
        return self._special(lib.llama_vocab_eos)

    @property
    def eot(self) -> int | None:
        return self._special(lib.llama_vocab_eot)

    @property
    def newline(self) -> int | None:
        return self._special(lib.llama_vocab_nl)

    @property
    def add_bos(self) -> bool:
        """Whether `tokenize(add_special=True)` puts `bos` in front."""
        with self._model.use():
            return lib.llama_vocab_get_add_bos(self._vocab)

    @property
    def add_eos(self) -> bool:
        with self._model.use():
            return lib.llama_vocab_get_add_eos(self._vocab)

    def is_end(self, token: int) -> bool:
        """Whether `token` ends a generation (end of sequence, of turn, ...)."""
        self._check_token(token)
        with self._model.use():
            return lib.llama_vocab_is_eog(self._vocab, token)

    def tokenize(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False) -> Tokens:
        """The tokens of `text` as int32[n].

        `add_special` adds begin and end tokens where the model wants them; `parse_special` reads `<|im_start|>` and the
        like as one token instead of as text.
        """
        self._check_has_tokens()
        data = text.encode("utf-8") if isinstance(text, str) else bytes(text)
        if len(data) > _INT32_MAX:
            raise InvalidArgumentError(f"the text has {len(data)} bytes, more than 2^31 - 1: tokenize it in parts")
        n = ffi.new("int32_t *")
        tokens = np.empty(len(data) + 4, np.int32)
        with self._model.use():
            for _ in range(2):
                out = ffi.from_buffer("llama_token[]", tokens, require_writable=True)
                call(lib.pyggml_tokenize, self._vocab, data, len(data), out, len(tokens), add_special, parse_special, n)
                if n[0] >= 0:
                    break
                tokens = np.empty(-n[0], np.int32)
        return tokens[: n[0]].copy()

    def detokenize(
        self, tokens: Iterable[int] | Tokens, *, remove_special: bool = False, unparse_special: bool = False
    ) -> str:
        """The text of `tokens`. Bytes that are no UTF-8 (a character cut in two) become U+FFFD."""
        self._check_has_tokens()
        array = token_array(tokens, self._n_tokens)
        n = ffi.new("int32_t *")
        text = bytearray(len(array) * 8 + 16)
        with self._model.use():
            source = ffi.from_buffer("llama_token[]", array)
            for _ in range(2):
                out = ffi.from_buffer("char[]", text, require_writable=True)
                arguments = (self._vocab, source, len(array), out, len(text), remove_special, unparse_special, n)
                call(lib.pyggml_detokenize, *arguments)
                ffi.release(out)
                if n[0] >= 0:
                    break
                text = bytearray(-n[0])
        return text[: n[0]].decode("utf-8", "replace")

    def piece(self, token: int, *, special: bool = True) -> bytes:
        """The bytes of one token, which may be part of a character. `special` also renders control tokens."""
        self._check_has_tokens()
        self._check_token(token)
        n = ffi.new("int32_t *")
        size = 64
        with self._model.use():
            for _ in range(2):
                out = ffi.new("char[]", size)
                call(lib.pyggml_token_to_piece, self._vocab, token, out, size, special, n)
                if n[0] >= 0:
                    break
                size = -n[0]
        return bytes(ffi.buffer(out, n[0]))

    def _special(self, get: Callable[[CData], int]) -> int | None:
        with self._model.use():
            token = get(self._vocab)
        return None if token == lib.LLAMA_TOKEN_NULL else token

    def _check_token(self, token: int) -> None:
        if not 0 <= token < self._n_tokens:
            raise InvalidArgumentError(f"token {token} is not in the vocabulary of {self._n_tokens} tokens")

    def _check_has_tokens(self) -> None:
        if not self._has_tokens:
            raise UnsupportedError("this model has no vocabulary: it cannot turn text into tokens or back")
