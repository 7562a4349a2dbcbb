"""The conditions of a measurement: processor, memory of this process, package versions, commit."""

import contextlib
import datetime
import platform
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import bibert

PACKAGE = Path(__file__).parent


def about(packages: Iterable[str]) -> dict[str, Any]:
    """Processor, versions, commit and date for a results file; `packages` that are not installed are left out."""
    versions = {}
    for name in dict.fromkeys(packages):
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {
        "cpu": cpu_name(),
        "python": platform.python_version(),
        "versions": {"bibert": bibert.__version__, **versions},
        "commit": commit(),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
    }


def cpu_name() -> str:
    """The name of the processor, from Linux, else the best that Python knows."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def peak_memory_bytes() -> int:
    """Peak resident memory of this process.

    Linux's VmHWM starts at 0 with a program; getrusage starts with the memory of the parent process.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, the others kilobytes


def commit() -> str | None:
    """The commit of the checkout this package runs from, with + if its sources were changed; None elsewhere."""
    # An installed package may be inside the checkout of another project, so git must know its files.
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    head = _git("rev-parse", "--short", "HEAD")
    return f"{head}+" if _git("status", "--porcelain", ".") else head


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=PACKAGE, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
