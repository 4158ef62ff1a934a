"""Our own flags, as one table: the parser in `cli` and the help text are made from it. Pure."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import Any

import click

MOST_STAGING_MIB = 1 << 24  # 16 TiB: no device has more, and it is a number of bytes that a machine can count
HELP_COLUMN = 40
HELP_WIDTH = 70


class MebibytesType(click.IntRange):
    """A whole number of MiB. `name` is what click says a wrong value is not."""

    name = "whole number of MiB"


class CountType(click.IntRange):
    """A whole number."""

    name = "whole number"


class SecondsType(click.FloatRange):
    """A finite number of seconds, 0 or more; plain floats would let `nan` and `inf` through."""

    name = "number of seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Raises click.BadParameter."""
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of ours, as the parser and the help need it. `type` None means a switch without a value."""

    names: tuple[str, ...]
    field: str
    env: str
    help: str
    hint: str = ""
    type: click.ParamType[Any] | None = None
    section: str = "preemption params"


FLAGS = (
    Flag(
        ("--preempt-ram",),
        "ram_mib",
        "LLAMA_ARG_PREEMPT_RAM",
        "host memory for parked sequences in MiB, 0 = never park "
        "(default: the smaller of 8192 and a quarter of the available memory)",
        "MiB",
        MebibytesType(min=0),
    ),
    Flag(
        ("--preempt-async", "--no-preempt-async"),
        "use_async",
        "LLAMA_ARG_PREEMPT_ASYNC",
        "copy parked state while the other slots keep decoding (default: enabled)",
    ),
    Flag(
        ("--preempt-staging",),
        "staging_mib",
        "LLAMA_ARG_PREEMPT_STAGING",
        "memory on each device that parked state passes through, in MiB, 0 = none (default: 256)",
        "MiB",
        MebibytesType(min=0, max=MOST_STAGING_MIB),
    ),
    Flag(
        ("--preempt-policy",),
        "policy",
        "LLAMA_ARG_PREEMPT_POLICY",
        "which sequence is parked first when the KV pool is full (default: smallest)",
        "{smallest,youngest,oldest}",
        click.Choice(["smallest", "youngest", "oldest"]),
    ),
    Flag(
        ("--preempt-rotate",),
        "rotate_s",
        "LLAMA_ARG_PREEMPT_ROTATE",
        "seconds that a parked sequence waits before it gets a turn, 0 = never (default: 30)",
        "S",
        SecondsType(min=0),
    ),
    Flag(
        ("--preempt-disk",),
        "disk_mib",
        "LLAMA_ARG_PREEMPT_DISK",
        "files for parked sequences beyond --preempt-ram in MiB, 0 = none (default: 0)",
        "MiB",
        MebibytesType(min=0),
    ),
    Flag(
        ("--cache-disk",),
        "cache_disk_mib",
        "LLAMA_ARG_CACHE_DISK",
        "files for prompts beyond --cache-ram, which the next start finds, in MiB, 0 = none (default: 0)",
        "MiB",
        MebibytesType(min=0),
    ),
    Flag(
        ("--disk-path",),
        "disk_path",
        "LLAMA_ARG_DISK_PATH",
        "folder on a disk for the files of --preempt-disk and --cache-disk (default: /var/tmp)",
        "FOLDER",
        click.STRING,
    ),
    Flag(
        ("--priority-best",),
        "priority_best",
        "LLAMA_ARG_PRIORITY_BEST",
        "the lowest `priority` that a request may claim; lower goes first (default: 0)",
        "N",
        CountType(-1_000_000, 1_000_000),
        section="priority params",
    ),
    Flag(
        ("--priority-keys",),
        "priority_keys",
        "LLAMA_ARG_PRIORITY_KEYS",
        "file with a number and an API key on each line: the `priority` of requests with this key, and the lowest that "
        "they may claim (default: none)",
        "FNAME",
        click.STRING,
        section="priority params",
    ),
    Flag(
        ("--priority-age",),
        "priority_age_s",
        "LLAMA_ARG_PRIORITY_AGE",
        "seconds after which a request that waits counts as of the best priority, 0 = never (default: 120)",
        "S",
        SecondsType(min=0),
        section="priority params",
    ),
    Flag(
        ("--max-queue",),
        "max_queue",
        "LLAMA_ARG_MAX_QUEUE",
        "requests that may wait for a slot; another one is refused (503) (default: no limit)",
        "N",
        CountType(min=0, max=2**31 - 1),
        section="queue params",
    ),
    Flag(
        ("--max-queue-seconds",),
        "max_queue_s",
        "LLAMA_ARG_MAX_QUEUE_SECONDS",
        "seconds that a request may wait before it begins; then it is refused (503), 0 = no limit (default: 0)",
        "S",
        SecondsType(min=0),
        section="queue params",
    ),
    Flag(
        ("--drain-seconds",),
        "drain_s",
        "LLAMA_ARG_DRAIN_SECONDS",
        "seconds that a server which is told to end waits for running requests; it takes no new ones (default: 0)",
        "S",
        SecondsType(min=0),
        section="queue params",
    ),
    Flag(
        ("--tools-exposed", "--no-tools-exposed"),
        "tools_exposed",
        "LLAMA_ARG_TOOLS_EXPOSED",
        "serve the built-in tools of --tools and --agent without an API key on a host that other machines reach "
        "(default: disabled)",
        section="tools params",
    ),
)
FLAG_BY_NAME = {name: flag for flag in FLAGS for name in flag.names}


def help_text() -> str:
    """Our flags as sections in the layout of llama.cpp's usage; its own sections follow."""
    sections = dict.fromkeys(flag.section for flag in FLAGS)
    return "".join(_section(name) for name in sections)


def _section(name: str) -> str:
    flags = "".join(flag_help(flag) for flag in FLAGS if flag.section == name)
    return f"----- {name} -----\n\n{flags}\n\n"


def flag_help(flag: Flag) -> str:
    """The lines of one flag: names from column 0, help from column 40, broken after 70 characters."""
    names = f"{', '.join(flag.names)} {flag.hint}".rstrip()
    lines = [*textwrap.wrap(flag.help, HELP_WIDTH), f"(env: {flag.env})"]
    indent = " " * HELP_COLUMN
    head = names.ljust(HELP_COLUMN) if len(names) <= HELP_COLUMN - 3 else names + "\n" + indent
    return head + ("\n" + indent).join(lines) + "\n"
