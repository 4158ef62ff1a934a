"""The default of --preempt-ram, on machines and cgroups that tests make up."""

from __future__ import annotations

from pathlib import Path

from pyggml_server.engine.transfers.host_memory_budget import MIB, default_ram_limit_bytes


def machine(root: Path, available_mib: int, **cgroup_files: str) -> Path:
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {available_mib * 1024} kB\n")
    for name, text in cgroup_files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_quarter_of_what_is_available(tmp_path: Path) -> None:
    assert default_ram_limit_bytes(machine(tmp_path, 4096)) == 1024 * MIB


def test_never_more_than_8_gib(tmp_path: Path) -> None:
    assert default_ram_limit_bytes(machine(tmp_path, 1024 * 1024)) == 8192 * MIB


def test_a_cgroup_with_less_room_counts_instead(tmp_path: Path) -> None:
    files = {"memory_DOT_max": str(1000 * MIB), "memory_DOT_current": str(200 * MIB)}
    assert default_ram_limit_bytes(machine(tmp_path, 4096, **files)) == 200 * MIB


def test_a_cgroup_without_limit_does_not_count(tmp_path: Path) -> None:
    files = {"memory_DOT_max": "max\n", "memory_DOT_current": "5"}
    assert default_ram_limit_bytes(machine(tmp_path, 4096, **files)) == 1024 * MIB


def test_the_older_cgroup_version_counts_too(tmp_path: Path) -> None:
    files = {
        "memory__memory_DOT_limit_in_bytes": str(800 * MIB),
        "memory__memory_DOT_usage_in_bytes": str(400 * MIB),
    }
    assert default_ram_limit_bytes(machine(tmp_path, 4096, **files)) == 100 * MIB


def test_a_system_that_tells_nothing_gets_the_ceiling(tmp_path: Path) -> None:
    assert default_ram_limit_bytes(tmp_path) == 8192 * MIB
