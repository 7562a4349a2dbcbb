"""Random networks of any shape with their packed models, random batches, and everything that can run them.

The weights are chosen so that no site is constant and the corners occur: rows of zeros (alpha = 0), constant rows,
biases and thresholds that a value meets exactly, negative zeros.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bibert.export import config_of, tensors_of
from bibert.nn import functional
from bibert.nn.attention import BertSelfAttention
from bibert.nn.config import BiBertConfig
from bibert.nn.model import BertLayer, BiBertForSequenceClassification
from bibert.nn.quantizers import Elementwise
from bibert.packed.file import PackedModel
from bibert.packed.schema import LAYER_SITES
from bibert.runtime import reference
from bibert.runtime.engine import Engine, available_isas

Batch = dict[str, np.ndarray]
NO_PARTS: dict[str, Any] = {"thresholds": (), "score_thresholds": False, "ffn_levels": "sign"}
SHAPE = {
    "vocab_size": 200,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "num_labels": 3,
}
SHARE_OF_CORNERS = 0.1  # of the rows of a weight, of the channels of a bias


@dataclass(frozen=True)
class Pair:
    """A network and the packed model that must give the same bits."""

    network: BiBertForSequenceClassification
    packed: PackedModel

    def expected(self, batch: Batch) -> np.ndarray:
        """The logits of the network in eval mode."""
        with torch.no_grad():
            return self.network(**{name: torch.from_numpy(array) for name, array in batch.items()}).logits.numpy()


@pytest.fixture(scope="session")
def new_pair() -> Callable[..., Pair]:
    """A factory of random networks, from a seed, BERT's shape, and the optional parts as `PackedConfig` names them."""

    def make(seed: int, parts: Mapping[str, Any] = NO_PARTS, **shape: int) -> Pair:
        random = torch.Generator().manual_seed(seed)
        network = _new_network(random, SHAPE | shape)
        extra = _add_parts(network, NO_PARTS | parts, random)
        config = replace(config_of(network.config), **parts)
        labels = tuple(f"label {index}" for index in range(config.labels))
        tensors = tensors_of(network) | extra
        return Pair(network, PackedModel.from_tensors(config, labels, config.positions, tensors, b"{}", {}))

    return make


@pytest.fixture(scope="session")
def new_batch() -> Callable[..., Batch]:
    """A factory of random batches for a pair: one row for each length, with holes in the mask if asked for."""

    def make(pair: Pair, lengths: tuple[int, ...], seed: int = 0, holes: bool = False) -> Batch:
        random, config = np.random.default_rng(seed), pair.packed.config
        shape = (len(lengths), max(lengths))
        mask = np.arange(shape[1]) < np.array(lengths)[:, None]
        if holes:
            mask &= random.random(shape) < 0.7
            mask[:, 0] = True
        return {
            "input_ids": random.integers(config.vocabulary, size=shape),
            "attention_mask": mask.astype(np.int64),
            "token_type_ids": random.integers(config.token_types, size=shape),
        }

    return make


@pytest.fixture(scope="session")
def runtimes() -> Callable[[PackedModel], dict[str, Callable[..., np.ndarray]]]:
    """Everything that runs a packed model: numpy, and the engine with every instruction set of this machine."""

    def make(packed: PackedModel) -> dict[str, Callable[..., np.ndarray]]:
        engines = {isa: Engine.from_packed(packed, threads=1, isa=isa).logits for isa in available_isas()}
        assert "reference" in engines  # the plain C++ kernels run on every machine
        return {"numpy": partial(reference.logits, packed)} | engines

    return make


@pytest.fixture(scope="session")
def assert_same_bits() -> Callable[[np.ndarray, np.ndarray], None]:
    def check(found: np.ndarray, expected: np.ndarray) -> None:
        assert found.dtype == expected.dtype == np.float32
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))

    return check


