"""How blocks of a terminal are read."""

from __future__ import annotations

from tests.docs.console import Command, console_commands

TEXT = """
```console
$ one
said
$ two \\
>     more
^C
```
```
$ not marked
```
```console
$ three
```
"""


def test_commands_come_with_what_they_print_and_with_their_other_lines() -> None:
    assert console_commands(TEXT) == [
        Command("one\n", "said\n"),
        Command("two \\\n    more\n", "^C\n"),
        Command("three\n", ""),
    ]


def test_dots_stand_for_anything_and_the_rest_for_itself() -> None:
    assert Command("x", "a ... c\n").prints("a b\nb c\n")
    assert not Command("x", "a ... c\n").prints("a b d\n")
    assert not Command("x", "a\n").prints("a\nb\n")
