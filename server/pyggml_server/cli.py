"""argv -> Config: takes the `--preempt-*` flags out of the command line and leaves the rest to llama.cpp's parser.

Pure apart from reading the environment that it is given; imports nothing native. The flags themselves
are the table in `flags`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any, TypeVar

import click

from pyggml_server.config import Config, PreemptOptions, ServeOptions, StepOptions
from pyggml_server.flags import FLAG_BY_NAME, FLAGS, Flag, flag_help

EVERY_VARIABLE = "LLAMA_SERVER_PREEMPT_EVERY"
AHEAD_VARIABLE = "LLAMA_SERVER_RUN_AHEAD"
THREADS_VARIABLE = "LLAMA_SERVER_SAMPLING_THREADS"
TRUE_WORDS = ("on", "enabled", "true", "1")
FALSE_WORDS = ("off", "disabled", "false", "0")
Options = TypeVar("Options", PreemptOptions, ServeOptions)


class OptionError(Exception):
    """A value of one of our own flags or variables is wrong; the message names it and what would be right."""


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Config:
    """Split the arguments (without the program's name); the command line wins over the environment.

    Raises OptionError. What is not ours passes through unread and in order.
    """
    ours, llamas = split(argv)
    command = click.Command("pyggml-server", params=[_option(flag) for flag in FLAGS], add_help_option=False)
    values: dict[str, Any] = {flag.field: _environment_value(flag, environ) for flag in FLAGS}
    try:
        given = command.make_context("pyggml-server", list(ours)).params
    except click.ClickException as refused:
        raise OptionError(_lower_first(refused.format_message()) + _usage_of(refused)) from None
    values.update({field: value for field, value in given.items() if value is not None})
    values["every_n_tokens"] = _environment_count(environ, EVERY_VARIABLE, "tokens (0 = off)")
    tools_exposed = bool(values.pop("tools_exposed"))
    n_threads = _environment_count(environ, THREADS_VARIABLE, "threads (0 = as many as slots and processor allow)")
    return Config(
        llama_argv=llamas,
        own_argv=ours,
        tools_exposed=tools_exposed,
        preempt=_options_of(PreemptOptions, values),
        serve=_options_of(ServeOptions, values),
        step=StepOptions(n_threads, _switch(environ, AHEAD_VARIABLE)),
    )


def split(argv: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(our flags with their values, everything else in order).

    `--flag value` and `--flag=value` are ours alike, and underscores count as dashes, as in llama.cpp. Ours come out
    as llama.cpp's parser reads them: a value is an argument of its own. The value of a flag that is not ours is not
    known to be one, so it cannot be spelled like one of our flags.
    """
    ours: list[str] = []
    llamas: list[str] = []
    rest = iter(argv)
    for argument in rest:
        name, equals, value = argument.partition("=")
        name = name.replace("_", "-") if name.startswith("--") else name
        flag = FLAG_BY_NAME.get(name)
        if flag is None:
            llamas.append(argument)
            continue
        if flag.type is None:
            ours.append(name + equals + value)
        elif equals:
            ours += [name, value]
        else:
            ours += [name, *islice(rest, 1)]
    return tuple(ours), tuple(llamas)


def wants_help(llama_argv: Sequence[str]) -> bool:
    """Whether llama.cpp's parser is going to print its usage and end the process."""
    return any(argument in ("-h", "--help", "--usage") for argument in llama_argv)


def _options_of(kind: type[Options], values: Mapping[str, Any]) -> Options:
    """Those of the values that are fields of this kind; what is None keeps its default."""
    return kind(**{f.name: values[f.name] for f in fields(kind) if values.get(f.name) is not None})


def _option(flag: Flag) -> click.Option:
    if flag.type is None:
        return click.Option(["/".join(flag.names), flag.field], default=None)
    return click.Option([*flag.names, flag.field], type=flag.type, default=None)


def _environment_value(flag: Flag, environ: Mapping[str, str]) -> int | float | str | bool | None:
    if flag.type is None:
        return _environment_switch(flag.env, environ)
    text = environ.get(flag.env)
    if text is None:
        return None
    try:
        value: int | float | str = flag.type.convert(text, None, None)
    except click.BadParameter as refused:
        message = _lower_first(refused.message)
        raise OptionError(f'error while handling environment variable "{flag.env}": {message}') from None
    return value


def _environment_switch(variable: str, environ: Mapping[str, str]) -> bool | None:
    # as in llama.cpp, the mere presence of the NO_ variable switches off
    if variable.replace("LLAMA_ARG_", "LLAMA_ARG_NO_") in environ:
        return False
    return _switch(environ, variable)


def _switch(environ: Mapping[str, str], variable: str) -> bool | None:
    text = environ.get(variable)
    if text is None:
        return None
    if text not in TRUE_WORDS + FALSE_WORDS:
        known = ", ".join(TRUE_WORDS + FALSE_WORDS)
        raise OptionError(f"error while handling environment variable \"{variable}\": '{text}' is not one of {known}")
    return text in TRUE_WORDS


def _environment_count(environ: Mapping[str, str], variable: str, what: str) -> int:
    text = environ.get(variable, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise OptionError(
            f"error while handling environment variable \"{variable}\": '{text}' is not a number of {what}"
        )
    return int(text)


def _usage_of(refused: click.ClickException) -> str:
    names: list[str] = []
    if isinstance(refused, click.BadParameter) and refused.param is not None:
        names = [*refused.param.opts]
    elif isinstance(refused, click.BadOptionUsage):
        names = [refused.option_name]
    flags = [FLAG_BY_NAME[name] for name in names if name in FLAG_BY_NAME]
    usage = "".join(flag_help(flag) for flag in flags)
    return f"\n\nusage:\n{usage}\n\nto show complete usage, run with -h" if usage else ""


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