def _new_network(random: torch.Generator, shape: Mapping[str, int]) -> BiBertForSequenceClassification:
    config = BiBertConfig(scheme="bibert", **shape)
    network = BiBertForSequenceClassification(config).eval()
    with torch.no_grad():
        for module in network.modules():
            _FILLERS.get(type(module).__name__, _leave)(module, random)
    return network


def _leave(module: nn.Module, random: torch.Generator) -> None:
    pass


def _normal(parameter: Tensor, random: torch.Generator, std: float, mean: float = 0.0) -> None:
    parameter.copy_(mean + std * torch.randn(parameter.shape, generator=random))


def _some(count: int, random: torch.Generator) -> Tensor:
    """A random choice of rows or channels, at least one."""
    return torch.randperm(count, generator=random)[: max(1, int(SHARE_OF_CORNERS * count))]


def _fill_linear(module: nn.Linear, random: torch.Generator) -> None:
    inputs, outputs = module.in_features, module.out_features
    _normal(module.weight, random, std=inputs**-0.5)
    module.weight.add_(0.3 * inputs**-0.5 * torch.randn(outputs, 1, generator=random))  # a row mean that is not 0
    _normal(module.bias, random, std=0.2)
    module.weight[_some(outputs, random)] = 0.0  # alpha = 0
    module.weight[_some(outputs, random)] = 0.01  # a constant row: W - mu is 0, or what the mean was rounded by
    module.bias[_some(outputs, random)] = 0.0
    module.bias[_some(outputs, random)] = -0.0
    met = _some(outputs, random)
    module.bias[met] = -_attainable(module, random)[met]  # alpha · dot + bias is exactly 0 for one dot


def _attainable(module: nn.Linear, random: torch.Generator) -> Tensor:
    """alpha · dot for a dot of every channel that inputs of ±1 can have, near 0 where most are."""
    half = torch.randint(-4, 5, (module.out_features,), generator=random)
    dot = (2 * half + module.in_features % 2).clamp(-module.in_features, module.in_features)
    scale = functional.binarize_rows(module.weight).scale
    assert scale is not None
    return scale.squeeze(-1) * dot


def _fill_norm(module: nn.LayerNorm, random: torch.Generator) -> None:
    channels = module.weight.shape[0]
    _normal(module.weight, random, std=0.5, mean=1.0)
    _normal(module.bias, random, std=0.5)
    zeros = _some(channels, random)
    module.weight[zeros] = 0.0
    module.bias[zeros] = -0.0
    module.bias[_some(channels, random)] = 0.0


def _fill_embedding(module: nn.Embedding, random: torch.Generator) -> None:
    _normal(module.weight, random, std=1.0)
    module.weight[_some(module.num_embeddings, random)] = 0.0


def _fill_classifier(module: nn.Linear, random: torch.Generator) -> None:
    _normal(module.weight, random, std=1.0)
    _normal(module.bias, random, std=1.0)


_FILLERS: dict[str, Callable[..., None]] = {
    "QuantLinear": _fill_linear,
    "QuantEmbedding": _fill_embedding,
    "Embedding": _fill_embedding,
    "ExactLayerNorm": _fill_norm,
    "Linear": _fill_classifier,
}


def _add_parts(
    network: BiBertForSequenceClassification, parts: Mapping[str, Any], random: torch.Generator
) -> dict[str, Any]:
    """Give the network the optional parts, and return the tensors that the file has for them."""
    tensors: dict[str, Any] = {}
    before = network.bert.embeddings.LayerNorm
    for index, layer in enumerate(network.bert.encoder.layer):
        for site in (site for site in LAYER_SITES if site in parts["thresholds"]):
            threshold = _layer_threshold(site, layer, before, random)
            _subtract(layer, site, threshold)
            tensors[f"layers.{index}.{site}.threshold"] = threshold.numpy()
        if parts["ffn_levels"] == "bool":
            layer.output.dense.input_quantizer = Elementwise(functional.bool_)
        if parts["score_thresholds"]:
            layer.attention.self.attention = attention = ThresholdAttention(layer.attention.self, random)
            tensors[f"layers.{index}.score_threshold"] = attention.least.numpy()
        before = layer.output.LayerNorm
    if "pooler_input" in parts["thresholds"]:
        threshold = _threshold_on_states(before, random)
        network.bert.pooler.dense.register_forward_pre_hook(lambda _, inputs: (inputs[0] - threshold,))
        tensors["pooler_input.threshold"] = threshold.numpy()
    return tensors


