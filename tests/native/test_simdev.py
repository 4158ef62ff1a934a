"""simdev itself: every case of its C++ test programs is a test here, each in a process of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.native.conftest import NativeTests, run

SOURCES = sorted(Path(__file__).parent.glob("test-simdev-*.cpp"))
CASES = [
    (source.stem, case)
    for source in SOURCES
    for case in re.findall(r"^CASE\((\w+)\)", source.read_text(encoding="utf-8"), re.MULTILINE)
]
README = (Path(__file__).parent / "simdev" / "README.md").read_text(encoding="utf-8")


def is_built(native_tests: NativeTests, program: str, case: str) -> bool:
    return case in run([native_tests.folder / program]).stdout.split()


@pytest.mark.parametrize(("program", "case"), CASES, ids=[f"{program[12:]}-{case}" for program, case in CASES])
def test_case(native_tests: NativeTests, program: str, case: str) -> None:
    if native_tests.api_version < 3 and not is_built(native_tests, program, case):
        pytest.skip(f"needs backend API version 3 (event query), the tree has {native_tests.api_version}")
    done = native_tests.run_case(program, case)
    assert done.returncode == 0, done.stderr[-2000:]


def test_it_loads_with_as_many_devices_as_asked_for(native_tests: NativeTests) -> None:
    for n_devices in (1, 4):
        done = native_tests.run_case("test-simdev-load", "load_and_print_the_log", {"SIMDEV_DEVICES": str(n_devices)})
        assert f"loaded: yes, devices: {1 + n_devices}\n" in done.stdout  # the CPU is the other one


def test_a_build_against_the_old_backend_header_is_rejected(native_tests: NativeTests) -> None:
    new, old = native_tests.api_version, native_tests.old_api_version
    if new == old:
        pytest.skip(f"the patch series does not change the backend API version yet: it is {new}")
    library = native_tests.old_simdev
    done = native_tests.run_case("test-simdev-load", "load_and_print_the_log", library=library)
    said = f"failed to initialize backend from {library}: incompatible API version (backend: {old}, current: {new})"
    assert said in done.stdout
    assert "loaded: no, devices: 1\n" in done.stdout


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SIMDEV_DEVICES", "5", "SIMDEV_DEVICES=5 is no whole number from 1 to 4: set one, or unset it"),
        ("SIMDEV_LATE", "yes", "SIMDEV_LATE=yes is no whole number from 0 to 1"),
        ("SIMDEV_CALL_NS", "-1", "SIMDEV_CALL_NS=-1 is no whole number"),
        ("SIMDEV_BANDWIDTH", "1", "SIMDEV_BANDWIDTH is no knob of simdev"),
    ],
)
def test_a_knob_that_is_none_refuses_the_load(native_tests: NativeTests, name: str, value: str, said: str) -> None:
    done = native_tests.run_case("test-simdev-load", "load_and_print_the_log", {name: value})
    assert said in done.stderr
    assert "loaded: no, devices: 1\n" in done.stdout


def test_the_trace_is_written_when_the_process_exits(native_tests: NativeTests, tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    env = {"SIMDEV_TRACE_FILE": str(file)}
    done = native_tests.run_case("test-simdev-load", "write_two_entries_to_the_trace", env)
    assert done.returncode == 0, done.stderr
    entries = [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()]
    assert [(entry["id"], entry["kind"], entry["stream"], entry["bytes"]) for entry in entries] == [
        (1, "set", 0, 8),
        (2, "set", 1, 8),
    ]
    assert all(entry["done"] == entry["id"] and entry["fault"] == 0 for entry in entries)
    assert entries[1]["name"] == 'a "quoted" name'


def test_the_readme_lists_every_knob_with_its_default() -> None:
    source = (Path(__file__).parent / "simdev" / "knobs.cpp").read_text(encoding="utf-8")
    knobs = re.findall(r'^    \{ "(\w+)",\s+(\w+),\s+(\w+),\s+\{ (.+?) \}', source, re.MULTILINE)
    values = {"ANY": "never", "8ULL << 30": "8 GiB"}
    listed = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", README, re.MULTILINE)
    assert listed == [(name, values.get(default, default)) for name, _, _, default in knobs]
