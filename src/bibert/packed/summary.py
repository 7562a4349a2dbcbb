"""What a packed model is made of: numbers, bytes and multiply-adds of every part, counted from the config alone.

The columns are those of larq's model summary. MACs are those of the network for a text of a given length, every token
of every layer; that the engine leaves some of them out is its own affair. What a MAC costs is not said here.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import groupby

from bibert.errors import BibertError
from bibert.packed.header import Description, encode
from bibert.packed.schema import PackedConfig, TensorSpec, linears, tensor_specs

HEADER = "header"
NUMBERS = ("F32", "I32")
FLOAT_BYTES = 4
TENSOR_WORDS = ("bits", "scale", "bias", "weight", "threshold")  # last words of tensor names: what a part holds
ONLY_WHEN_PACKED = ("scale", "threshold", "score_threshold")  # a float32 model has no such numbers


@dataclass(frozen=True)
class Part:
    """One part of a packed model, or several together.

    Attributes:
        name: such as `layers.0.query`.
        bits: 1-bit parameters, without what pads a row to whole words.
        numbers: 32-bit numbers: parameters, scales and thresholds.
        nbytes: bytes in the file.
        binary_macs: multiply-adds of 1-bit numbers.
        float_macs: multiply-adds of float matrix products; work on single numbers is not among them.
        float32_bytes: what the same part takes in the model before it was binarized.
    """

    name: str
    bits: int = 0
    numbers: int = 0
    nbytes: int = 0
    binary_macs: int = 0
    float_macs: int = 0
    float32_bytes: int = 0

    @property
    def ratio(self) -> float:
        """How many times smaller the part is than in float32; 0 for what only the packed file has."""
        return self.float32_bytes / self.nbytes if self.nbytes else 0.0


@dataclass(frozen=True)
class Summary:
    """Every part of a file, in the order of the network; the tokenizer and the header come last."""

    tokens: int
    parts: tuple[Part, ...]

    @property
    def total(self) -> Part:
        """All parts together; `nbytes` is the size of the file."""
        return together("total", self.parts)

    @property
    def by_layer(self) -> tuple[Part, ...]:
        """The same with one row for each layer."""
        return tuple(together(name, parts) for name, parts in groupby(self.parts, key=_layer_of))


def summarize(description: Description, tokenizer_bytes: int, tokens: int) -> Summary:
    """Count every byte of a file, and the MACs of a text.

    Args:
        description: what the file says of itself; a `PackedModel` is one.
        tokenizer_bytes: of the tokenizer in the file.
        tokens: the length of the text.

    Raises:
        BibertError: `tokens` is below 1 or above the positions of the model.
    """
    config = description.config
    if not 1 <= tokens <= config.positions:
        raise BibertError(f"tokens is {tokens}, but this model takes from 1 to {config.positions}")
    tensors: dict[str, list[TensorSpec]] = {name: [] for name in _names(config)}
    for spec in tensor_specs(config, tokenizer_bytes):
        tensors[_part_of(spec)].append(spec)
    bits, macs = _one_bit_parameters(config), _binary_macs(config, tokens)
    parts = [
        Part(
            name,
            bits=bits.get(name, 0),
            numbers=sum(math.prod(spec.shape) for spec in specs if spec.dtype in NUMBERS),
            nbytes=sum(spec.nbytes for spec in specs),
            binary_macs=macs.get(name, 0),
            float_macs=config.hidden * config.labels if name == "classifier" else 0,
            float32_bytes=FLOAT_BYTES * bits.get(name, 0) + sum(spec.nbytes for spec in specs if _is_in_float32(spec)),
        )
        for name, specs in tensors.items()
    ]
    return Summary(tokens, (*parts, Part(HEADER, nbytes=len(encode(description, tokenizer_bytes)))))


def together(name: str, parts: Iterable[Part]) -> Part:
    """The sum of some parts under a new name."""
    sums = dict.fromkeys((field.name for field in fields(Part) if field.name != "name"), 0)
    for part in parts:
        for field in sums:
            sums[field] += getattr(part, field)
    return Part(name, **sums)


def _is_in_float32(spec: TensorSpec) -> bool:
    """Whether a float32 model has the same tensor; bits are counted apart, and it is shipped with the tokenizer too."""
    return spec.dtype != "U64" and _last_word(spec.name) not in ONLY_WHEN_PACKED


def _names(config: PackedConfig) -> Iterable[str]:
    """The parts in the order of the network, which is that of the 32-bit numbers in the file."""
    for spec in tensor_specs(config, 0):
        if spec.dtype != "U64":
            yield _part_of(spec)
            if spec.name.endswith(".value.bias"):
                yield spec.name.replace(".value.bias", ".attention")


def _part_of(spec: TensorSpec) -> str:
    if spec.name.endswith(".score_threshold"):
        return spec.name.replace(".score_threshold", ".attention")
    return spec.name.rpartition(".")[0] if _last_word(spec.name) in TENSOR_WORDS else spec.name


def _last_word(name: str) -> str:
    return name.rpartition(".")[2]


def _layer_of(part: Part) -> str:
    words = part.name.split(".")
    return ".".join(words[:2]) if words[0] == "layers" else part.name


def _one_bit_parameters(config: PackedConfig) -> dict[str, int]:
    counts = {"embeddings.word": config.vocabulary * config.hidden, "pooler": config.hidden**2}
    for layer in range(config.layers):
        counts |= {name: math.prod(shape) for name, shape in linears(config, layer).items()}
    return counts


def _binary_macs(config: PackedConfig, tokens: int) -> dict[str, int]:
    """Products of weights, and those of the attention: queries with keys, attention weights with values.

    The word embedding is a look-up and has none; the pooler sees the first token only.
    """
    macs = {name: tokens * bits for name, bits in _one_bit_parameters(config).items()}
    macs |= {f"layers.{layer}.attention": 2 * tokens**2 * config.inner for layer in range(config.layers)}
    return macs | {"embeddings.word": 0, "pooler": config.hidden**2}
