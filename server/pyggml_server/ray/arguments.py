"""What follows `serve run pyggml_server.ray:app`, or stands under `args:` of a Serve config file. Pure.

Some say how Ray is to run the replicas. Every other one is a flag of the server: `ctx_size=8192` is `--ctx-size 8192`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

SWITCHED_ON, SWITCHED_OFF = ("true", "on"), ("false", "off")
#: Flags about sockets: Ray's proxy has them.
OF_THE_PROXY = frozenset({"--host", "--port", "--reuse-port", "--ssl-key-file", "--ssl-cert-file"})
MOST_OF_SHORT = 3  # letters of a flag with one dash
ROUTINGS = ("session", "any")


class ArgumentError(ValueError):
    """An argument of the application is wrong; the message names it and what would be right."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """How Ray runs the replicas, and the command line of each.

    replicas              how many there are; with `max_replicas`, how many at the least and at the start
    max_replicas          0: no autoscaling
    target_pressure       what share of a pool autoscaling leaves in use (`scaling` says what is counted)
    upscale_delay_s       how long pressure is to last before a replica is added
    downscale_delay_s     how long it is to be low before one is drained
    cpus, gpus            what one replica takes of its machine
    max_ongoing_requests  of one replica, those that wait for a slot included; more go to another replica
    drain_s               how long a replica that is to end waits for the requests that run
    routing               `session`: a conversation stays on its replica; `any`: Ray's own choice by load
    """

    replicas: int = 1
    max_replicas: int = 0
    target_pressure: float = 0.8
    upscale_delay_s: float = 30.0
    downscale_delay_s: float = 600.0
    cpus: float = 1.0
    gpus: float = 0.0
    max_ongoing_requests: int = 256
    drain_s: float = 600.0
    routing: str = "session"
    argv: tuple[str, ...] = ()

    @property
    def scales(self) -> bool:
        return self.max_replicas > 0


def read_arguments(given: Mapping[str, Any]) -> Arguments:
    """Text from a command line, or values from a config file. Raises ArgumentError."""
    kinds = {f.name: type(f.default) for f in fields(Arguments) if f.name != "argv"}
    ours = {name: _value(name, value, kinds[name]) for name, value in given.items() if name in kinds}
    argv: list[str] = []
    for name, value in given.items():
        if name not in kinds:
            argv += shlex.split(str(value)) if name == "flags" else _flag(name, value)
    if taken := sorted({word.partition("=")[0].replace("_", "-") for word in argv} & OF_THE_PROXY):
        remedy = "Ray's proxy listens: set host, port and TLS under http_options of a Serve config file"
        raise ArgumentError(f"{taken[0]} is not for a replica; {remedy}")
    arguments = Arguments(**ours, argv=tuple(argv))
    _check(arguments)
    return arguments


def _check(arguments: Arguments) -> None:
    if arguments.replicas < 1:
        raise ArgumentError(f"replicas={arguments.replicas}: at least 1")
    if arguments.scales and arguments.max_replicas < arguments.replicas:
        least = f"at least replicas={arguments.replicas}, or 0 for no autoscaling"
        raise ArgumentError(f"max_replicas={arguments.max_replicas}: {least}")
    if arguments.max_ongoing_requests < 1:
        raise ArgumentError(f"max_ongoing_requests={arguments.max_ongoing_requests}: at least 1")
    if not arguments.target_pressure > 0:
        raise ArgumentError(f"target_pressure={arguments.target_pressure:g}: above 0")
    for name in ("cpus", "gpus", "drain_s", "upscale_delay_s", "downscale_delay_s"):
        if not 0 <= getattr(arguments, name) < float("inf"):
            raise ArgumentError(f"{name}={getattr(arguments, name):g}: 0 or more")
    if arguments.routing not in ROUTINGS:
        raise ArgumentError(f"routing={arguments.routing}: one of {', '.join(ROUTINGS)}")


def _value(name: str, value: object, kind: type) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError):
        what = {int: "a whole number", float: "a number"}.get(kind, "text")
        raise ArgumentError(f"{name}={value}: not {what}") from None


def _flag(name: str, value: object) -> list[str]:
    """`name=true` is the flag alone, `name=false` its `--no-` form. Short names have one dash, as `-c` and `-ngl`."""
    flag = ("-" if len(name) <= MOST_OF_SHORT else "--") + name.replace("_", "-")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if text in SWITCHED_ON and not _takes_a_word(name):
        return [flag]
    if text in SWITCHED_OFF and not _takes_a_word(name):
        return ["--no-" + flag.lstrip("-")]
    return [flag, text]


def _takes_a_word(name: str) -> bool:
    """Flags of llama-server whose value is itself on or off."""
    return name.replace("-", "_") in {"fa", "flash_attn", "fit", "rea", "reasoning", "log_colors"}
