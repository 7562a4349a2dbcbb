"""The shape of a BERT and what it holds: every number that a size or a FLOP count starts from.

Here: the architectures of the paper's tables by name, any other from a Hugging Face config.json, and the parameters
of each part. Not here: how many bits a parameter takes (`cost`), or any weight.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bibert.errors import CheckpointError, did_you_mean
from bibert.nn.folders import CONFIG_NAME, MODEL_TYPES, network_folder

CONFIG_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "heads": "num_attention_heads",
        "intermediate": "intermediate_size",
        "vocabulary": "vocab_size",
        "positions": "max_position_embeddings",
        "types": "type_vocab_size",
    }
)


@dataclass(frozen=True)
class Architecture:
    """The shape of a BERT classifier.

    Attributes:
        layers: transformer blocks (L).
        hidden: width of the residual stream (H).
        heads: attention heads; they share `hidden` evenly.
        intermediate: width inside the feed-forward network (I).
        vocabulary: rows of the word embedding (V).
        positions: rows of the position table, the longest input.
        types: rows of the token-type table.
        labels: outputs of the classifier.
    """

    layers: int
    hidden: int
    heads: int
    intermediate: int
    vocabulary: int = 30522
    positions: int = 512
    types: int = 2
    labels: int = 2

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 1:
                raise CheckpointError(f"architecture: {field.name} is {value}, must be at least 1")
        if self.hidden % self.heads:
            raise CheckpointError(
                f"architecture: {self.heads} heads cannot share a hidden size of {self.hidden} evenly; "
                "choose a multiple of the heads"
            )

    def __str__(self) -> str:
        return f"{self.layers} x {self.hidden}, {self.heads} heads, FFN {self.intermediate}"

    @classmethod
    def from_config(cls, path: Path | str) -> "Architecture":
        """Read the shape from a Hugging Face config.json, or from the model or run folder that holds one.

        Raises:
            CheckpointError: the file is missing, is not JSON, is not a BERT's, or lacks a number.
        """
        file = Path(path)
        file = (network_folder(file) or file) / CONFIG_NAME if file.is_dir() else file
        config = _read_json_object(file)
        model_type = config.get("model_type", MODEL_TYPES[0])  # BERT's first releases do not name it
        if model_type not in MODEL_TYPES:
            raise CheckpointError(
                f"{file}: model_type is {model_type!r}; give the config of a BERT (model_type 'bert')"
            )
        shape = {field: _read_count(config, key, file) for field, key in CONFIG_KEYS.items()}
        _refuse_half_width(config, file)
        try:
            return cls(**shape, labels=_read_labels(config, file))
        except CheckpointError as error:
            raise CheckpointError(f"{file}: {error}") from None


def _read_json_object(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{file}: there is no such file; give a config.json or the folder that holds it"
        ) from None
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{file}:{error.lineno}: not JSON: {error.msg}; save the config again") from None
    except UnicodeDecodeError as error:
        raise CheckpointError(
            f"{file}: byte {error.start} is not UTF-8; give a config.json, not a weight file"
        ) from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{file}: holds a {type(config).__name__}, a config is an object {{...}}")
    return config


def _read_count(config: Mapping[str, Any], key: str, file: Path) -> int:
    if key not in config:
        raise CheckpointError(f"{file}: has no {key!r}; {did_you_mean(key, config)}")
    value = config[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CheckpointError(f"{file}: {key} is {value!r}, must be a whole number from 1 up")
    return value


def _refuse_half_width(config: Mapping[str, Any], file: Path) -> None:
    """BinaryBERT's student keeps half of the heads at their size; the rules count it by the width of its teacher."""
    head_size, heads, hidden = config.get("attention_head_size"), config["num_attention_heads"], config["hidden_size"]
    if head_size is not None and head_size * heads != hidden:
        raise CheckpointError(
            f"{file}: {heads} heads of {head_size} do not fill a hidden size of {hidden}: "
            "this is a half-width student; give the config of its teacher"
        )


def _read_labels(config: Mapping[str, Any], file: Path) -> int:
    names = config.get("id2label")
    if isinstance(names, dict) and names:
        return len(names)
    return _read_count(config, "num_labels", file) if "num_labels" in config else 2


ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "bert-base": Architecture(layers=12, hidden=768, heads=12, intermediate=3072),
        "6L": Architecture(layers=6, hidden=768, heads=12, intermediate=3072),  # TinyBERT's two students
        "4L": Architecture(layers=4, hidden=312, heads=12, intermediate=1200),
        "minilm-l6": Architecture(layers=6, hidden=384, heads=12, intermediate=1536),
    }
)


def get_architecture(name_or_path: str) -> Architecture:
    """The architecture called `name_or_path`, or the one described by that config.json or folder.

    Raises:
        CheckpointError: there is neither such a name nor such a file, or the file is not a BERT's config.
    """
    by_lower_name = {name.lower(): row for name, row in ARCHITECTURES.items()}
    if name_or_path.lower() in by_lower_name:
        return by_lower_name[name_or_path.lower()]
    if Path(name_or_path).exists() or name_or_path.endswith(".json"):
        return Architecture.from_config(name_or_path)
    raise CheckpointError(
        f"there is no architecture {name_or_path!r} and no file or folder of that name; "
        f"{did_you_mean(name_or_path, ARCHITECTURES)}"
    )


def name_of(architecture: Architecture) -> str | None:
    """The name in `ARCHITECTURES` of a shape, whatever its labels; None for a shape the paper does not have."""
    shape = _without_labels(architecture)
    return next((name for name, row in ARCHITECTURES.items() if _without_labels(row) == shape), None)


def _without_labels(architecture: Architecture) -> tuple[int, ...]:
    return tuple(getattr(architecture, field) for field in CONFIG_KEYS)


@dataclass(frozen=True)
class Parameters:
    """How many numbers each part of the network holds; `linears` are the weights of the blocks, without biases."""

    word: int
    position: int
    token_type: int
    linears: int
    pooler: int
    biases: int
    layer_norms: int
    classifier: int

    @property
    def total(self) -> int:
        """All parameters of the classifier."""
        return sum(getattr(self, field.name) for field in fields(self))


def count_parameters(architecture: Architecture) -> Parameters:
    """Count the parameters of a BERT classifier, part by part.

    A block holds four H x H matrices (query, key, value, output) and two H x I ones, with one bias per output row;
    there is a LayerNorm (2H) after the embedding and two in each block. The biases include the pooler's, not the
    classifier's.
    """
    layers, hidden, intermediate = architecture.layers, architecture.hidden, architecture.intermediate
    return Parameters(
        word=architecture.vocabulary * hidden,
        position=architecture.positions * hidden,
        token_type=architecture.types * hidden,
        linears=layers * (4 * hidden * hidden + 2 * hidden * intermediate),
        pooler=hidden * hidden,
        biases=layers * (5 * hidden + intermediate) + hidden,
        layer_norms=(2 * layers + 1) * 2 * hidden,
        classifier=(hidden + 1) * architecture.labels,
    )
