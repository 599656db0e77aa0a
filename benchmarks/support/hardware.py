"""What a benchmark's line of JSON says of the machine and the code."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def describe() -> dict[str, str | int]:
    """Name the processor, the cores that this process may use, and the commit."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].split(":")[1].strip() if names else cpu
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "commit": commit}
