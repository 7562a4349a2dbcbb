"""What engines run in a benchmark: random batches, random packed models, and the full-precision BERT of the rivals.

The time of a forward pass does not depend on the values, so random weights are enough to compare speed. To compare
accuracy, a `Blueprint` takes the weights of a trained classifier. torch and transformers are imported on demand.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bibert.errors import BibertError, SchemeError
from bibert.nn.packable import CONFIG_KEYS, packed_config
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
    if spec.dtype == "I32":
        return generator.integers(-1, 2, size=spec.shape, dtype=np.int32)
    values = SPREAD * generator.standard_normal(spec.shape, dtype=np.float32)
    if spec.name.endswith("norm.weight"):
        return 1 + values
    return np.abs(values) if spec.name.endswith(".scale") else values


@dataclass(frozen=True)
class Blueprint:
    """The BERT that every rival is built from; it is sent to the process that builds."""

    config: PackedConfig
    weights: Path | None = None  # folder of a full-precision classifier; None for random weights
    texts: tuple[tuple[int, ...], ...] = ()  # token ids to calibrate int8 with; none for random ids

    @classmethod
    def of_classifier(cls, folder: Path, texts: Sequence[Sequence[int]]) -> Self:
        """The blueprint of a full-precision classifier; raises as `trained_bert` does."""
        return cls(packed_config(trained_bert(folder).config.to_dict()), folder, tuple(map(tuple, texts)))

    def bert(self) -> Any:
        """The BERT as the class of transformers, which every tool can convert."""
        return random_bert(self.config) if self.weights is None else trained_bert(self.weights)

    def example_inputs(self) -> dict[str, Any]:
        """Tensors for tools that trace a BERT through one call.

        No axis is 1, which a tool would take for a constant, and no tensor is passed twice, which it would merge.
        """
        import torch

        batch = random_batch(Shape(2, min(16, self.config.positions)), self.config.vocabulary)
        return {name: torch.from_numpy(values) for name, values in zip(INPUTS, batch, strict=True)}

    def calibration(self) -> Iterator[tuple[Ids, Ids]]:
        """Batches of one text, real or random, to choose the ranges of int8."""
        if self.texts:
            for text in self.texts:
                ids = np.array([text], dtype=np.int64)
                yield ids, np.ones_like(ids)
            return
        lengths = [min(length, self.config.positions) for length in CALIBRATION_LENGTHS]
        for seed, length in enumerate(islice(cycle(lengths), CALIBRATION_BATCHES)):
            yield random_batch(Shape(1, length), self.config.vocabulary, seed)


def random_bert(config: PackedConfig) -> Any:
    """An untrained `BertForSequenceClassification` of transformers, in eval mode.

    Raises:
        BibertError: the heads do not fill the hidden size, which that class cannot express.
    """
    _check_heads(config.heads, config.head_size, config.hidden)
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    sizes = {key: getattr(config, name) for name, key in CONFIG_KEYS.items()}
    # Nothing here is padding, and a small vocabulary may not have the id of BERT's.
    return BertForSequenceClassification(BertConfig(**sizes, num_labels=config.labels, pad_token_id=None)).eval()


def trained_bert(folder: Path) -> Any:
    """The `BertForSequenceClassification` of transformers with the weights of a full-precision classifier of ours.

    Raises:
        CheckpointError: the folder does not hold a complete classifier.
        SchemeError: the classifier is quantized.
        BibertError: the heads do not fill the hidden size.
    """
    from transformers import BertConfig, BertForSequenceClassification

    from bibert.nn.checkpoint import load_classifier

    ours = load_classifier(folder).model
    config = ours.config
    if config.quantization.is_quantized:
        raise SchemeError(
            f"{folder}: is quantized by scheme {config.quantization.name!r}, a rival starts from full precision; "
            "give the teacher"
        )
    _check_heads(config.num_attention_heads, config.head_size, config.hidden_size)
    keys = (*CONFIG_KEYS.values(), "hidden_act", "layer_norm_eps")
    theirs = BertConfig(num_labels=config.num_labels, **{key: getattr(config, key) for key in keys})
    model = BertForSequenceClassification(theirs)
    model.load_state_dict(ours.state_dict())  # the names of the weights are the same
    return model.eval()


def _check_heads(heads: int, head_size: int, hidden: int) -> None:
    if heads * head_size != hidden:
        raise BibertError(
            f"{heads} heads of {head_size} make {heads * head_size} channels, the attention of a rival needs {hidden}, "
            "its hidden size; compare a model whose heads fill it"
        )
