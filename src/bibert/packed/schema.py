"""What a packed model holds: the numbers that describe it, and from them every tensor's name, type, shape and place.

The data section of a file is these tensors one after the other, in this order, without a gap: first every tensor of
64-bit words, then every tensor of 32-bit numbers, last the tokenizer. Reading and writing are in `file`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any, NamedTuple

from bibert.errors import ModelFileError, did_you_mean
from bibert.packed.bits import words_for

# The most a file may ask for. The native library has the same limits (native/include/bibert.h).
LIMITS: Mapping[str, int] = MappingProxyType(
    {
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
)
MOST_INNER = 4096  # heads · head_size: a row of queries, keys or values

# Where a sign may have a threshold per channel in front of it: bit = (value ≥ threshold). Without one it is 0.
LAYER_SITES = ("attention_input", "query", "key", "value", "context", "ffn_input", "ffn_hidden")
SITES = (*LAYER_SITES, "pooler_input")
FFN_LEVELS = ("sign", "bool")  # the input of the second FFN layer: ±1 or {0, 1}

TOKENIZER = "tokenizer"


@dataclass(frozen=True)
class PackedConfig:
    """The shape of a packed model.

    Attributes:
        layers: transformer blocks.
        hidden: channels of the residual stream.
        heads: attention heads.
        head_size: channels of one head.
        intermediate: channels inside the feed-forward network.
        vocabulary: rows of the word embedding.
        positions: rows of the position table, the longest input.
        token_types: rows of the token-type table.
        labels: outputs of the classifier; one means regression.
        norm_eps: what LayerNorm adds to the variance.
        thresholds: which of `SITES` have a threshold per channel.
        score_thresholds: whether Bi-Attention has a threshold per head.
        ffn_levels: one of `FFN_LEVELS`.
    """

    layers: int
    hidden: int
    heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    positions: int
    token_types: int
    labels: int
    norm_eps: float = 1e-12
    thresholds: tuple[str, ...] = ()
    score_thresholds: bool = False
    ffn_levels: str = "sign"

    def __post_init__(self) -> None:
        for name, most in LIMITS.items():
            value = getattr(self, name)
            if not _is_int(value) or not 1 <= value <= most:
                raise ModelFileError(f"config: {name} is {value!r}, must be a whole number from 1 to {most}")
        if self.inner > MOST_INNER:
            raise ModelFileError(
                f"config: {self.heads} heads of {self.head_size} make {self.inner} channels, at most {MOST_INNER} fit"
            )
        if not isinstance(self.norm_eps, float) or not 0.0 < self.norm_eps <= 1.0:
            raise ModelFileError(f"config: norm_eps is {self.norm_eps!r}, must be a number above 0 and at most 1")
        self._check_options()

    def _check_options(self) -> None:
        if self.thresholds != tuple(site for site in SITES if site in self.thresholds):
            raise ModelFileError(
                f"config: thresholds is {list(self.thresholds)}, must list some of {list(SITES)} once, in this order"
            )
        if not isinstance(self.score_thresholds, bool):
            raise ModelFileError(f"config: score_thresholds is {self.score_thresholds!r}, must be true or false")
        if self.ffn_levels not in FFN_LEVELS:
            raise ModelFileError(f"config: ffn_levels is {self.ffn_levels!r}, must be one of {list(FFN_LEVELS)}")

    @property
    def inner(self) -> int:
        """Channels of all heads together."""
        return self.heads * self.head_size

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for the file."""
        return asdict(self) | {"thresholds": list(self.thresholds)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "PackedConfig":
        """The inverse of `to_dict`; a missing or unknown field is refused.

        Raises:
            ModelFileError: a field is missing, unknown, of the wrong type or out of range.
        """
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise ModelFileError(f"config: there is no field {name!r}; {did_you_mean(name, known)}")
        for name in known:
            if name not in values:
                raise ModelFileError(f"config: the field {name!r} is missing")
        sites = values["thresholds"]
        if not isinstance(sites, list) or not all(isinstance(site, str) for site in sites):
            raise ModelFileError(f"config: thresholds is {sites!r}, must be a list of names")
        return cls(**{**values, "thresholds": tuple(sites)})


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class TensorSpec(NamedTuple):
    """One tensor of a file: `dtype` is safetensors' name, `offset` counts bytes from the start of the data section."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


ITEM_BYTES: Mapping[str, int] = MappingProxyType({"U64": 8, "F32": 4, "I32": 4, "U8": 1})

_Entry = tuple[str, str, tuple[int, ...]]  # name, dtype, shape


def tensor_specs(config: PackedConfig, tokenizer_bytes: int) -> tuple[TensorSpec, ...]:
    """Every tensor of a file, in the order of the file."""
    offset, specs = 0, []
    entries = (*_bits(config), *_numbers(config), (TOKENIZER, "U8", (tokenizer_bytes,)))
    for name, dtype, shape in entries:
        spec = TensorSpec(name, dtype, shape, offset)
        specs.append(spec)
        offset += spec.nbytes
    return tuple(specs)


def linears(config: PackedConfig, layer: int) -> dict[str, tuple[int, int]]:
    """The binary linear layers of a block, by name: output and input channels."""
    hidden, inner, wide = config.hidden, config.inner, config.intermediate
    at = f"layers.{layer}"
    return {
        f"{at}.query": (inner, hidden),
        f"{at}.key": (inner, hidden),
        f"{at}.value": (inner, hidden),
        f"{at}.attention_output": (hidden, inner),
        f"{at}.intermediate": (wide, hidden),
        f"{at}.output": (hidden, wide),
    }


def columns_of_bits(config: PackedConfig) -> dict[str, int]:
    """The tensors of words, by name: how many bits of a row count."""
    columns = {"embeddings.word.bits": config.hidden}
    for layer in range(config.layers):
        columns |= {f"{name}.bits": inputs for name, (_, inputs) in linears(config, layer).items()}
    return columns | {"pooler.bits": config.hidden}


def _bits(config: PackedConfig) -> Iterator[_Entry]:
    yield _words("embeddings.word", config.vocabulary, config.hidden)
    for layer in range(config.layers):
        for name, (outputs, inputs) in linears(config, layer).items():
            yield _words(name, outputs, inputs)
    yield _words("pooler", config.hidden, config.hidden)


def _words(name: str, rows: int, columns: int) -> _Entry:
    return f"{name}.bits", "U64", (rows, words_for(columns))


def _numbers(config: PackedConfig) -> Iterator[_Entry]:
    yield "embeddings.word.scale", "F32", (config.vocabulary,)
    yield "embeddings.token_type", "F32", (config.token_types, config.hidden)
    yield "embeddings.position", "F32", (config.positions, config.hidden)
    yield from _norm("embeddings.norm", config.hidden)
    for layer in range(config.layers):
        yield from _layer_numbers(config, f"layers.{layer}")
    yield from _threshold(config, "pooler_input", "pooler_input", config.hidden)
    yield from _scale_and_bias("pooler", config.hidden)
    yield "classifier.weight", "F32", (config.labels, config.hidden)
    yield "classifier.bias", "F32", (config.labels,)


def _layer_numbers(config: PackedConfig, at: str) -> Iterator[_Entry]:
    hidden, inner, wide = config.hidden, config.inner, config.intermediate
    yield from _threshold(config, "attention_input", f"{at}.attention_input", hidden)
    for name in ("query", "key", "value"):
        yield from _scale_and_bias(f"{at}.{name}", inner)
        yield from _threshold(config, name, f"{at}.{name}", inner)
    if config.score_thresholds:
        yield f"{at}.score_threshold", "I32", (config.heads,)
    yield from _threshold(config, "context", f"{at}.context", inner)
    yield from _scale_and_bias(f"{at}.attention_output", hidden)
    yield from _norm(f"{at}.attention_norm", hidden)
    yield from _threshold(config, "ffn_input", f"{at}.ffn_input", hidden)
    yield from _scale_and_bias(f"{at}.intermediate", wide)
    yield from _threshold(config, "ffn_hidden", f"{at}.ffn_hidden", wide)
    yield from _scale_and_bias(f"{at}.output", hidden)
    yield from _norm(f"{at}.output_norm", hidden)


def _scale_and_bias(name: str, rows: int) -> Iterator[_Entry]:
    yield f"{name}.scale", "F32", (rows,)
    yield f"{name}.bias", "F32", (rows,)


def _norm(name: str, channels: int) -> Iterator[_Entry]:
    yield f"{name}.weight", "F32", (channels,)
    yield f"{name}.bias", "F32", (channels,)


def _threshold(config: PackedConfig, site: str, name: str, channels: int) -> Iterator[_Entry]:
    if site in config.thresholds:
        yield f"{name}.threshold", "F32", (channels,)
