"""Where a network lies on the disk: in a folder of its own, or inside of a run folder. No torch is needed to look."""

from pathlib import Path

CONFIG_NAME = "config.json"
RUN_MODEL = "model"  # where a run folder has its network
MODEL_TYPES = ("bert", "bibert")


def network_folder(path: Path) -> Path | None:
    """The folder of a network, which `path` is or has inside as a run folder; None where it is something else."""
    return next((place for place in (path, path / RUN_MODEL) if (place / CONFIG_NAME).is_file()), None)
