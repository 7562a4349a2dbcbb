"""The parts of a packed file: parameters, bytes and multiply-adds of each, counted from the config alone.

`summarize` lists them in the order of the network, with the columns of larq's model summary; MACs are those of the
whole network, of which the engine skips some. `beside_the_rule` groups the same bytes as the paper's size rule does.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from itertools import groupby

from bibert.lab.cost import MIB, PARTS, check_tokens, elementwise_flops, product_flops, size
from bibert.nn.schemes import SCHEMES, Scheme
from bibert.packed.header import Description, encode
from bibert.packed.schema import PackedConfig, TensorSpec, columns_of_bits, float32_bytes, tensor_specs

HEADER = "header"
TENSOR_WORD = re.compile(r"\.(bits|scale|bias|weight|threshold|edge|rate|step)$")  # after the name of a part


@dataclass(frozen=True)
class Part:
    """One part of a packed model, such as `layers.0.query`, or several together."""

    name: str
    bits: int = 0  # 1-bit parameters, without the padding of rows to whole words
    numbers: int = 0  # 32-bit parameters, scales and thresholds
    nbytes: int = 0  # in the file
    binary_macs: int = 0  # multiply-adds of bits, or of levels with bits or levels
    product_flops: float = 0.0  # of these, by the paper's rule
    float_macs: int = 0  # multiply-adds of float matrix products, without elementwise work
    float32_bytes: int = 0  # in the model before binarization

    @property
    def ratio(self) -> float:
        """How many times smaller the part is than in float32; 0 if only the packed file has it."""
        return self.float32_bytes / self.nbytes if self.nbytes else 0.0


@dataclass(frozen=True)
class Summary:
    """Every part of a file in the order of the network; the tokenizer and the header come last."""

    tokens: int
    parts: tuple[Part, ...]
    elementwise_flops: float

    @property
    def total(self) -> Part:
        """All parts together; `nbytes` is the size of the file."""
        return together("total", self.parts)

    @property
    def by_layer(self) -> tuple[Part, ...]:
        """The same with one row for each layer."""
        groups = groupby(self.parts, key=lambda part: re.sub(r"(layers\.\d+).*", r"\1", part.name))
        return tuple(together(name, parts) for name, parts in groups)

    @property
    def flops(self) -> float:
        """FLOPs of one text by the paper's rule: products and elementwise work."""
        return self.total.product_flops + self.elementwise_flops


def summarize(description: Description, tokenizer_bytes: int, tokens: int) -> Summary:
    """Count every byte of a packed file, and the MACs of a text of `tokens` tokens, which the model must take."""
    config = description.config
    check_tokens(config, tokens)
    tensors: dict[str, list[TensorSpec]] = {}
    # The 32-bit numbers are in the order of the network; the bits, which come first in the file, join their parts.
    for spec in sorted(tensor_specs(config, tokenizer_bytes), key=lambda spec: spec.dtype == "U64"):
        part = TENSOR_WORD.sub("", re.sub("(score|attention)_threshold", "attention", spec.name))
        tensors.setdefault(part, []).append(spec)
        if spec.name.endswith(".value.bias"):
            tensors[spec.name.replace(".value.bias", ".attention")] = []
    parts = [_part(name, specs, config, tokens) for name, specs in tensors.items()]
    header = Part(HEADER, nbytes=len(encode(description, tokenizer_bytes)))
    return Summary(tokens, (*parts, header), elementwise_flops(config, scheme_of_file(config), tokens))


def together(name: str, parts: Iterable[Part]) -> Part:
    """The sum of some parts under a new name."""
    columns = zip(*(astuple(part)[1:] for part in parts), strict=True)
    return Part(name, *map(sum, columns))


def _part(name: str, specs: list[TensorSpec], config: PackedConfig, tokens: int) -> Part:
    columns = columns_of_bits(config)
    bits = sum(spec.shape[0] * columns[spec.name] for spec in specs if spec.dtype == "U64")
    if name.endswith(".attention"):
        macs = 2 * tokens**2 * config.inner  # queries with keys, attention weights with values
        operands = (config.attention_bits, config.attention_bits)
    else:
        operands = (1, config.activation_bits)
        macs = bits * {"embeddings.word": 0, "pooler": 1}.get(name, tokens)  # a look-up; the first token only
    return Part(
        name,
        bits=bits,
        numbers=sum(math.prod(spec.shape) for spec in specs if spec.dtype in ("F32", "I32")),
        nbytes=sum(spec.nbytes for spec in specs),
        binary_macs=macs,
        product_flops=product_flops(macs, *operands),
        float_macs=config.hidden * config.labels if name == "classifier" else 0,
        float32_bytes=sum(float32_bytes(config, spec) for spec in specs),
    )


def scheme_of_file(config: PackedConfig, name: str = "bibert") -> Scheme:
    """The scheme, under any name, that computes what a file with this config does; its gains are in the scales."""
    if config.has_levels:
        return replace(SCHEMES[f"bibert_{config.activation_bits}"], name=name, attention_bits=config.attention_bits)
    row = SCHEMES["bibert_plus" if config.ffn_levels == "bool" else "bibert"]
    return replace(row, name=name, thresholds=config.thresholds, score_thresholds=config.score_thresholds)


@dataclass(frozen=True)
class PartBytes:
    """Bytes of a part by the rule and in the file, and why they differ if they do."""

    part: str
    by_rule: float
    in_file: int
    reason: str


def beside_the_rule(description: Description, tokenizer_bytes: int) -> list[PartBytes]:
    """Every byte of a packed file by the parts of the rule, followed by the parts that the rule leaves out."""
    by_rule = size(description.config, SCHEMES["bibert"]).parts
    in_file = dict.fromkeys(by_rule, 0)
    for spec in tensor_specs(description.config, tokenizer_bytes):
        part = next(part for part, row in PARTS.items() if re.fullmatch(row["tensors"], spec.name))
        in_file[part] = in_file.get(part, 0) + spec.nbytes
    in_file[HEADER] = len(encode(description, tokenizer_bytes))
    return [
        PartBytes(part, rule := by_rule.get(part, 0.0), nbytes, PARTS[part]["differs"] if nbytes != rule else "")
        for part, nbytes in in_file.items()
    ]


def bytes_rows(parts: list[PartBytes]) -> list[list[str]]:
    """The rows of a table: bytes of each part by the rule and in the file, the reason, and the total."""
    rows = [[one.part, f"{one.by_rule:,.0f}", f"{one.in_file:,}", one.reason] for one in parts]
    by_rule, in_file = sum(one.by_rule for one in parts), sum(one.in_file for one in parts)
    note = f"{by_rule / MIB:.2f} MiB by the rule, {in_file / MIB:.2f} in the file"
    return [*rows, ["total", f"{by_rule:,.0f}", f"{in_file:,}", note]]
