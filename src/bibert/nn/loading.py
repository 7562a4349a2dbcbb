"""Reading a BERT classifier and its tokenizer from a folder or the Hub, with every check a user may trip over.

Saving is `save_pretrained`, as everywhere. Weights come from safetensors only: a pickle is refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase
from transformers import logging as transformers_logging

from bibert.errors import CheckpointError, NumericError, one_line
from bibert.nn.config import BiBertConfig
from bibert.nn.folders import CONFIG_NAME, MODEL_TYPES, RUN_MODEL, network_folder
from bibert.nn.model import BiBertForSequenceClassification

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
NO_TOKENIZER = "no tokenizer can be read; copy tokenizer.json (or vocab.txt) beside config.json"
NEW_IN_A_CLASSIFIER = ("classifier.", "bert.pooler.")  # what a bare encoder may lack


@dataclass(frozen=True)
class Classifier:
    """A model with the tokenizer it was trained with."""

    model: BiBertForSequenceClassification
    tokenizer: PreTrainedTokenizerBase

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels by class id; empty for regression."""
        return _label_names(self.model.config)


def load_classifier(
    checkpoint: str | Path, label_names: Sequence[str] | None = None, overrides: Mapping[str, Any] | None = None
) -> Classifier:
    """Load any BERT checkpoint: a bare encoder, a Hugging Face classifier, or one of our own.

    Args:
        checkpoint: a folder, a run folder around one, or a name on the Hub.
        label_names: the labels of the data; () for regression; None keeps the checkpoint's own.
        overrides: values of the configuration to change, such as dropout rates.

    Raises:
        CheckpointError: the folder is missing or torn, is not a BERT, or does not fit its tokenizer.
        NumericError: a weight is not finite.
    """
    place = model_folder(checkpoint)
    config = _config(place, label_names, overrides or {})
    model = _weights(place, config, label_names is not None)
    tokenizer = _tokenizer(place)
    _check_vocabulary(place, tokenizer, config.vocab_size)
    return Classifier(model, tokenizer)


def model_folder(checkpoint: str | Path) -> str | Path:
    """Where the model itself is: in the folder that is named, in the run folder's `model/`, or on the Hub.

    Raises:
        CheckpointError: it is a file, a folder without a model, or a path that leads nowhere.
    """
    path = Path(checkpoint)
    if path.is_file():
        raise CheckpointError(f"{checkpoint}: is a file; give the folder that holds config.json and model.safetensors")
    if not path.exists():
        _refuse_what_is_no_hub_name(path, str(checkpoint))
        return checkpoint
    if place := network_folder(path):
        return place
    inside = sorted(str(place.parent.parent) for place in path.glob(f"*/{RUN_MODEL}/{CONFIG_NAME}"))
    remedy = f"give one of the runs in it: {', '.join(inside)}" if inside else "give the folder of a BERT checkpoint"
    raise CheckpointError(f"{checkpoint}: the folder has no {CONFIG_NAME}; {remedy}")


def _refuse_what_is_no_hub_name(path: Path, name: str) -> None:
    """A path with a slip in it is told at once, not after the Hub was asked for it."""
    is_path = path.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1 or Path(path.parts[0]).is_dir()
    if is_path and name.count("/"):
        raise CheckpointError(f"{name}: there is no such folder; check the path")


