"""A packed file as the start of a training: bits and scales become latent weights of a network again.

The network has the signs, scales, thresholds and steps of the file, up to rounding. A file does not say how far each
latent weight was from changing its sign: here all weights of a row are equally far (docs/training.md has what that
costs). `export` is the other direction.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from bibert.data.encoding import fast_tokenizer
from bibert.errors import CheckpointError, SchemeError
from bibert.nn.layers import BiBertConfig, Shift
from bibert.nn.levels import Levels
from bibert.nn.model import BiBertForSequenceClassification
from bibert.nn.packable import CONFIG_KEYS, LINEARS, NORMS, SHIFTS, SITE_OF_LINEAR, packed_config
from bibert.nn.schemes import get_scheme
from bibert.packed.bits import unpack_rows
from bibert.packed.file import PackedModel, load
from bibert.packed.schema import columns_of_bits
from bibert.packed.tokenizer import read_tokenizer

State = Iterator[tuple[str, Tensor]]


def unpacked_config(path: Path) -> dict[str, Any]:
    """The values of a config.json for the network of a packed file."""
    packed = load(path)
    shape, name = packed.config, packed.about.get("scheme")
    try:
        scheme = get_scheme(str(name))
    except SchemeError as error:
        raise CheckpointError(f"{path}: cannot be a start: {error}") from error
    values = {key: getattr(shape, size) for size, key in CONFIG_KEYS.items()} | {
        "attention_head_size": shape.head_size,
        "layer_norm_eps": shape.norm_eps,
        "id2label": dict(enumerate(packed.labels)),
        "scheme": scheme.to_dict(),
    }
    if packed_config(values, scheme) != shape:
        raise CheckpointError(f"{path}: its tensors do not fit its scheme {name!r}; pack the model again")
    return values


@torch.no_grad()
def unpacked(path: Path, config: BiBertConfig) -> tuple[BiBertForSequenceClassification, PreTrainedTokenizerFast]:
    """The network and the tokenizer of a packed file; the classifier is new if `config` has other labels."""
    packed = load(path)
    network = BiBertForSequenceClassification(config)
    state = dict(_state(packed, network))
    if config.num_labels != len(packed.labels):
        state = {name: value for name, value in state.items() if not name.startswith("classifier.")}
    missing, unexpected = network.load_state_dict(state, strict=False)
    left = [name for name in missing if not name.startswith("classifier.") and not name.endswith(".gain")]
    assert not left, left  # a gain that is missing stays 1
    assert not unexpected, unexpected
    tokenizer = read_tokenizer(packed.tokenizer, packed.config.vocabulary)
    return network, fast_tokenizer(tokenizer, packed.config.positions)


def _state(packed: PackedModel, network: BiBertForSequenceClassification) -> State:
    """Every parameter that the file decides, by its name in the network."""
    embeddings = "bert.embeddings"
    yield f"{embeddings}.word_embeddings.weight", _latent(packed, "embeddings.word")
    yield f"{embeddings}.token_type_embeddings.weight", _tensor(packed, "embeddings.token_type")
    yield f"{embeddings}.position_embeddings.weight", _tensor(packed, "embeddings.position")
    blocks = [(f"bert.encoder.layer.{layer}", f"layers.{layer}") for layer in range(packed.config.layers)]
    plain = {f"{embeddings}.LayerNorm": "embeddings.norm", "classifier": "classifier"}
    plain |= {f"{block}.{path}": f"{at}.{name}" for block, at in blocks for name, path in NORMS.items()}
    for path, name in plain.items():
        for part in ("weight", "bias"):
            yield f"{path}.{part}", _tensor(packed, f"{name}.{part}")
    sites = {"bert.pooler.input_shift": "pooler_input"}
    sites |= {f"{block}.{path}": f"{at}.{site}" for block, at in blocks for site, path in SHIFTS.items()}
    steps: dict[str, Tensor] = {}
    for path, name in sites.items():
        for parameter, value in _site(packed, network.get_submodule(path), name):
            yield f"{path}.{parameter}", value
            if parameter == "step":
                steps[name] = value
    linears = {"bert.pooler.dense": ("pooler", "pooler_input")}
    for block, at in blocks:
        for name, path in LINEARS.items():
            linears[f"{block}.{path}"] = f"{at}.{name}", f"{at}.{SITE_OF_LINEAR[name]}"
        if packed.config.score_thresholds:  # half a score below the least that is attended to
            least = _tensor(packed, f"{at}.score_threshold").float()
            yield f"{block}.attention.self.attention.threshold", (least - 0.5) / math.sqrt(packed.config.head_size)
    for path, (name, site) in linears.items():
        yield f"{path}.weight", _latent(packed, name) / steps.get(site, 1.0)  # the file holds one scale for both
        yield f"{path}.bias", _tensor(packed, f"{name}.bias")


def _site(packed: PackedModel, site: torch.nn.Module, name: str) -> State:
    """Threshold and step of a site: `nn.levels.rule_of` solved for them."""
    if isinstance(site, Shift):
        yield "threshold", _tensor(packed, f"{name}.threshold")
    if not isinstance(site, Levels):
        return
    edge, rate = _tensor(packed, f"{name}.edge"), _tensor(packed, f"{name}.rate")[0]
    step = (0.5 if site.signed else 1.0) / rate
    yield "step", step
    yield "threshold", edge + (2**site.bits if site.signed else 0.5) * step


def _latent(packed: PackedModel, name: str) -> Tensor:
    """Weights of ± the scale of their row."""
    ones = unpack_rows(packed.tensor(f"{name}.bits"), columns_of_bits(packed.config)[f"{name}.bits"])
    return (torch.from_numpy(ones).float() * 2 - 1) * _tensor(packed, f"{name}.scale")[:, None]


def _tensor(packed: PackedModel, name: str) -> Tensor:
    return torch.from_numpy(packed.tensor(name).copy())
