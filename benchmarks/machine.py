"""Where and with what a figure was measured."""

import datetime
import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any


def about(command: str, threads: int, seed: int) -> dict[str, Any]:
    """The facts that a results file carries beside its figures."""
    return {
        "command": command,
        "commit": _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "--porcelain", "src") else ""),
        "cpu": cpu_name(),
        "threads": threads,
        "seed": seed,
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
    }


def cpu_name() -> str:
    """The name of the processor, as Linux tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def peak_memory_mb() -> float:
    """The peak resident memory of this process so far, in 10^6 bytes.

    Linux's VmHWM starts anew with a program; getrusage would count what the parent of a fork had.
    """
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024 / 1e6


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()
