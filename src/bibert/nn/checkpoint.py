"""Load a BERT classifier and its tokenizer from a folder or the Hub, and check both; `save_pretrained` saves them.

Weights are read from safetensors only; pickles raise.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoTokenizer, BertConfig, PreTrainedTokenizerBase
from transformers import logging as transformers_logging

from bibert.errors import CheckpointError, NumericError, one_line
from bibert.nn import MODEL_TYPES, NOT_FOUND, is_packed, model_folder
from bibert.nn.layers import BiBertConfig
from bibert.nn.model import BiBertForSequenceClassification

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
NO_TOKENIZER = "the tokenizer cannot be read; copy tokenizer.json (or vocab.txt) next to config.json"
NEW_IN_A_CLASSIFIER = ("classifier.", "bert.pooler.")  # tensors that a bare encoder may lack


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
    """Load any BERT from a folder, a run folder or the Hub: a bare encoder, a classifier, or one of our own.

    A packed file becomes a network again (`unpack`). `label_names` are the labels of the data, () for regression; None
    keeps the checkpoint's own. `overrides` change values of the configuration, such as dropout rates.
    """
    place = model_folder(checkpoint)
    config = config_of(place, label_names, overrides or {})
    if is_packed(place):
        from bibert.nn.unpack import unpacked

        return Classifier(*unpacked(Path(place), config))
    model = _weights(place, config, label_names is not None)
    return Classifier(model, load_tokenizer(place, config.vocab_size))


@contextmanager
def without_notices() -> Iterator[None]:
    """Silence transformers inside the block, if the caller checks what it would warn about."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)


def config_of(checkpoint: str | Path, label_names: Sequence[str] | None, overrides: Mapping[str, Any]) -> BiBertConfig:
    """The configuration of a model that `model_folder` found, with other labels or other values; reads no weights."""
    if is_packed(checkpoint):
        from bibert.nn.unpack import unpacked_config

        values = unpacked_config(Path(checkpoint)) | dict(overrides)
    else:
        values = _written_config(checkpoint).to_dict() | dict(overrides)
        values.pop("model_type")
    if label_names is not None:
        names = list(label_names) or ["score"]
        values["id2label"] = dict(enumerate(names))
        values["label2id"] = {name: index for index, name in enumerate(names)}
        values["problem_type"] = "single_label_classification" if label_names else "regression"
    return BiBertConfig(**values)


def _written_config(checkpoint: str | Path) -> BertConfig:
    """The config.json of a BERT."""
    try:
        found = AutoConfig.from_pretrained(checkpoint, trust_remote_code=False)
    except (OSError, ValueError, StrictDataclassError) as error:
        unreadable = "config.json cannot be read; give the folder of a BERT checkpoint"
        reason = unreadable if Path(checkpoint).is_dir() else NOT_FOUND
        raise CheckpointError(f"{checkpoint}: {reason} ({one_line(error)})") from error
    if found.model_type not in MODEL_TYPES:
        problem = f"the architecture is {found.model_type!r}, this package binarizes BERT ({' or '.join(MODEL_TYPES)})"
        remedy = "choose a checkpoint whose config.json says model_type 'bert'"
        raise CheckpointError(f"{checkpoint}: {problem}; {remedy}")
    return found


def label_names_of(checkpoint: str | Path) -> tuple[str, ...]:
    """The labels in the configuration of a checkpoint, without reading its weights; empty for regression."""
    return _label_names(config_of(model_folder(checkpoint), None, {}))


def _label_names(config: BiBertConfig) -> tuple[str, ...]:
    return () if config.num_labels == 1 else tuple(config.id2label[i] for i in range(config.num_labels))


def _weights(checkpoint: str | Path, config: BiBertConfig, new_head: bool) -> BiBertForSequenceClassification:
    folder = Path(checkpoint)
    if folder.is_dir() and not any(folder.glob("*.safetensors")):
        pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
        found = f"only {pickles[0]}, a pickle, which can run code" if pickles else "none"
        raise CheckpointError(f"{folder}: needs model.safetensors, found {found}; convert it with save_pretrained")
    try:
        with without_notices():  # a missing classifier is expected and checked below
            model, info = BiBertForSequenceClassification.from_pretrained(
                checkpoint,
                config=config,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # checked below, with both shapes in the message
                use_safetensors=True,
            )
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        reason = f"the weights cannot be read ({one_line(error)})"
        raise CheckpointError(f"{checkpoint}: {reason}; download the checkpoint again") from error
    _check_complete(checkpoint, info, new_head)
    for name, value in model.state_dict().items():
        if not value.isfinite().all():
            raise NumericError(f"{checkpoint}: {name!r} contains NaN or infinity; its training has diverged")
    # New tensors have the precision of the checkpoint.
    return model.float()  # type: ignore[no-any-return]


def _check_complete(checkpoint: str | Path, info: Mapping[str, Any], new_head: bool) -> None:
    allowed = NEW_IN_A_CLASSIFIER if new_head else ()
    missing = sorted(repr(name) for name in info["missing_keys"] if not name.startswith(allowed))
    resized = sorted(
        f"{name!r} ({list(found)} in the file, {list(wanted)} by config.json)"
        for name, found, wanted in info["mismatched_keys"]
        if not (new_head and name.startswith("classifier."))
    )
    if missing or resized:
        wrong = f"{len(missing)} tensors are missing and {len(resized)} have another shape"
        first = (missing + resized)[0]
        raise CheckpointError(f"{checkpoint}: {wrong}, the first is {first}; it is not a complete BERT classifier")


def load_tokenizer(checkpoint: str | Path, rows: int) -> PreTrainedTokenizerBase:
    """Load a tokenizer, which must be fast, able to pad, and fit a word embedding of `rows`."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=False)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{checkpoint}: {NO_TOKENIZER} ({one_line(error)})") from error
    if not tokenizer.is_fast:
        found = f"the tokenizer is a {type(tokenizer).__name__} without a tokenizer.json"
        raise CheckpointError(f"{checkpoint}: {found}; choose a checkpoint with a fast tokenizer")
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    if vocabulary.keys() <= set(tokenizer.all_special_tokens):  # the library's default if there is no file
        raise CheckpointError(f"{checkpoint}: {NO_TOKENIZER}")
    ids = max(vocabulary.values()) + 1
    if ids > rows:
        sizes = f"the tokenizer has {ids} token ids, the word embedding {rows} rows"
        raise CheckpointError(f"{checkpoint}: {sizes}; use the tokenizer that the checkpoint was trained with")
    if tokenizer.pad_token_id is None:
        raise CheckpointError(f"{checkpoint}: the tokenizer has no padding token; use the tokenizer of a BERT")
    return tokenizer
