"""The bytes of a packed file beside what the rule counts for its shape, part by part, and why they differ.

The rule is in `cost`, the tensors of a file in `packed.schema`; here each tensor finds the part it belongs to.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from bibert.errors import BibertError
from bibert.lab.architecture import Architecture
from bibert.lab.cost import size
from bibert.nn.schemes import SCHEMES, Scheme
from bibert.packed.header import Description, encode
from bibert.packed.schema import TOKENIZER, PackedConfig, tensor_specs

PACKED_SCHEME = SCHEMES["bibert"]  # whose parts the rule counts
HEADER = "header"
# Which part a tensor belongs to, by its name; the first that fits counts.
PART_OF_TENSOR: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "word": lambda name: name == "embeddings.word.bits",
        "position": lambda name: name == "embeddings.position",
        "token_type": lambda name: name == "embeddings.token_type",
        "pooler": lambda name: name == "pooler.bits",
        "linears": lambda name: name.endswith(".bits"),
        "layer_norms": lambda name: "norm." in name,
        "classifier": lambda name: name.startswith("classifier."),
        "biases": lambda name: name.endswith(".bias"),
        "scales": lambda name: name.endswith(".scale"),
        "thresholds": lambda name: name.endswith("threshold"),
        TOKENIZER: lambda name: name == TOKENIZER,
    }
)
PADDING = "every row ends at a whole 64-bit word"
REASONS: Mapping[str, str] = MappingProxyType(
    {
        "word": PADDING,
        "linears": PADDING,
        "pooler": PADDING,
        "scales": "a float32 for each output row and each token, which a product needs; the rule forgets them",
        "thresholds": "learned, one per channel or head, where the scheme has them; the paper has none",
        TOKENIZER: "the file answers to text, the rule counts the network alone",
        HEADER: "shape, labels, origin, digest and the place of every tensor",
    }
)


def scheme_of_file(config: PackedConfig, name: str = PACKED_SCHEME.name) -> Scheme:
    """The scheme, under any name, that computes what a file with this config does; its gains are in the scales."""
    row = SCHEMES["bibert_plus"] if config.ffn_levels == "bool" else PACKED_SCHEME
    return replace(row, name=name, thresholds=config.thresholds, score_thresholds=config.score_thresholds)


@dataclass(frozen=True)
class PartBytes:
    """Bytes of a part by the rule and in the file, and why they differ if they do."""

    part: str
    by_rule: float
    in_file: int
    reason: str


def beside_the_rule(description: Description, tokenizer_bytes: int) -> list[PartBytes]:
    """Every byte of a packed file in the parts of the rule; after them, what the rule does not count.

    Args:
        description: what the file says of itself; a `PackedModel` is one.
        tokenizer_bytes: of the tokenizer in the file.

    Raises:
        BibertError: the heads do not fill the hidden size; the rule counts no such shape.
    """
    by_rule = size(architecture_of(description.config), PACKED_SCHEME).parts
    in_file = dict.fromkeys(by_rule, 0)
    for spec in tensor_specs(description.config, tokenizer_bytes):
        part = next(part for part, holds in PART_OF_TENSOR.items() if holds(spec.name))
        in_file[part] = in_file.get(part, 0) + spec.nbytes
    in_file[HEADER] = len(encode(description, tokenizer_bytes))
    return [
        PartBytes(part, by_rule.get(part, 0.0), nbytes, REASONS[part] if nbytes != by_rule.get(part, 0.0) else "")
        for part, nbytes in in_file.items()
    ]


def architecture_of(config: PackedConfig) -> Architecture:
    """The shape of a packed file in the words of the rules.

    Raises:
        BibertError: the heads do not fill the hidden size.
    """
    if config.inner != config.hidden:
        raise BibertError(
            f"{config.heads} heads of {config.head_size} do not fill a hidden size of {config.hidden}; the paper's "
            "rules count no such shape, bibert inspect does"
        )
    return Architecture(
        config.layers,
        config.hidden,
        config.heads,
        config.intermediate,
        config.vocabulary,
        config.positions,
        config.token_types,
        config.labels,
    )


def config_of_shape(shape: Architecture, **parts: Any) -> PackedConfig:
    """The packed model of a shape, the inverse of `architecture_of`; `parts` are the optional ones of the file."""
    return PackedConfig(
        layers=shape.layers,
        hidden=shape.hidden,
        heads=shape.heads,
        head_size=shape.hidden // shape.heads,
        intermediate=shape.intermediate,
        vocabulary=shape.vocabulary,
        positions=shape.positions,
        token_types=shape.types,
        labels=shape.labels,
        **parts,
    )