class ThresholdAttention(nn.Module):
    """Bi-Attention with a threshold per head on the integer scores."""

    def __init__(self, heads: BertSelfAttention, random: torch.Generator) -> None:
        super().__init__()
        size = heads.head_size
        self.least = torch.randint(-size // 2, size // 2 + 1, (heads.heads,), generator=random, dtype=torch.int32)
        self.least[0] = size + 1  # nothing is attended to: every context is 0
        self.least[-1] = -size - 1  # everything is

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, *_: Any) -> functional.AttentionResult:
        signs = [functional.Quantized(functional.sign(x)) for x in (query, key, value)]
        scores = functional.rows_product(signs[0], signs[1])
        weights = (scores >= self.least[:, None, None]) * mask
        return functional.AttentionResult(functional.bamm(functional.Quantized(weights), signs[2]), scores, weights)


# A sign of x - t is the sign x ≥ t, also in floating point. The modules whose input a site is:
INPUTS_OF_SITE = {
    "attention_input": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "context": ("attention.output.dense",),
    "ffn_input": ("intermediate.dense",),
    "ffn_hidden": ("output.dense",),
}


def _subtract(layer: BertLayer, site: str, threshold: Tensor) -> None:
    for path in INPUTS_OF_SITE.get(site, ()):
        layer.get_submodule(path).register_forward_pre_hook(lambda _, inputs: (inputs[0] - threshold,))
    if site not in INPUTS_OF_SITE:  # queries, keys and values are signed where they are used
        layer.get_submodule(f"attention.self.{site}").register_forward_hook(lambda _, __, output: output - threshold)


def _layer_threshold(site: str, layer: BertLayer, before: nn.LayerNorm, random: torch.Generator) -> Tensor:
    linears = {name: layer.get_submodule(f"attention.self.{name}") for name in ("query", "key", "value")}
    linears["ffn_hidden"] = layer.intermediate.dense
    if site in linears:
        return _threshold_on_linear(linears[site], random)
    if site == "context":
        return _with_extremes(torch.randint(-6, 7, (linears["value"].out_features,), generator=random) / 2, random)
    return _threshold_on_states(
        {"attention_input": before, "ffn_input": layer.attention.output.LayerNorm}[site], random
    )


@torch.no_grad()
def _threshold_on_linear(module: nn.Linear, random: torch.Generator) -> Tensor:
    threshold = 0.5 * torch.randn(module.out_features, generator=random)
    met = _some(module.out_features, random)
    threshold[met] = (_attainable(module, random) + module.bias)[met]  # alpha · dot + bias equals it for one dot
    return _with_extremes(threshold, random)


@torch.no_grad()
def _threshold_on_states(norm: nn.LayerNorm, random: torch.Generator) -> Tensor:
    threshold = 0.5 * torch.randn(norm.weight.shape, generator=random)
    constant = norm.weight == 0
    threshold[constant] = norm.bias[constant]  # such a channel always equals its bias
    return _with_extremes(threshold, random)


def _with_extremes(threshold: Tensor, random: torch.Generator) -> Tensor:
    order = torch.randperm(len(threshold), generator=random)
    for place, extreme in zip(order, (1e30, -1e30, 0.0, -0.0, 1e-45), strict=False):
        threshold[place] = extreme
    return threshold
