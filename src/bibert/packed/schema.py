"""The config of a packed model, and the name, type, shape and offset of every tensor, which follow from it.

The data section of a file holds these tensors in this order without gaps: all tensors of 64-bit words, then all
tensors of 32-bit numbers, then the tokenizer. docs/packed-format.md, section 4, has the same table.
"""

import math
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from bibert.errors import ModelFileError
from bibert.packed.bits import words_for

# Upper limits of the config. The native library has the same limits (native/include/bibert.h).
BYTES_PER_TOKEN, SPARE_BYTES = 32, 2**18  # how long a tokenizer may be; BERT's own need 15 bytes for a token
LIMITS: Mapping[str, int] = {
    "layers": 48,
    "hidden": 4096,
    "heads": 256,
    "head_size": 64,
    "intermediate": 16384,
    "vocabulary": 2**20,
    "positions": 8192,
    "token_types": 64,
    "labels": 65536,
}
MOST_INNER = 4096  # heads · head_size: a row of queries, keys or values

# LayerNorm's statistics are integers on a fixed-point grid (docs/numeric-contract.md, rule 7; kernels.h has them too).
GRID = 2.0**16
LAYER_NORM_LIMIT = 2.0**15  # of the length of a row: its entries are 32-bit integers, their squares sum to < 2^62

# Where a sign may have a threshold per channel: bit = (value ≥ threshold). Without one the threshold is 0.
LAYER_SITES = ("attention_input", "query", "key", "value", "context", "ffn_input", "ffn_hidden")
SITES = (*LAYER_SITES, "pooler_input")
FFN_LEVELS = ("sign", "bool")  # the input of the second FFN layer: ±1, or levels from 0 up
DIAL = (2, 4)  # bits of activations with more than one; the schema then has edges and rates instead of thresholds

TOKENIZER = "tokenizer"
# The types of tensors, by their names in safetensors.
_CODES = {"U64": "<u8", "F32": "<f4", "I32": "<i4", "U8": "u1"}
DTYPES: Mapping[str, np.dtype[Any]] = {name: np.dtype(code) for name, code in _CODES.items()}


