"""Our flags are taken out of the command line; everything else is llama.cpp's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyggml_server.cli import OptionError, parse, split, wants_help
from pyggml_server.config import Config, PreemptOptions, ServeOptions, StepOptions
from pyggml_server.flags import FLAGS, flag_help, help_text


def test_without_flags_the_defaults_hold() -> None:
    assert parse([], {}) == Config()


def test_every_flag_is_understood() -> None:
    switches = ["--no-preempt-async", "--preempt-policy", "oldest"]
    argv = ["--preempt-ram", "512", *switches, "--preempt-staging", "0", "--preempt-rotate", "2.5"]
    argv += ["--priority-best", "-3", "--priority-age", "60", "--priority-keys", "classes.txt"]
    options = PreemptOptions(
        ram_mib=512,
        use_async=False,
        staging_mib=0,
        policy="oldest",
        rotate_s=2.5,
        disk_mib=100,
        disk_path="/scratch",
        cache_disk_mib=200,
        priority_age_s=60.0,
    )
    argv += ["--preempt-disk", "100", "--disk-path", "/scratch", "--cache-disk", "200"]
    argv += ["--max-queue", "20", "--max-queue-seconds", "1.5", "--drain-seconds", "9"]
    serve = ServeOptions(priority_best=-3, priority_keys="classes.txt", max_queue=20, max_queue_s=1.5, drain_s=9)
    assert parse(argv, {}) == Config(preempt=options, serve=serve)


def test_values_may_follow_an_equals_sign_and_underscores_are_dashes() -> None:
    assert parse(["--preempt-ram=512", "--preempt_policy", "youngest"], {}).preempt == PreemptOptions(
        ram_mib=512, policy="youngest"
    )


def test_the_last_one_of_repeated_flags_counts() -> None:
    argv = ["--preempt-ram", "1", "--preempt-ram", "2", "--no-preempt-async", "--preempt-async"]
    assert parse(argv, {}).preempt == PreemptOptions(ram_mib=2, use_async=True)


def test_everything_else_passes_through_in_order() -> None:
    argv = [
        "-m",
        "x.gguf",
        "--preempt-ram",
        "1",
        "-np",
        "4",
        "--",
        "--grammar=--x",
        "-p",
        "-h",
        "--unknown",
        "--no-preempt",
    ]
    assert split(argv) == (
        ("--preempt-ram", "1"),
        ("-m", "x.gguf", "-np", "4", "--", "--grammar=--x", "-p", "-h", "--unknown", "--no-preempt"),
    )


def test_variables_set_what_the_command_line_does_not() -> None:
    environ = {
        "LLAMA_ARG_PREEMPT_RAM": "100",
        "LLAMA_ARG_PREEMPT_ASYNC": "disabled",
        "LLAMA_ARG_PREEMPT_STAGING": "10",
        "LLAMA_ARG_PREEMPT_POLICY": "oldest",
        "LLAMA_ARG_PREEMPT_ROTATE": "0",
        "LLAMA_SERVER_PREEMPT_EVERY": "32",
    }
    assert parse(["--preempt-ram", "7"], environ).preempt == PreemptOptions(
        ram_mib=7, use_async=False, staging_mib=10, policy="oldest", rotate_s=0.0, every_n_tokens=32
    )


def test_the_negative_variable_switches_off_whatever_its_value() -> None:
    environ = {"LLAMA_ARG_NO_PREEMPT_ASYNC": "0", "LLAMA_ARG_PREEMPT_ASYNC": "1"}
    assert not parse([], environ).preempt.use_async
    assert parse(["--preempt-async"], environ).preempt.use_async


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--preempt-ram", "lots"], ["--preempt-ram", "'lots' is not a valid whole number of MiB"]),
        (["--preempt-ram", "-5"], ["--preempt-ram", "-5", "x>=0"]),
        (["--preempt-ram"], ["--preempt-ram", "requires an argument"]),
        (["--preempt-ram", "--preempt-async"], ["--preempt-ram", "--preempt-async"]),
        (["--preempt-async=1"], ["--preempt-async", "does not take a value"]),
        (["--preempt-staging", "-1"], ["--preempt-staging", "-1", "0<=x<=16777216"]),
        (["--preempt-staging", "99999999999999"], ["--preempt-staging", "99999999999999", "0<=x<=16777216"]),
        (["--preempt-policy", "biggest"], ["--preempt-policy", "biggest", "smallest"]),
        (["--preempt-rotate", "nan"], ["--preempt-rotate", "nan"]),
        (["--preempt-rotate", "soon"], ["--preempt-rotate", "'soon' is not a valid number of seconds"]),
        (["--preempt-rotate", "-1"], ["--preempt-rotate", "-1"]),
        (["--priority-best", "high"], ["--priority-best", "'high' is not a valid whole number"]),
        (["--priority-best", "-1000001"], ["--priority-best", "-1000001"]),
        (["--max-queue", "-1"], ["--max-queue", "-1", "0<=x"]),
    ],
)
def test_a_wrong_value_is_refused_with_the_flags_usage(argv: list[str], parts: list[str]) -> None:
    with pytest.raises(OptionError) as refused:
        parse(argv, {})
    for part in [*parts, "usage:", "run with -h"]:
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LLAMA_ARG_PREEMPT_RAM", "much"),
        ("LLAMA_ARG_PREEMPT_ASYNC", "maybe"),
        ("LLAMA_ARG_PREEMPT_POLICY", "biggest"),
        ("LLAMA_ARG_PREEMPT_ROTATE", "inf"),
        ("LLAMA_SERVER_PREEMPT_EVERY", "-1"),
    ],
)
def test_a_wrong_variable_is_named_with_its_value(variable: str, value: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse([], {variable: value})
    assert f'"{variable}"' in str(refused.value)
    assert f"'{value}'" in str(refused.value)


def test_help_shows_every_flag_and_variable_in_llama_cpps_columns() -> None:
    text = help_text()
    assert text.startswith("----- preemption params -----\n\n")
    for flag in FLAGS:
        assert flag_help(flag) in text
        first, *others = flag_help(flag).splitlines()
        assert first.startswith(", ".join(flag.names))
        assert all(line.startswith(" " * 40) and line[40] != " " for line in others)
        assert f"(env: {flag.env})" in others[-1]


@pytest.mark.parametrize(("argv", "is_wanted"), [(["-h"], True), (["-m", "x", "--usage"], True), (["-m", "x"], False)])
def test_a_wish_for_help_is_noticed(argv: list[str], is_wanted: bool) -> None:
    assert wants_help(argv) is is_wanted


def test_the_program_refuses_a_wrong_value_with_code_1_before_anything_native_is_loaded() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pyggml_server", "--preempt-ram", "abc"]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(root / "server")}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: invalid value for '--preempt-ram': 'abc'")


def test_generation_runs_ahead_where_the_environment_says_so() -> None:
    assert parse([], {}).step.runs_ahead is None
    assert parse([], {"LLAMA_SERVER_RUN_AHEAD": "on"}).step.runs_ahead is True
    assert parse([], {"LLAMA_SERVER_RUN_AHEAD": "0"}).step.runs_ahead is False
    with pytest.raises(OptionError, match=r"LLAMA_SERVER_RUN_AHEAD.*'perhaps' is not one of"):
        parse([], {"LLAMA_SERVER_RUN_AHEAD": "perhaps"})


def test_the_number_of_sampling_threads_comes_from_the_environment() -> None:
    assert parse([], {}).step == StepOptions(n_sampling_threads=0)
    assert parse([], {"LLAMA_SERVER_SAMPLING_THREADS": "3"}).step == StepOptions(n_sampling_threads=3)
    for text in ("-1", "three", "1000000000000"):
        with pytest.raises(OptionError, match=f"LLAMA_SERVER_SAMPLING_THREADS.*'{text}' is not a number of threads"):
            parse([], {"LLAMA_SERVER_SAMPLING_THREADS": text})
