"""Settings of our own, as the command line gives them. A leaf; read by the engine and shown by the banner."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PreemptOptions:
    """The `--preempt-*` flags, and what the planner takes of `--priority-*`. Sizes in MiB, times in seconds."""

    ram_mib: int | None = None  # None: min(8192, a quarter of available or cgroup memory)
    use_async: bool = True
    staging_mib: int = 256
    policy: str = "smallest"
    rotate_s: float = 30.0
    disk_mib: int = 0  # 0: no files
    disk_path: str | None = None  # None: /var/tmp
    cache_disk_mib: int = 0  # of the prompt cache; 0: no files
    priority_age_s: float = 120.0
    every_n_tokens: int = 0  # LLAMA_SERVER_PREEMPT_EVERY; 0 = off


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Who may come in, and with what claim. Times in seconds."""

    priority_best: int = 0
    priority_keys: str | None = None  # a file
    max_queue: int | None = None  # requests that may wait; None: no limit
    max_queue_s: float = 0.0  # how long one may wait; 0: no limit
    drain_s: float = 0.0  # how long an end that was asked for waits for requests that run


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How a step runs. What comes out does not depend on any of it."""

    n_sampling_threads: int = 0  # LLAMA_SERVER_SAMPLING_THREADS; 0 = as many as slots and processor allow
    runs_ahead: bool | None = None  # LLAMA_SERVER_RUN_AHEAD; None: where a device computes the whole model


@dataclass(frozen=True, slots=True)
class Config:
    """One start of the server: our options, and the arguments that llama.cpp's own parser gets.

    own_argv  our flags as they were given, for a router that passes them on; what they mean is in the other fields.
    """

    llama_argv: tuple[str, ...] = ()
    own_argv: tuple[str, ...] = field(default=(), compare=False)
    tools_exposed: bool = False  # built-in tools also where anybody may call them
    preempt: PreemptOptions = field(default_factory=PreemptOptions)
    serve: ServeOptions = field(default_factory=ServeOptions)
    step: StepOptions = field(default_factory=StepOptions)
