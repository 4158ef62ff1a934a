"""Tasks that this context cannot ever run, and what llama-server says of each. Engine thread; decides, does nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyggml_server.engine.slots.slot import Job

if TYPE_CHECKING:
    from pyggml_server.native.runtime import Runtime

TOO_LONG = "exceed_context_size_error"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error of llama-server's: its message, its type and its further fields."""

    message: str
    error_type: str
    extra: Mapping[str, int] = field(default_factory=dict)


def check_admissible(job: Job, runtime: Runtime) -> Refusal | None:
    """The refusal of a job that no slot can hold or no batch can take, else None."""
    if not job.task.embeds and not runtime.has_memory and job.n_prompt > 0:
        return Refusal("the current context does not support logits computation. skipping", "invalid_request_error")
    n_prompt, n_ctx = job.n_prompt, runtime.n_ctx_slot
    sizes = {"n_prompt_tokens": n_prompt, "n_ctx": n_ctx}
    if not job.task.is_whole:
        message = f"request ({n_prompt} tokens) exceeds the available context size ({n_ctx} tokens), try increasing it"
        return Refusal(message, TOO_LONG, sizes) if n_prompt >= n_ctx else None
    if n_prompt > runtime.n_ubatch:
        message = (
            f"input ({n_prompt} tokens) is too large to process. increase the physical batch size "
            f"(current batch size: {runtime.n_ubatch})"
        )
        return Refusal(message, "invalid_request_error")
    message = f"input ({n_prompt} tokens) is larger than the max context size ({n_ctx} tokens). skipping"
    return Refusal(message, TOO_LONG, sizes) if n_prompt > n_ctx else None
