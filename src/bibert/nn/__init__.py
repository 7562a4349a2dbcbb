"""The network: arithmetic, quantizers, schemes, layers, one BERT for teacher and students, checkpoints.

This file finds the folder of a network without torch.
"""

import os
from difflib import get_close_matches
from pathlib import Path

from bibert.errors import CheckpointError, one_line
from bibert.files import load_json
from bibert.models import SUFFIX, hub_failures, shipped_file, shipped_names

CONFIG_NAME = "config.json"
RUN_MODEL = "model"  # the folder of the network in a run folder
MODEL_TYPES = ("bert", "bibert")
NOT_FOUND = "there is no such folder, and the Hub has no such name or cannot be reached"

# Large tensors in huge pages: a training takes a tenth less memory. Torch reads this when it makes its first tensor.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def network_folder(path: Path) -> Path | None:
    """The folder of a network: `path` itself or the one in the run folder `path`; None if there is neither.

    A folder of runs that has no packed file is refused.
    """
    found = next((place for place in (path, path / RUN_MODEL) if (place / CONFIG_NAME).is_file()), None)
    if found is None and not any(path.glob(f"*{SUFFIX}")):
        _refuse_runs(path)
    return found


def _refuse_runs(path: Path) -> None:
    if runs := sorted(str(place.parent.parent) for place in path.glob(f"*/{RUN_MODEL}/{CONFIG_NAME}")):
        raise CheckpointError(f"{path}: the folder has no {CONFIG_NAME}; give one of the runs in it: {', '.join(runs)}")


def is_packed(checkpoint: str | Path) -> bool:
    """Whether a checkpoint is a packed file."""
    return Path(checkpoint).suffix == SUFFIX and Path(checkpoint).is_file()


def model_folder(checkpoint: str | Path) -> str | Path:
    """The place of a model: its folder, a run folder's `model/`, a packed file, or the given name of one on the Hub."""
    path, name = Path(checkpoint), str(checkpoint)
    if is_packed(path):
        return path
    if not path.exists() and (shipped := shipped_file(name)):
        return shipped
    if path.is_file():
        raise CheckpointError(f"{checkpoint}: is a file; give the folder that holds config.json and model.safetensors")
    if not path.exists():
        # Reject a mistyped path before querying the Hub.
        is_path = path.is_absolute() or name.startswith((".", "~")) or Path(path.parts[0]).is_dir()
        if "/" in name and (is_path or name.count("/") != 1):
            raise CheckpointError(f"{checkpoint}: there is no such folder; check the path")
        _check_on_hub(name)
        return checkpoint
    if place := network_folder(path):
        return place
    _refuse_runs(path)
    raise CheckpointError(f"{checkpoint}: the folder has no {CONFIG_NAME}; give the folder of a BERT checkpoint")


def _check_on_hub(name: str) -> None:
    """Refuse a name that the Hub does not have, at once: the libraries that download it try again for a minute."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    try:
        if not isinstance(try_to_load_from_cache(name, CONFIG_NAME), str):
            get_hf_file_metadata(hf_hub_url(name, CONFIG_NAME))
    except hub_failures() as error:
        close = "".join(f"; did you mean {one!r}?" for one in get_close_matches(name, shipped_names(), n=1))
        raise CheckpointError(f"{name}: {NOT_FOUND} ({one_line(error)}){close}") from error


def written_labels(folder: Path) -> tuple[str, ...]:
    """The labels in the configuration of a network; empty for a score."""
    names = (load_json(folder / CONFIG_NAME) or {}).get("id2label") or {}
    return tuple(names[label] for label in sorted(names, key=int)) if len(names) > 1 else ()
