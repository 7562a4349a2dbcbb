"""Random networks of any shape with their packed models, random batches, and every runtime.

The weights are chosen so that no site is constant and edge cases occur: rows of zeros (alpha = 0), constant rows,
biases and thresholds that a value equals exactly, negative zeros.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bibert.export import SHIFTS, config_of, tensors_of
from bibert.nn.layers import BertSelfAttention, BiBertConfig, QuantLinear
from bibert.nn.levels import Levels
from bibert.nn.model import BertLayer, BiBertForSequenceClassification
from bibert.nn.schemes import Scheme, get_scheme
from bibert.packed.file import PackedModel
from bibert.packed.schema import SITES
from bibert.runtime import reference
from bibert.runtime.engine import Engine, available_isas

Batch = dict[str, np.ndarray]
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

    def packed_again(self) -> "Pair":
        """The network as it is now, after something in it was changed."""
        return Pair(self.network, _packed(self.network))


@pytest.fixture(scope="session")
def new_pair() -> Callable[..., Pair]:
    """A factory of random networks, from a seed, a scheme and what it has more, and BERT's shape."""

    def make(seed: int, parts: Mapping[str, Any] = MappingProxyType({}), scheme: str = "bibert", **shape: int) -> Pair:
        random = torch.Generator().manual_seed(seed)
        network = _new_network(random, replace(get_scheme(scheme), **parts), SHAPE | shape)
        return Pair(network, _packed(network))

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


@pytest.fixture(scope="session")
def assert_agree(runtimes, assert_same_bits) -> Callable[..., np.ndarray]:
    """Check that every runtime gives the bits of the network (or of `expected`), which are returned."""

    def check(pair: Pair, batch: Batch, expected: np.ndarray | None = None) -> np.ndarray:
        expected = pair.expected(batch) if expected is None else expected
        for logits in runtimes(pair.packed).values():
            assert_same_bits(logits(**batch), expected)
        return expected

    return check


def _packed(network: BiBertForSequenceClassification) -> PackedModel:
    config = config_of(network.config)
    labels = tuple(f"label {index}" for index in range(config.labels))
    return PackedModel.from_tensors(config, labels, config.positions, tensors_of(network), b"{}", {})


@torch.no_grad()
def _new_network(random: torch.Generator, scheme: Scheme, shape: Mapping[str, int]) -> BiBertForSequenceClassification:
    network = BiBertForSequenceClassification(BiBertConfig(scheme=scheme.to_dict(), **shape)).eval()
    for module in network.modules():
        if fill := _FILLERS.get(type(module).__name__):
            fill(module, random)
    _fill_thresholds(network, random)
    return network


def _normal(parameter: Tensor, random: torch.Generator, std: float, mean: float = 0.0) -> None:
    parameter.copy_(mean + std * torch.randn(parameter.shape, generator=random))


def _some(count: int, random: torch.Generator) -> Tensor:
    """A random choice of rows or channels, at least one."""
    return torch.randperm(count, generator=random)[: max(1, int(SHARE_OF_CORNERS * count))]


def _fill_linear(module: QuantLinear, random: torch.Generator) -> None:
    inputs, outputs = module.in_features, module.out_features
    _normal(module.weight, random, std=inputs**-0.5)
    module.weight.add_(0.3 * inputs**-0.5 * torch.randn(outputs, 1, generator=random))  # a row mean that is not 0
    _normal(module.bias, random, std=0.2)
    if module.gain is not None:
        _normal(module.gain, random, std=0.5, mean=1.0)
        if len(module.gain) > 1:  # one zero for a whole layer would silence it
            module.gain[_some(outputs, random)] = -0.0
    module.weight[_some(outputs, random)] = 0.0  # alpha = 0
    module.weight[_some(outputs, random)] = 0.01  # a constant row: W - mu is 0, or what the mean was rounded by
    module.bias[_some(outputs, random)] = 0.0
    module.bias[_some(outputs, random)] = -0.0
    met = _some(outputs, random)
    module.bias[met] = -_attainable(module, random)[met]  # alpha · dot + bias is exactly 0 for one dot


def _attainable(module: QuantLinear, random: torch.Generator) -> Tensor:
    """alpha · dot for a dot of every channel that inputs of ±1 can have, near 0 where most are."""
    half = torch.randint(-4, 5, (module.out_features,), generator=random)
    dot = (2 * half + module.in_features % 2).clamp(-module.in_features, module.in_features)
    scale = module.quantized_weight().scale
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


def _fill_step(module: Levels, random: torch.Generator) -> None:
    module.step.mul_(0.5 + torch.rand((), generator=random))


def _fill_classifier(module: nn.Linear, random: torch.Generator) -> None:
    _normal(module.weight, random, std=1.0)
    _normal(module.bias, random, std=1.0)


_FILLERS: dict[str, Callable[..., None]] = {
    "QuantLinear": _fill_linear,
    "QuantEmbedding": _fill_embedding,
    "Embedding": _fill_embedding,
    "LayerNorm": _fill_norm,
    "Linear": _fill_classifier,
    "Levels": _fill_step,
}


def _fill_thresholds(network: BiBertForSequenceClassification, random: torch.Generator) -> None:
    """Thresholds that values meet, which are the values of the module before."""
    scheme, before = network.config.quantization, network.bert.embeddings.LayerNorm
    sites = SITES if scheme.attention_bits else scheme.thresholds
    for layer in network.bert.encoder.layer:
        for site in (site for site in SHIFTS if site in sites):
            layer.get_submodule(SHIFTS[site]).threshold.copy_(_layer_threshold(site, layer, before, random))
        if scheme.attention_bits:
            _sharpen(layer)
        if scheme.score_thresholds:
            _fill_score_thresholds(layer.attention.self, random)
        before = layer.output.LayerNorm
    if "pooler_input" in sites:
        network.bert.pooler.input_shift.threshold.copy_(_threshold_on_states(before, random))


def _sharpen(layer: BertLayer) -> None:
    """Let queries attend to few keys, and fit the levels of the context, which is a mean of values, to its range."""
    for name in ("query", "key"):
        layer.attention.self.get_submodule(name).weight.mul_(3)
        layer.get_submodule(SHIFTS[name]).step.mul_(3)
    layer.get_submodule(SHIFTS["context"]).threshold.div_(15)
    layer.get_submodule(SHIFTS["context"]).step.div_(4)


def _fill_score_thresholds(module: BertSelfAttention, random: torch.Generator) -> None:
    """Scores that are met exactly, and between two scores; for the first head nothing is attended to."""
    size = module.head_size
    least = torch.randint(-size, size + 1, (module.heads,), generator=random) / 2
    least[0] = size + 1  # every context is 0
    least[-1] = -size - 1  # everything is attended to
    module.attention.threshold.copy_(least / math.sqrt(size))


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
