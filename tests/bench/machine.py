"""What a measurement runs on: the machine, and the model if none is named. Standard library only."""

from __future__ import annotations

import datetime
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def ran_on() -> dict[str, Any]:
    """Date, machine, device and driver, as each document of results names them."""
    return {
        "date": datetime.date.today().isoformat(),
        "machine": platform.platform(),
        "device": gpu_names(),
        "driver": driver_version(),
    }


def default_model() -> str:
    """Its path; fetches it if it is not there."""
    return subprocess.run([ROOT / "scripts/default-model"], capture_output=True, text=True, check=True).stdout.strip()


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
