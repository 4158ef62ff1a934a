"""What a measurement ran on. Standard library only."""

from __future__ import annotations

import subprocess


def gpu_names() -> list[str]:
    """As the driver's own tool names them; empty without one."""
    return _nvidia_smi("name")


def driver_version() -> str | None:
    """Of the GPU, None without one."""
    return next(iter(_nvidia_smi("driver_version")), None)


def _nvidia_smi(field: str) -> list[str]:
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []
