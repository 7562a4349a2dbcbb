"""Where and with what a figure was measured."""

from typing import Any

from bibert import machine


def about(command: str, threads: int, seed: int) -> dict[str, Any]:
    """The facts that a results file carries beside its figures."""
    facts = machine.about(["torch"])
    versions = facts.pop("versions")
    return {"command": command, "threads": threads, "seed": seed, **facts, "torch": versions["torch"]}


def peak_memory_mb() -> float:
    """The peak resident memory of this process so far, in 10^6 bytes."""
    return machine.peak_memory_bytes() / 1e6
