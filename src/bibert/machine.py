"""Where and with what a figure was measured: the processor, the memory of this process, versions, the commit."""

import datetime
import platform
import resource
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import bibert

PACKAGE = Path(__file__).parent


def about(packages: Iterable[str]) -> dict[str, Any]:
    """What a results file says beside its figures; the versions are those of `packages` that are installed."""
    return {
        "cpu": cpu_name(),
        "python": platform.python_version(),
        "versions": {"bibert": bibert.__version__, **_versions(packages)},
        "commit": commit(),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
    }


def cpu_name() -> str:
    """The name of the processor, as Linux tells it, or the best that Python knows."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def peak_memory_bytes() -> int:
    """The most resident memory this process has had so far.

    Linux's VmHWM starts anew with a program; getrusage goes on with what the parent had when it started the program.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, the others kilobytes


def commit() -> str | None:
    """The commit of the checkout this package is run from, with + if its sources were changed; None elsewhere."""
    # An installed package may lie inside a checkout of something else, so its own file must be one of git's.
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


def _versions(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in dict.fromkeys(packages):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
