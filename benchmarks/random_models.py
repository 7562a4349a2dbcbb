"""Packed models with random weights: the time of a forward pass does not depend on the values."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bibert.packed.bits import pack_rows
from bibert.packed.file import PackedModel
from bibert.packed.schema import PackedConfig, TensorSpec, columns_of_bits, tensor_specs

SPREAD = 0.02  # BERT's initializer_range; it keeps the input of every LayerNorm far inside the numeric contract
NO_TOKENIZER = b"{}"  # a packed file must have one; benchmarks feed ids, and a rival's file has none either


def with_bits(config: PackedConfig, bits: int) -> PackedConfig:
    """The shape with activations of 2 or 4 bits, as `bibert_2` and `bibert_4` have them: attention has 4 in both."""
    return replace(config, activation_bits=bits, attention_bits=4, ffn_levels="bool")


def random_packed(config: PackedConfig, seed: int = 0, tokenizer: bytes = NO_TOKENIZER) -> PackedModel:
    """A packed model of random bits, and of numbers of the size of an untrained BERT's."""
    generator, columns = np.random.default_rng(seed), columns_of_bits(config)
    weights = tensor_specs(config, len(tokenizer))[:-1]
    tensors = {spec.name: _random_tensor(spec, columns.get(spec.name, 0), generator) for spec in weights}
    labels = [f"label {number}" for number in range(config.labels)]
    return PackedModel.from_tensors(config, labels, config.positions, tensors, tokenizer, {"weights": "random"})


def _random_tensor(spec: TensorSpec, columns: int, generator: np.random.Generator) -> NDArray[Any]:
    if spec.dtype == "U64":
        return pack_rows(generator.integers(2, size=(spec.shape[0], columns), dtype=np.uint8))
    if spec.name.endswith("attention_threshold"):
        return -np.sort(-generator.integers(64, size=spec.shape, dtype=np.int32))
    if spec.dtype == "I32":
        return generator.integers(-1, 2, size=spec.shape, dtype=np.int32)
    values = SPREAD * generator.standard_normal(spec.shape, dtype=np.float32)
    if spec.name.endswith(("norm.weight", ".rate", ".step")):
        return 1 + values
    return np.abs(values) if spec.name.endswith(".scale") else values
