"""Blocks of a terminal in a document: commands after `$ `, each with what it printed. Pure."""

from __future__ import annotations

import doctest
import re
from dataclasses import dataclass

PROMPT = "$ "
CONTINUATION = "> "


@dataclass(frozen=True, slots=True)
class Command:
    """What is typed, and what it prints; `...` in that stands for anything."""

    typed: str
    printed: str

    def prints(self, text: str) -> bool:
        """Whether this is what it prints."""
        return doctest.OutputChecker().check_output(self.printed, text, doctest.ELLIPSIS)


def console_commands(text: str) -> list[Command]:
    """Those of all blocks that are marked as `console`, in order."""
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [command for block in blocks for command in _commands_of(block)]


def _commands_of(block: str) -> list[Command]:
    commands: list[Command] = []
    typed, printed = "", ""
    for line in block.splitlines(keepends=True):
        if line.startswith(PROMPT):
            if typed:
                commands.append(Command(typed, printed))
            typed, printed = line.removeprefix(PROMPT), ""
        elif line.startswith(CONTINUATION) and not printed:
            typed += line.removeprefix(CONTINUATION)
        else:
            printed += line
    return [*commands, Command(typed, printed)]
