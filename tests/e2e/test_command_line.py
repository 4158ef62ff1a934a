"""What is wrong with the command line ends both programs with the same exit code and the same message, on the same
stream."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.program import PATIENCE_S, our_program, stock_program

# time, level, and the function that speaks; functions of ours have names of their own
LOG_PREFIX = re.compile(r"^[\d.]+ (?P<level>[A-Z]) (?P<speaker>(?:srv|cmn|slot) +\S+: )?")
FLAG = re.compile(r"^(-\S+?,? .*?)(?:   |$)", re.MULTILINE)


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def outcome(program: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, and what it printed on each of its two streams."""
    done = subprocess.run(
        [program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def complaints(printed: str) -> list[str]:
    """The error lines of the log, without time and speaker, and every line that is not of the log."""
    lines = []
    for line in printed.splitlines():
        prefix = LOG_PREFIX.match(line)
        if prefix is None or prefix["level"] == "E":
            lines.append(line[prefix.end() :] if prefix else line)
    return lines


@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-such-flag"],
        ["-c", "abc"],
        ["-np", "x"],
        ["--port"],
        ["--ctx-size"],
        ["--api-key-file", "no/such/file"],
        ["--samplers"],
        ["-m"],
        ["no-flag"],
        ["--port", "x"],
        ["-ctk", "no-such-type"],
        ["--grammar-file", "no/such/file"],
        ["--slot-save-path", "no/such/folder"],
        ["-m", "pyproject.toml", "--port", "0", "--path", "no/such/folder"],
        ["-m", "pyproject.toml", "--port", "0", "--host", "127.0.0.1,localhost"],
    ],
    ids=" ".join,
)
def test_a_mistake_ends_both_with_the_same_code_and_words(arguments: list[str]) -> None:
    our_code, *our_words = outcome(our_program(), *arguments)
    stock_code, *stock_words = outcome(stock_program(), *arguments)
    assert our_code == stock_code == 1
    assert [complaints(printed) for printed in our_words] == [complaints(printed) for printed in stock_words]


@pytest.mark.parametrize(
    ("file", "remedy"),
    [
        (
            "no/such/model.gguf",
            "there is no such file: give the path of a GGUF file, or -hf user/model to download one",
        ),
        ("pyproject.toml", "it is no GGUF file: convert its model with llama.cpp's convert_hf_to_gguf.py"),
        ("tests", "it is a folder, without any GGUF file in it"),
    ],
)
def test_a_file_that_is_no_model_ends_both_alike_and_ours_says_what_to_do(file: str, remedy: str) -> None:
    our_code, *our_words = outcome(our_program(), "-m", file, "--port", "0")
    stock_code, *stock_words = outcome(stock_program(), "-m", file, "--port", "0")
    assert our_code == stock_code == 1
    *ours, our_last_but_one, our_last = complaints("".join(our_words))
    *stock, stock_last_but_one, stock_last = complaints("".join(stock_words))
    assert (ours, our_last) == (stock, stock_last)
    assert our_last_but_one.startswith(f"{stock_last_but_one}: {remedy}")


def test_a_busy_port_ends_both_with_the_same_code_and_words_and_ours_says_why(
    smollm2_path: Path, busy_port: int
) -> None:
    arguments = ["-m", str(smollm2_path), "--port", str(busy_port)]
    our_code, _, our_words = outcome(our_program(), *arguments)
    stock_code, _, stock_words = outcome(stock_program(), *arguments)
    assert our_code == stock_code == 1
    bind_words, exit_words = complaints(stock_words)
    why = "Address already in use; choose another --port, or --port 0 for any that is free"
    assert complaints(our_words) == [f"{bind_words} (127.0.0.1:{busy_port}: {why})", exit_words]


def test_help_is_that_of_stock_after_our_own_flags() -> None:
    our_code, our_help, our_words = outcome(our_program(), "--help")
    stock_code, stock_help, stock_words = outcome(stock_program(), "--help")
    assert our_code == stock_code == 0
    assert our_words == stock_words
    assert FLAG.findall(stock_help)
    assert set(FLAG.findall(stock_help)) <= set(FLAG.findall(our_help))
    assert our_help.endswith(stock_help)
    assert "--preempt-ram" in our_help.removesuffix(stock_help)


def test_the_version_is_that_of_stock() -> None:
    assert outcome(our_program(), "--version") == outcome(stock_program(), "--version")


@pytest.mark.parametrize(
    "arguments", [["--preempt-ram", "-1"], ["--preempt-policy", "best"], ["--preempt-rotate", "x"]]
)
def test_a_mistake_in_a_flag_of_our_own_reads_like_one_in_a_flag_of_stock(arguments: list[str]) -> None:
    code, _, words = outcome(our_program(), *arguments)
    assert code == 1
    assert words.startswith("error: ")
    assert arguments[0] in words
    assert words.endswith("to show complete usage, run with -h\n")


@pytest.mark.parametrize("flag", ["--lookup-cache-static", "--lookup-cache-dynamic"])
def test_a_lookup_cache_that_is_not_there_ends_the_start_with_its_name(flag: str) -> None:
    code, _, words = outcome(our_program(), "-m", "model.gguf", "--spec-type", "ngram-cache", flag, "no/such/file")
    assert code == 1
    assert words.startswith(f"error: {flag} 'no/such/file': it cannot be read")