@dataclass(frozen=True)
class PackedConfig:
    """The shape of a packed model."""

    layers: int  # transformer blocks
    hidden: int  # channels of the residual stream
    heads: int
    head_size: int  # channels of one head
    intermediate: int  # channels inside the feed-forward network
    vocabulary: int  # rows of the word embedding
    positions: int  # rows of the position table, the longest input
    token_types: int  # rows of the token-type table
    labels: int  # outputs of the classifier; one means regression
    norm_eps: float = 1e-12  # added to the variance by LayerNorm
    thresholds: tuple[str, ...] = ()  # which of `SITES` have a threshold per channel
    score_thresholds: bool = False  # whether Bi-Attention has a threshold per head
    ffn_levels: str = "sign"  # one of `FFN_LEVELS`
    activation_bits: int = 1  # of the inputs of linear layers: 1, 2 or 4
    attention_bits: int = 1  # of queries, keys, values and attention weights: 1, 2 or 4

    def __post_init__(self) -> None:
        for name, most in LIMITS.items():
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise ModelFileError(f"config: {name} is {value!r}, must be a whole number from 1 to {most}")
        if self.inner > MOST_INNER:
            heads = f"{self.heads} heads of {self.head_size}"
            raise ModelFileError(f"config: {heads} make {self.inner} channels, at most {MOST_INNER} fit")
        if not isinstance(self.norm_eps, float) or not 0.0 < self.norm_eps <= 1.0:
            raise ModelFileError(f"config: norm_eps is {self.norm_eps!r}, must be a number above 0 and at most 1")
        sites = self.thresholds
        if not isinstance(sites, tuple) or sites != tuple(site for site in SITES if site in sites):
            order = f"{', '.join(SITES)}, each once, in this order"
            raise ModelFileError(f"config: thresholds is {sites!r}, must list some of {order}")
        if not isinstance(self.score_thresholds, bool):
            raise ModelFileError(f"config: score_thresholds is {self.score_thresholds!r}, must be true or false")
        if self.ffn_levels not in FFN_LEVELS:
            raise ModelFileError(f"config: ffn_levels is {self.ffn_levels!r}, must be one of {list(FFN_LEVELS)}")
        bits = (self.activation_bits, self.attention_bits)
        if bits != (1, 1) and not all(type(one) is int and one in DIAL for one in bits):
            raise ModelFileError(f"config: activation_bits, attention_bits are {bits}, both must be 1, or each 2 or 4")
        parts = (self.thresholds, self.score_thresholds, self.ffn_levels)
        if self.has_levels and parts != ((), False, "bool"):
            found = f"{parts} with activation_bits {self.activation_bits}, must be empty, false and 'bool'"
            raise ModelFileError(f"config: thresholds, score_thresholds and ffn_levels are {found}")

    @property
    def has_levels(self) -> bool:
        """Whether activations have more than one bit."""
        return self.activation_bits > 1

    @property
    def inner(self) -> int:
        """Channels of all heads together."""
        return self.heads * self.head_size

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for the file."""
        values = vars(self) | {"thresholds": list(self.thresholds)}
        return values if self.has_levels else {name: values[name] for name in values if name not in _OF_VERSION_2}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "PackedConfig":
        """Invert `to_dict`; ModelFileError if a field is missing, unknown, of the wrong type or out of range."""
        known = {field.name for field in fields(cls)}
        require_fields("config", values, known if values.keys() & _OF_VERSION_2 else known - _OF_VERSION_2)
        sites = values["thresholds"]
        return cls(**{**values, "thresholds": tuple(sites) if isinstance(sites, list) else sites})


_OF_VERSION_2 = frozenset({"activation_bits", "attention_bits"})  # a file with one bit is of version 1 and has neither


def require_fields(what: str, values: Mapping[str, Any], known: Set[str]) -> None:
    """Raise `ModelFileError` unless the keys of `values` are the known ones."""
    if values.keys() != known:
        missing, unknown = sorted(known - values.keys()), sorted(values.keys() - known)
        raise ModelFileError(f"{what}: missing fields {missing}, unknown fields {unknown}")


class TensorSpec(NamedTuple):
    """One tensor of a file: `dtype` is the name in safetensors, `offset` counts from the start of the data section."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """Size of the tensor."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


# The 32-bit numbers of a layer in the order of the file: part, its channels, its tensors.
_LAYER_NUMBERS = (
    ("attention_input", "hidden", ("threshold",)),
    ("query", "inner", ("scale", "bias", "threshold")),
    ("key", "inner", ("scale", "bias", "threshold")),
    ("value", "inner", ("scale", "bias", "threshold")),
    ("context", "inner", ("threshold",)),
    ("attention_output", "hidden", ("scale", "bias")),
    ("attention_norm", "hidden", ("weight", "bias")),
    ("ffn_input", "hidden", ("threshold",)),
    ("intermediate", "intermediate", ("scale", "bias")),
    ("ffn_hidden", "intermediate", ("threshold",)),
    ("output", "hidden", ("scale", "bias")),
    ("output_norm", "hidden", ("weight", "bias")),
)


@lru_cache(maxsize=16)  # each load asks four times
def tensor_specs(config: PackedConfig, tokenizer_bytes: int) -> tuple[TensorSpec, ...]:
    """Every tensor of a file, in the order of the file."""
    offset, specs = 0, []
    bits = [(name, "U64", (rows, words_for(columns))) for name, (rows, columns) in _bit_shapes(config).items()]
    for name, dtype, shape in (*bits, *_numbers(config), (TOKENIZER, "U8", (tokenizer_bytes,))):
        specs.append(TensorSpec(name, dtype, shape, offset))
        offset += specs[-1].nbytes
    return tuple(specs)


