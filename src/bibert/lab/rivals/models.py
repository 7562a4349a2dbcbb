"""What engines run in a benchmark: random batches, random packed models, and the full-precision BERT of the rivals.

The time of a forward pass does not depend on the values, so random weights are enough to compare speed. torch and
transformers are imported on demand.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bibert.errors import BibertError
from bibert.nn.packable import CONFIG_KEYS
from bibert.packed.bits import pack_rows
from bibert.packed.file import PackedModel
from bibert.packed.schema import PackedConfig, TensorSpec, columns_of_bits, tensor_specs

Ids = NDArray[np.int64]
Logits = NDArray[np.float32]
Run = Callable[[Ids, Ids], Logits]  # token ids and attention mask, (batch, length) each, to logits (batch, labels)

INPUTS = ("input_ids", "attention_mask")  # names of the arguments of `Run` in a BERT
SPREAD = 0.02  # BERT's initializer_range; it keeps the input of every LayerNorm far inside the numeric contract
NO_TOKENIZER = b"{}"  # a packed file must have one; benchmarks feed ids, and a rival's file has none either
CALIBRATION_LENGTHS = (128, 64, 32, 16, 8)
CALIBRATION_BATCHES = 30


class Shape(NamedTuple):
    """Texts per batch and tokens per text, written 8x128."""

    batch: int
    length: int

    def __str__(self) -> str:
        return f"{self.batch}x{self.length}"

    @classmethod
    def parse(cls, word: str) -> "Shape":
        """Read a shape as `str` writes it; anything else raises BibertError."""
        found = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", word, flags=re.ASCII)
        if found is None:
            raise BibertError(f"shape {word!r}: write texts x tokens as two whole numbers from 1 up, such as 8x128")
        return cls(int(found[1]), int(found[2]))


def random_batch(shape: Shape, vocabulary: int, seed: int = 0) -> tuple[Ids, Ids]:
    """Random token ids and a mask of ones: no engine has to compute padding."""
    ids = np.random.default_rng(seed).integers(vocabulary, size=shape, dtype=np.int64)
    return ids, np.ones_like(ids)


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


@dataclass(frozen=True)
class Blueprint:
    """The BERT that every rival is built from, here with random weights. It is sent to the process that builds."""

    config: PackedConfig

    def bert(self) -> Any:
        """A `BertForSequenceClassification` of transformers in eval mode, which every tool can convert."""
        config = self.config
        if config.inner != config.hidden:  # which that class cannot express
            raise BibertError(
                f"{config.heads} heads of {config.head_size} make {config.inner} channels, the attention of a rival "
                f"needs {config.hidden}, its hidden size; compare a model whose heads fill it"
            )
        import torch
        from transformers import BertConfig, BertForSequenceClassification

        torch.manual_seed(0)
        sizes = {key: getattr(config, name) for name, key in CONFIG_KEYS.items()}
        # Nothing here is padding, and a small vocabulary may not have the id of BERT's.
        return BertForSequenceClassification(BertConfig(**sizes, num_labels=config.labels, pad_token_id=None)).eval()

    def example_inputs(self) -> dict[str, Any]:
        """Tensors for tools that trace a BERT through one call.

        No axis is 1, which a tool would take for a constant, and no tensor is passed twice, which it would merge.
        """
        import torch

        batch = random_batch(Shape(2, min(16, self.config.positions)), self.config.vocabulary)
        return {name: torch.from_numpy(values) for name, values in zip(INPUTS, batch, strict=True)}

    def calibration(self) -> Iterator[tuple[Ids, Ids]]:
        """Batches of one text to choose the ranges of int8 with."""
        lengths = [min(length, self.config.positions) for length in CALIBRATION_LENGTHS]
        for seed, length in enumerate(islice(cycle(lengths), CALIBRATION_BATCHES)):
            yield random_batch(Shape(1, length), self.config.vocabulary, seed)
