"""The network: arithmetic, quantizers, schemes, layers, one BERT for teacher and students, checkpoints.

This file finds the folder of a network without torch.
"""

from pathlib import Path

CONFIG_NAME = "config.json"
RUN_MODEL = "model"  # the folder of the network in a run folder
MODEL_TYPES = ("bert", "bibert")


def network_folder(path: Path) -> Path | None:
    """The folder of a network: `path` itself or the one in the run folder `path`; None if there is neither."""
    return next((place for place in (path, path / RUN_MODEL) if (place / CONFIG_NAME).is_file()), None)