def linears(config: PackedConfig, layer: int) -> dict[str, tuple[int, int]]:
    """The binary linear layers of a block, by name: output and input channels."""
    hidden, inner, wide = config.hidden, config.inner, config.intermediate
    at = f"layers.{layer}"
    return {
        **dict.fromkeys((f"{at}.query", f"{at}.key", f"{at}.value"), (inner, hidden)),
        f"{at}.attention_output": (hidden, inner),
        f"{at}.intermediate": (wide, hidden),
        f"{at}.output": (hidden, wide),
    }


def columns_of_bits(config: PackedConfig) -> dict[str, int]:
    """The tensors of words, by name: how many bits each row has."""
    return {name: columns for name, (_, columns) in _bit_shapes(config).items()}


def _bit_shapes(config: PackedConfig) -> dict[str, tuple[int, int]]:
    shapes = {"embeddings.word.bits": (config.vocabulary, config.hidden)}
    for layer in range(config.layers):
        shapes |= {f"{name}.bits": shape for name, shape in linears(config, layer).items()}
    return shapes | {"pooler.bits": (config.hidden, config.hidden)}


def float32_bytes(config: PackedConfig, spec: TensorSpec) -> int:
    """Bytes of a tensor in the model before binarization: 0 for scales and thresholds, which only a packed file has."""
    if spec.dtype == "U64":
        return DTYPES["F32"].itemsize * spec.shape[0] * columns_of_bits(config)[spec.name]
    return 0 if spec.name.endswith(("scale", "threshold", "edge", "rate", "step")) else spec.nbytes


def _numbers(config: PackedConfig) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Tensors of 32-bit numbers; thresholds where the config has them, an edge and a rate at each site of levels."""
    hidden = config.hidden
    yield "embeddings.word.scale", "F32", (config.vocabulary,)
    yield "embeddings.token_type", "F32", (config.token_types, hidden)
    yield "embeddings.position", "F32", (config.positions, hidden)
    yield "embeddings.norm.weight", "F32", (hidden,)
    yield "embeddings.norm.bias", "F32", (hidden,)
    for layer in range(config.layers):
        for part, channels, tensors in _LAYER_NUMBERS:
            for tensor in tensors:
                if tensor == "threshold":
                    yield from _site(config, part, f"layers.{layer}.{part}", getattr(config, channels))
                else:
                    yield f"layers.{layer}.{part}.{tensor}", "F32", (getattr(config, channels),)
            if part == "value" and config.score_thresholds:
                yield f"layers.{layer}.score_threshold", "I32", (config.heads,)
            if part == "value" and config.has_levels:
                yield f"layers.{layer}.value.step", "F32", (1,)
                yield f"layers.{layer}.attention_threshold", "I32", (config.heads, 2**config.attention_bits - 1)
    yield from _site(config, "pooler_input", "pooler_input", hidden)
    yield "pooler.scale", "F32", (hidden,)
    yield "pooler.bias", "F32", (hidden,)
    yield "classifier.weight", "F32", (config.labels, hidden)
    yield "classifier.bias", "F32", (config.labels,)


def _site(config: PackedConfig, site: str, name: str, channels: int) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    if config.has_levels:
        yield f"{name}.edge", "F32", (channels,)
        yield f"{name}.rate", "F32", (1,)
    elif site in config.thresholds:
        yield f"{name}.threshold", "F32", (channels,)


def check_tokenizer_size(size: int, vocabulary: int) -> None:
    """Refuse a tokenizer of more bytes than the format allows; a file is checked before they are read."""
    most = SPARE_BYTES + BYTES_PER_TOKEN * vocabulary
    if size > most:
        sizes = f"has {size} bytes, at most {most} for {vocabulary} tokens"
        raise ModelFileError(f"tokenizer: {sizes}; use a plain BERT tokenizer")
