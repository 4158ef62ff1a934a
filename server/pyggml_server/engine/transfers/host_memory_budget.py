"""How much host memory parked state may take when the user does not say. Reads the system, changes nothing."""

from __future__ import annotations

from pathlib import Path

MIB = 1024 * 1024
DEFAULT_CEILING_BYTES = 8192 * MIB


def default_ram_limit_bytes(root: Path = Path("/")) -> int:
    """min(8192 MiB, a quarter of what is available): memory of the machine, or of the cgroup where that is less."""
    candidates = [n for n in (_available_bytes(root), _cgroup_bytes(root)) if n is not None]
    quarter = min(candidates) // 4 if candidates else DEFAULT_CEILING_BYTES
    return min(DEFAULT_CEILING_BYTES, quarter)


def _available_bytes(root: Path) -> int | None:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_bytes(root: Path) -> int | None:
    """What the limit of our cgroup leaves (version 2, then version 1); None without a limit."""
    for limit_name, used_name in (
        ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            limit = int((root / limit_name).read_text())
            used = int((root / used_name).read_text())
        except (OSError, ValueError):
            continue  # no such version, or "max"
        return max(0, limit - used)
    return None
