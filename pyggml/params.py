"""What a context is made with, checked before llama.cpp sees it (it asserts some of this). Pure data; any thread."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pyggml.errors import InvalidArgumentError, UnsupportedError
from pyggml.ffi import CData, ffi, lib
from pyggml.model import Model


class CacheType(enum.IntEnum):
    """The element types that the K and V cache can have."""

    F32 = lib.GGML_TYPE_F32
    F16 = lib.GGML_TYPE_F16
    BF16 = lib.GGML_TYPE_BF16
    Q8_0 = lib.GGML_TYPE_Q8_0
    Q4_0 = lib.GGML_TYPE_Q4_0
    Q4_1 = lib.GGML_TYPE_Q4_1
    IQ4_NL = lib.GGML_TYPE_IQ4_NL
    Q5_0 = lib.GGML_TYPE_Q5_0
    Q5_1 = lib.GGML_TYPE_Q5_1


class Pooling(enum.IntEnum):
    """How the embeddings of a sequence's tokens become one."""

    MODEL_DEFAULT = lib.LLAMA_POOLING_TYPE_UNSPECIFIED
    NONE = lib.LLAMA_POOLING_TYPE_NONE
    MEAN = lib.LLAMA_POOLING_TYPE_MEAN
    CLS = lib.LLAMA_POOLING_TYPE_CLS
    LAST = lib.LLAMA_POOLING_TYPE_LAST
    RANK = lib.LLAMA_POOLING_TYPE_RANK


class FlashAttention(enum.IntEnum):
    AUTO = lib.LLAMA_FLASH_ATTN_TYPE_AUTO
    OFF = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
    ON = lib.LLAMA_FLASH_ATTN_TYPE_ENABLED


_UINT32_MAX = 2**32 - 1
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class ContextParams:
    """Sizes in tokens. A 0 means what it means in llama.cpp: `n_ctx` from the model, `n_ubatch` as `n_batch`,
    `n_outputs_max` as `n_batch`.

    `n_seq_max` sequences share one pool of `n_ctx` cells (`kv_unified`) or get n_ctx / n_seq_max cells each.
    `n_threads` is for one token per sequence, `n_threads_batch` for prompts. `n_bytes_staging` is memory on each device
    that a Transfer gathers scattered cells in, half of it for saves and half for restores; 0 for none.
    """

    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    n_seq_max: int = 1
    n_outputs_max: int = 0
    n_threads: int = 4
    n_threads_batch: int = 4
    kv_unified: bool = True
    cache_type_k: CacheType = CacheType.F16
    cache_type_v: CacheType = CacheType.F16
    flash_attention: FlashAttention = FlashAttention.AUTO
    embeddings: bool = False
    pooling: Pooling = Pooling.MODEL_DEFAULT
    offload_kqv: bool = True
    swa_full: bool = True
    n_bytes_staging: int = 0

    def __post_init__(self) -> None:
        n_seq_most = lib.llama_max_parallel_sequences()
        for name, least, most in (
            ("n_ctx", 0, _UINT32_MAX - 256),
            ("n_batch", 1, _INT32_MAX),
            ("n_ubatch", 0, _INT32_MAX),
            ("n_seq_max", 1, n_seq_most),
            ("n_outputs_max", 0, _INT32_MAX),
            ("n_threads", 1, 512),
            ("n_threads_batch", 1, 512),
            ("n_bytes_staging", 0, _INT64_MAX),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise InvalidArgumentError(f"{name} is {value}, allowed is {least} to {most}")
        for name, kind in (
            ("cache_type_k", CacheType),
            ("cache_type_v", CacheType),
            ("flash_attention", FlashAttention),
            ("pooling", Pooling),
        ):
            if getattr(self, name) not in list(kind):
                raise InvalidArgumentError(f"{name} is {getattr(self, name)!r}, allowed is a {kind.__name__}")

    def check_for(self, model: Model) -> None:
        """Raises for what this model cannot do, or what would make llama.cpp assert while it creates the context."""
        if model.vocab_only:
            raise UnsupportedError("the model was loaded with vocab_only: load it again with its weights")
        n_ctx = self.n_ctx or model.n_ctx_train
        n_outputs = min(self.n_batch, n_ctx)
        if self.n_outputs_max and not model.has_encoder:
            n_outputs = min(n_outputs, self.n_outputs_max)
        if self.n_seq_max > n_outputs:
            raise InvalidArgumentError(
                f"n_seq_max is {self.n_seq_max}, but a batch has at most {n_outputs} outputs: "
                "raise n_ctx, n_batch or n_outputs_max"
            )

    def to_native(self) -> CData:
        """A `struct llama_context_params *` with these values over llama.cpp's defaults."""
        params = ffi.new("struct llama_context_params *", lib.llama_context_default_params())
        for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_outputs_max", "n_threads", "n_threads_batch"):
            setattr(params, name, getattr(self, name))
        for name in ("kv_unified", "embeddings", "offload_kqv", "swa_full", "n_bytes_staging"):
            setattr(params, name, getattr(self, name))
        params.type_k = int(self.cache_type_k)
        params.type_v = int(self.cache_type_v)
        params.flash_attn_type = int(self.flash_attention)
        params.pooling_type = int(self.pooling)
        return params
