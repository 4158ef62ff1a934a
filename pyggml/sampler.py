"""Choosing the next token: a chain of steps over a context's logits.

A Sampler may move between threads but works for one at a time (calls wait for each other); `sample` also has to be on
the context's thread. It keeps its model from being freed.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Self

from pyggml.closing import Closing
from pyggml.context import Context
from pyggml.errors import InvalidArgumentError, NativeError
from pyggml.ffi import CData, call, ffi, lib
from pyggml.handle import NativeHandle
from pyggml.model import Model

DEFAULT_SEED: int = lib.LLAMA_DEFAULT_SEED  # llama.cpp draws a random seed instead


class Sampler(Closing):
    """An empty chain for `model`. The step methods append and return the sampler itself, so that they can be chained;
    the last must be `greedy` or `dist`:

        sampler = Sampler(model).top_k(40).temp(0.8).dist(seed=42)
    """

    def __init__(self, model: Model):
        out = ffi.new("struct llama_sampler **")
        call(lib.pyggml_sampler_chain, out)
        self._start(out[0], model, selects=False)

    def _start(self, chain: CData, model: Model, *, selects: bool) -> None:
        self._model = model
        self._selects = selects
        self._lock = threading.RLock()
        self._handle = _chain_handle(chain, model.handle)

    def greedy(self) -> Self:
        """Ends the chain: the most likely token."""
        return self._add(lib.pyggml_sampler_add_greedy, selects=True)

    def dist(self, seed: int = DEFAULT_SEED) -> Self:
        """Ends the chain: a random token, by probability. The default seed is a random one."""
        if not 0 <= seed < 2**32:
            raise InvalidArgumentError(f"the seed is {seed}, allowed is 0 to 2^32 - 1")
        return self._add(lib.pyggml_sampler_add_dist, seed, selects=True)

    def temp(self, temperature: float) -> Self:
        """Divides the logits; 0 or less leaves only the most likely token."""
        return self._add(lib.pyggml_sampler_add_temp, _finite("temperature", temperature))

    def top_k(self, k: int) -> Self:
        """Leaves the `k` most likely tokens; 0 or less leaves all."""
        return self._add(lib.pyggml_sampler_add_top_k, min(k, 2**31 - 1))

    def top_p(self, p: float, min_keep: int = 1) -> Self:
        """Leaves the most likely tokens that together have probability `p`."""
        return self._add(lib.pyggml_sampler_add_top_p, _finite("p", p), max(min_keep, 1))

    def min_p(self, p: float, min_keep: int = 1) -> Self:
        """Leaves the tokens that have at least `p` times the probability of the most likely one."""
        return self._add(lib.pyggml_sampler_add_min_p, _finite("p", p), max(min_keep, 1))

    def penalties(
        self, last_n: int = 64, *, repeat: float = 1.0, frequency: float = 0.0, presence: float = 0.0
    ) -> Self:
        """Makes tokens among the last `last_n` accepted ones less likely. 1.0, 0.0 and 0.0 change nothing."""
        if not (last_n >= 0 and _finite("repeat", repeat) > 0):
            raise InvalidArgumentError(f"last_n is {last_n} and repeat {repeat}: at least 0 and above 0 are required")
        numbers = (repeat, _finite("frequency", frequency), _finite("presence", presence))
        return self._add(lib.pyggml_sampler_add_penalties, self._model.vocab.n_tokens, last_n, *numbers)

    def grammar(self, gbnf: str, root: str = "root") -> Self:
        """Leaves the tokens that continue the grammar. Raises InvalidArgumentError if it does not parse."""
        if not gbnf.strip() or "\0" in gbnf + root:
            raise InvalidArgumentError("the grammar is empty or contains a NUL character")
        with self._model.handle.use() as model:
            vocab = lib.llama_model_get_vocab(model)
            return self._add(lib.pyggml_sampler_add_grammar, vocab, gbnf.encode(), root.encode())

    def logit_bias(self, bias: Mapping[int, float]) -> Self:
        """Adds to the logits of single tokens; `-math.inf` excludes one."""
        n_vocab = self._model.vocab.n_tokens
        for token, value in bias.items():
            if not 0 <= token < n_vocab or math.isnan(value):
                raise InvalidArgumentError(f"the bias {value} of token {token} is wrong: tokens are 0 to {n_vocab - 1}")
        native = ffi.new("llama_logit_bias[]", [{"token": token, "bias": value} for token, value in bias.items()])
        return self._add(lib.pyggml_sampler_add_logit_bias, n_vocab, len(bias), native)

    def sample(self, context: Context, index: int = -1) -> int:
        """Chooses from the context's output `index` (as in `Context.logits`) and accepts the token.

        Raises InvalidArgumentError for an index without output, for a chain without `greedy` or `dist`, and where the
        grammar leaves no token.
        """
        if context.model.handle is not self._model.handle:
            raise InvalidArgumentError("this sampler was made for another model than the context")
        with self._lock:
            if not self._selects:
                raise InvalidArgumentError("this chain never selects a token: end it with greedy() or dist()")
            token = ffi.new("llama_token *")
            chain = self._handle.pointer()
            call(lib.pyggml_sampler_sample, chain, context.sample_pointer(index), index, token)
            return int(token[0])

    def accept(self, token: int) -> None:
        """Takes a token that was chosen elsewhere into account. Raises InvalidArgumentError if a grammar forbids it."""
        if not 0 <= token < self._model.vocab.n_tokens:
            raise InvalidArgumentError(f"token {token} is not in the vocabulary of {self._model.vocab.n_tokens} tokens")
        with self._lock:
            call(lib.pyggml_sampler_accept, self._handle.pointer(), token)

    def reset(self) -> None:
        """Back to the state before the first token; `dist` starts its random numbers again."""
        with self._lock:
            call(lib.pyggml_sampler_reset, self._handle.pointer())

    def clone(self) -> Sampler:
        """A second sampler that continues from this one's state."""
        out = ffi.new("struct llama_sampler **")
        with self._lock:
            call(lib.pyggml_sampler_clone, self._handle.pointer(), out)
        copy = Sampler.__new__(Sampler)
        copy._start(out[0], self._model, selects=self._selects)
        return copy

    def close(self) -> None:
        """Frees the chain. A second call does nothing."""
        with self._lock:
            self._handle.close()

    def __del__(self) -> None:
        handle: NativeHandle | None = getattr(self, "_handle", None)
        if handle is not None and not handle.closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            handle.close()

    def _add(self, function: Callable[..., int], *arguments: object, selects: bool = False) -> Self:
        with self._lock:
            if self._selects:
                raise InvalidArgumentError("this chain already ends with greedy() or dist(): nothing can follow")
            call(function, self._handle.pointer(), *arguments, error=NativeError)
            self._selects = selects
        return self


def _chain_handle(chain: CData, model: NativeHandle) -> NativeHandle:
    try:
        model.acquire()
    except BaseException:
        lib.llama_sampler_free(chain)
        raise

    def free(pointer: CData) -> None:
        lib.llama_sampler_free(pointer)
        model.release()

    return NativeHandle(chain, free, "sampler")


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise InvalidArgumentError(f"{name} is {value}, a finite number is required")
    return value