@contextmanager
def without_notices() -> Iterator[None]:
    """Keep transformers quiet inside the block, where the caller checks itself what it would warn of."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)


def _config(checkpoint: str | Path, label_names: Sequence[str] | None, overrides: Mapping[str, Any]) -> BiBertConfig:
    try:
        found = AutoConfig.from_pretrained(checkpoint, trust_remote_code=False)
    except (OSError, ValueError, StrictDataclassError) as error:
        raise CheckpointError(f"{checkpoint}: {_reason(checkpoint)} ({one_line(error)})") from error
    if found.model_type not in MODEL_TYPES:
        raise CheckpointError(
            f"{checkpoint}: the architecture is {found.model_type!r}, this package binarizes BERT "
            f"({' or '.join(MODEL_TYPES)}); choose a checkpoint whose config.json says model_type 'bert'"
        )
    values = found.to_dict() | dict(overrides)
    values.pop("model_type")
    if label_names is not None:
        values |= _labels(label_names)
    return BiBertConfig(**values)


def label_names_of(checkpoint: str | Path) -> tuple[str, ...]:
    """The labels that the configuration of a checkpoint has, without reading its weights; empty for regression."""
    return _label_names(_config(model_folder(checkpoint), None, {}))


def _label_names(config: BiBertConfig) -> tuple[str, ...]:
    return () if config.num_labels == 1 else tuple(config.id2label[i] for i in range(config.num_labels))


def _labels(label_names: Sequence[str]) -> dict[str, Any]:
    names = list(label_names) or ["score"]
    return {
        "id2label": dict(enumerate(names)),
        "label2id": {name: index for index, name in enumerate(names)},
        "problem_type": "single_label_classification" if label_names else "regression",
    }


def _weights(checkpoint: str | Path, config: BiBertConfig, new_head: bool) -> BiBertForSequenceClassification:
    _refuse_pickle(checkpoint)
    try:
        with without_notices():  # the missing classifier is expected and checked below
            model, info = BiBertForSequenceClassification.from_pretrained(
                checkpoint,
                config=config,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # checked below, where both shapes can be told
                use_safetensors=True,
            )
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise CheckpointError(
            f"{checkpoint}: the weights cannot be read ({one_line(error)}); fetch the checkpoint again"
        ) from error
    _check_whole(checkpoint, info, new_head)
    _check_finite(checkpoint, model)
    return model  # type: ignore[no-any-return]


def _check_whole(checkpoint: str | Path, info: Mapping[str, Any], new_head: bool) -> None:
    allowed = NEW_IN_A_CLASSIFIER if new_head else ()
    missing = sorted(repr(name) for name in info["missing_keys"] if not name.startswith(allowed))
    resized = sorted(
        f"{name!r} ({list(found)} in the file, {list(wanted)} by config.json)"
        for name, found, wanted in info["mismatched_keys"]
        if not (new_head and name.startswith("classifier."))
    )
    if missing or resized:
        raise CheckpointError(
            f"{checkpoint}: {len(missing)} tensors are missing and {len(resized)} have another shape, "
            f"the first is {(missing + resized)[0]}; the checkpoint is not a whole BERT classifier"
        )


def _check_finite(checkpoint: str | Path, model: BiBertForSequenceClassification) -> None:
    for name, value in model.state_dict().items():
        if not value.isfinite().all():
            raise NumericError(f"{checkpoint}: {name!r} holds NaN or infinity; its training has diverged")


def _refuse_pickle(checkpoint: str | Path) -> None:
    folder = Path(checkpoint)
    if not folder.is_dir() or any(folder.glob("*.safetensors")):
        return
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    found = f"only {pickles[0]}, a pickle, which can run code" if pickles else "none"
    raise CheckpointError(
        f"{folder}: needs model.safetensors, found {found}; convert it with model.save_pretrained(folder)"
    )


def _tokenizer(checkpoint: str | Path) -> PreTrainedTokenizerBase:
    try:
        tokenizer = AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=False)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{checkpoint}: {NO_TOKENIZER} ({one_line(error)})") from error
    if not tokenizer.is_fast:
        raise CheckpointError(
            f"{checkpoint}: the tokenizer is a {type(tokenizer).__name__}, which has no tokenizer.json for a packed "
            "file to take along; choose a checkpoint with a fast tokenizer"
        )
    return tokenizer


def _check_vocabulary(checkpoint: str | Path, tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    if vocabulary.keys() <= set(tokenizer.all_special_tokens):  # what the library makes up where no file is
        raise CheckpointError(f"{checkpoint}: {NO_TOKENIZER}")
    ids = max(vocabulary.values()) + 1
    if ids > rows:
        raise CheckpointError(
            f"{checkpoint}: the tokenizer has {ids} token ids, the word embedding {rows} rows; "
            "use the tokenizer that the checkpoint was trained with"
        )
    if tokenizer.pad_token_id is None:
        raise CheckpointError(f"{checkpoint}: the tokenizer has no padding token; use the tokenizer of a BERT")


def _reason(checkpoint: str | Path) -> str:
    if Path(checkpoint).is_dir():
        return "the folder has no readable config.json; give the folder of a BERT checkpoint"
    return "there is no such folder, and no such name on the Hub can be reached"
