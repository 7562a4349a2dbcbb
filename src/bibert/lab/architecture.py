"""Shapes of BERT, as `PackedConfig`: the paper's by name, others from a config.json; the parameters of each part."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bibert.errors import CheckpointError, did_you_mean
from bibert.nn import CONFIG_NAME, MODEL_TYPES, network_folder
from bibert.nn.packable import CONFIG_KEYS, packed_config
from bibert.packed.schema import PackedConfig


def _bert(layers: int, hidden: int, intermediate: int) -> PackedConfig:
    return PackedConfig(layers, hidden, 12, hidden // 12, intermediate, 30522, 512, token_types=2, labels=2)


ARCHITECTURES: Mapping[str, PackedConfig] = {
    "bert-base": _bert(layers=12, hidden=768, intermediate=3072),
    "6L": _bert(layers=6, hidden=768, intermediate=3072),  # TinyBERT's two students
    "4L": _bert(layers=4, hidden=312, intermediate=1200),
    "minilm-l6": _bert(layers=6, hidden=384, intermediate=1536),
}


def get_architecture(name_or_path: str) -> PackedConfig:
    """The architecture of that name, in any case, or the one of that config.json or folder."""
    for name, shape in ARCHITECTURES.items():
        if name.lower() == name_or_path.lower():
            return shape
    if Path(name_or_path).exists() or name_or_path.endswith(".json"):
        return read_architecture(name_or_path)
    remedy = did_you_mean(name_or_path, ARCHITECTURES)
    raise CheckpointError(f"no architecture, file or folder is called {name_or_path!r}; {remedy}")


def read_architecture(path: Path | str) -> PackedConfig:
    """Read the shape from a config.json, or from the model or run folder that holds one; raises CheckpointError."""
    file = Path(path)
    file = (network_folder(file) or file) / CONFIG_NAME if file.is_dir() else file
    config = read_json(file)
    model_type = config.get("model_type", MODEL_TYPES[0])  # BERT's first releases do not name it
    if model_type not in MODEL_TYPES:
        raise CheckpointError(f"{file}: model_type is {model_type!r}; give the config of a BERT (model_type 'bert')")
    try:
        return packed_config(config)
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error}") from None


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object; raises CheckpointError with the file and the place in it."""
    try:
        values = json.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise CheckpointError(f"{file}: no such file; give a config.json or the folder that holds it") from None
    except ValueError as error:  # no UTF-8 or no JSON; the text has the byte or the line
        raise CheckpointError(f"{file}: is not JSON: {error}; save the model again") from None
    if isinstance(values, dict):
        return values
    raise CheckpointError(f"{file}: holds a {type(values).__name__}, must be an object {{...}}; save the model again")


def name_of(shape: PackedConfig) -> str | None:
    """The name in `ARCHITECTURES` of a shape, whatever its labels and options; None if the paper does not have it."""
    sizes = {key: getattr(shape, key) for key in (*CONFIG_KEYS, "head_size")}
    return next((name for name, known in ARCHITECTURES.items() if replace(known, **sizes) == known), None)


def describe(shape: PackedConfig) -> str:
    """A shape in a few words."""
    return f"{shape.layers} x {shape.hidden}, {shape.heads} heads, FFN {shape.intermediate}"


def count_parameters(shape: PackedConfig) -> dict[str, int]:
    """Numbers in each part of a BERT classifier; `linears` and `pooler` are weights, their biases are in `biases`."""
    layers, hidden, inner, intermediate = shape.layers, shape.hidden, shape.inner, shape.intermediate
    return {
        "word": shape.vocabulary * hidden,
        "position": shape.positions * hidden,
        "token_type": shape.token_types * hidden,
        "linears": layers * (4 * hidden * inner + 2 * hidden * intermediate),
        "pooler": hidden * hidden,
        "biases": layers * (3 * inner + 2 * hidden + intermediate) + hidden,
        "layer_norms": (2 * layers + 1) * 2 * hidden,
        "classifier": (hidden + 1) * shape.labels,
    }
