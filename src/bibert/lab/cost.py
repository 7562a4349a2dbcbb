"""Size and FLOPs of a scheme on a shape, by the rules that reproduce the paper's figures, beside the printed ones.

These are counts on paper: no file is measured, no clock is read. cost.toml has the rules in words and what each
quantizer costs; the printed figures, and why some differ from ours, are in `paper`.
Letters in the formulas: L layers, H hidden, I intermediate, V vocabulary, N tokens.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from importlib import resources
from typing import Any

from bibert.errors import BibertError, SchemeError
from bibert.lab.architecture import ARCHITECTURES, count_parameters, name_of
from bibert.lab.paper import REASONS, STRENGTHENED, TABLE_2, PaperTable
from bibert.nn.schemes import SCHEMES, Scheme
from bibert.packed.schema import LAYER_SITES, SITES, PackedConfig

MIB = 2**20  # what the paper's tables call MB
GIGA = 10**9
FLOAT_BITS = 32
WORD_BITS = 64  # "a CPU with instruction size of 64-bit"
TOKENS = 128  # the input length of all FLOPs in the paper, found from its figures; the text does not state it

# FLOPs per element, by the convention of ELECTRA's published counter; those of activations and quantizers are below.
LAYER_NORM_FLOPS = 5  # two sums, a square, gain, bias
SOFTMAX_FLOPS = 5 + 1  # and the scale 1/√D of the scores

_DATA: dict[str, Any] = tomllib.loads(resources.files(__package__).joinpath("cost.toml").read_text(encoding="utf-8"))
RULES: Mapping[str, str] = _DATA["rules"]
WEIGHT_SCALES: Mapping[str, int] = _DATA["weight_scales"]
EMBEDDING_SCALES: Mapping[str, int] = _DATA["embedding_scales"]
FFN_ACTIVATION_FLOPS: Mapping[str, int] = _DATA["ffn_activation_flops"]
QUANTIZER_FLOPS: Mapping[str, int] = _DATA["quantizer_flops"]
PARTS: Mapping[str, Mapping[str, str]] = _DATA["parts"]
# The columns of costs and where the paper prints them; Table 3 repeats those of Table 2.
PRINTED_IN: Mapping[str, PaperTable] = {"size": TABLE_2, "flops": TABLE_2, "extra_flops": STRENGTHENED}


@dataclass(frozen=True)
class Size:
    """The size of a model by a rule."""

    rule: str
    parts: Mapping[str, float]  # bytes of each part that the rule counts
    scale_bytes: int  # float32 scales that a file needs too; the paper's rules leave them out

    @property
    def mib(self) -> float:
        """The size by the rule, comparable to a printed one."""
        return sum(self.parts.values()) / MIB

    @property
    def mib_with_scales(self) -> float:
        """The size of a file that can be run."""
        return self.mib + self.scale_bytes / MIB


def size(shape: PackedConfig, scheme: Scheme) -> Size:
    """Bytes of every part by the rule of the scheme; raises BibertError for what the paper's rules do not cover.

    BinaryBERT's ternary weight splitting makes two binary copies of a model of half width. Its blocks are as large as
    those of the full width; the word embedding and the pooler keep the hidden size and are twice as large.
    """
    _check_covered(shape, scheme)
    weight, embedding, copies = scheme.bits.weight, scheme.bits.embedding, 2 if scheme.split else 1
    if scheme.name in ("q_bert", "q2bert"):
        rule, widths = "q_bert_tables", {"word": 8, "position": 8, "token_type": 8, "linears": weight}
    else:
        rule = "split_twice" if scheme.split else "bits_plus_float"
        widths = {"word": copies * embedding, "position": FLOAT_BITS, "token_type": FLOAT_BITS}
        widths |= {"linears": weight, "pooler": copies * weight}
        widths |= dict.fromkeys(("biases", "layer_norms", "classifier"), FLOAT_BITS)
    counts = count_parameters(shape)
    return Size(rule, {part: counts[part] * bits / 8 for part, bits in widths.items()}, 4 * count_scales(shape, scheme))


def _check_covered(shape: PackedConfig, scheme: Scheme) -> None:
    if scheme.kept:
        kept = f"{' and '.join(scheme.kept)} in full precision, which the paper's rules do not cover"
        raise SchemeError(f"scheme {scheme.name!r} keeps {kept}; leave 'kept' out")
    if shape.inner != shape.hidden:
        raise BibertError(
            f"{shape.heads} heads of {shape.head_size} do not fill a hidden size of {shape.hidden}; the paper's rules "
            "do not cover a half-width student: give the config of its teacher, or use bibert inspect"
        )


def count_scales(shape: PackedConfig, scheme: Scheme) -> int:
    """Scales and thresholds of a runnable file; for BiBERT one alpha per output row and token, L(5H + I) + H + V."""
    if scheme.weight == "sign":
        weights = count_parameters(shape)["biases"]  # an output row has one bias and one alpha
    else:
        weights = WEIGHT_SCALES[scheme.weight] * (6 * shape.layers + 1)
    tokens = EMBEDDING_SCALES[scheme.embedding] * shape.vocabulary
    return (2 if scheme.split else 1) * (weights + tokens) + count_thresholds(shape, scheme)


def count_thresholds(shape: PackedConfig, scheme: Scheme) -> int:
    """Learned thresholds: one per channel at the sites of the scheme, one per head for scores.

    Levels have them at every site, one rate per site, the step of the values and the limits of the attention weights.
    """
    levels = scheme.attention_bits > 0
    sites = SITES if levels else scheme.thresholds
    channels = sum(
        shape.intermediate if site == "ffn_hidden" else shape.hidden for site in sites if site in LAYER_SITES
    )
    per_head = 2**scheme.attention_bits - 1 if levels else int(scheme.score_thresholds)
    single = len(LAYER_SITES) + 1 if levels else 0  # rates and the step of the values
    pooler = shape.hidden + int(levels) if "pooler_input" in sites else 0
    return shape.layers * (channels + shape.heads * per_head + single) + pooler


@dataclass(frozen=True)
class Flops:
    """FLOPs of one input."""

    linears: float  # products of the blocks' weights
    pooler: float  # for one token
    scores: float  # queries with keys
    context: float  # attention weights with values
    elementwise: float  # scales, biases, residuals, LayerNorm, GELU, softmax
    threshold: float  # the paper's extra charge for an attention threshold found at run time; not in its Table 2

    @property
    def products(self) -> float:
        """The matrix products alone."""
        return self.linears + self.pooler + self.scores + self.context

    @property
    def total(self) -> float:
        """Products and elementwise work, comparable to the FLOPs column of Table 2."""
        return self.products + self.elementwise


def flops(shape: PackedConfig, scheme: Scheme, tokens: int = TOKENS) -> Flops:
    """FLOPs of one input of `tokens` tokens without padding; raises BibertError as `size` and `check_tokens` do.

    MACs: linears N·L(4H² + 2HI), pooler H² (twice if split), scores and context L·N²·H each. The embedding is a
    look-up; the classifier, 2·H·labels, is left out (under 10⁻⁵ of the rest).
    """
    _check_covered(shape, scheme)
    check_tokens(shape, tokens)
    counts, weight, activation = count_parameters(shape), scheme.bits.weight, scheme.bits.activation
    heads = scheme.attention_bits or activation
    attention = product_flops(shape.layers * tokens**2 * shape.hidden, heads, heads)
    return Flops(
        linears=product_flops(tokens * counts["linears"], weight, activation),
        pooler=product_flops(counts["pooler"] * (2 if scheme.split else 1), weight, activation),
        scores=attention,
        context=attention,
        elementwise=elementwise_flops(shape, scheme, tokens),
        threshold=threshold_flops(shape, scheme, tokens),
    )


def check_tokens(shape: PackedConfig, tokens: int) -> None:
    """Raise BibertError for a length that the position table does not cover."""
    if not 1 <= tokens <= shape.positions:
        raise BibertError(f"tokens is {tokens}, must be from 1 to {shape.positions}, the positions of the model")


def product_flops(macs: int, left_bits: int, right_bits: int) -> float:
    """FLOPs of `macs` multiply-adds of numbers of m and n bits: 2·macs·min(1, m·n / 64).

    The paper charges m·n / 64 per multiplication of low-bit numbers. Its figures need the factor 2, and it charges
    2 per MAC for floats, not the 16 per multiplication of m·n / 64; hence the minimum.
    """
    return 2 * macs * min(1.0, left_bits * right_bits / WORD_BITS)


def elementwise_flops(shape: PackedConfig, scheme: Scheme, tokens: int = TOKENS) -> float:
    """Float work on single numbers. The paper does not say what it counts; this is our count.

    N·L·(2(5H + I) + 2H + 2·5H + 8I) for scale and bias, residuals, LayerNorms and GELU (5H + I once for a float model,
    which has no scales), L·heads·N²·(5 + 1) for a softmax, plus the run-time work of activation quantizers and the sum,
    scale and LayerNorm of the embedding. BERT base at 1-1-1: 0.074 G without softmax, 0.088 G with it.
    """
    hidden, intermediate = shape.hidden, shape.intermediate
    scale = 1 if scheme.is_quantized else 0
    per_token = (scale + 1) * (5 * hidden + intermediate) + 2 * hidden + 2 * LAYER_NORM_FLOPS * hidden
    per_token += FFN_ACTIVATION_FLOPS[scheme.ffn_activation] * intermediate
    per_token += QUANTIZER_FLOPS[scheme.activation] * 6 * hidden  # inputs of q/k/v, output, FFN; queries, keys, values
    per_token += QUANTIZER_FLOPS[scheme.ffn_hidden or scheme.activation] * intermediate
    per_weight = QUANTIZER_FLOPS[scheme.attention]
    if scheme.normalizer == "softmax" and scheme.attention != "levels":  # levels compare integers instead
        per_weight += SOFTMAX_FLOPS
    embedding = tokens * hidden * (2 + scale + LAYER_NORM_FLOPS)  # three tables, two sums
    attention = shape.heads * tokens**2 * per_weight
    return float(embedding + shape.layers * (tokens * per_token + attention))


def threshold_flops(shape: PackedConfig, scheme: Scheme, tokens: int = TOKENS) -> float:
    """The paper's extra charge for asym, μ and quantile thresholds: L·N²·H·32/64.

    Its 0.074 to 0.076 G are the product of attention weights and values charged as 32 bits by 1 bit, at one FLOP per
    MAC (0.0755 G). That holds for asym, whose two values are floats; the weights of μ and 50 % are bits.
    """
    if scheme.attention not in ("asym", "mean", "quantile"):
        return 0.0
    return shape.layers * tokens**2 * shape.hidden * FLOAT_BITS / WORD_BITS


class Verdict(StrEnum):
    """How close a rule comes to a printed figure."""

    EQUAL = "="  # rounds to it
    CLOSE = "~"  # within one unit of its last digit
    DIFFERENT = "!="


@dataclass(frozen=True)
class Figure:
    """A number in MiB or G by one of our rules, and the paper's, if it prints one."""

    column: str  # of `PRINTED_IN`
    rule: str  # of `RULES`
    ours: float
    printed: Decimal | None = None
    reason: str = ""  # why the two differ

    @property
    def verdict(self) -> Verdict | None:
        """How close ours comes; None if nothing is printed."""
        if self.printed is None:
            return None
        unit = Decimal(1).scaleb(int(self.printed.as_tuple().exponent))
        exact = Decimal(self.ours)
        if exact.quantize(unit) == self.printed:
            return Verdict.EQUAL
        return Verdict.CLOSE if abs(exact - self.printed) <= unit else Verdict.DIFFERENT

    def to_dict(self) -> dict[str, Any] | None:
        """Plain values of a printed figure, for JSON."""
        if self.printed is None or self.verdict is None:
            return None
        verdict = self.verdict.name.lower()
        return {"printed": float(self.printed), "ours": self.ours, "verdict": verdict, "reason": self.reason}


@dataclass(frozen=True)
class Cost:
    """Size and FLOPs of a scheme on a shape by the rules, and the figure of each column of `PRINTED_IN`."""

    scheme: Scheme
    size: Size
    flops: Flops
    figures: Mapping[str, Figure]

    @property
    def reasons(self) -> list[str]:
        """Why printed figures of the scheme cannot be reproduced."""
        return [figure.reason for figure in self.figures.values() if figure.reason]


def cost_of(shape: PackedConfig, scheme: Scheme, tokens: int = TOKENS) -> Cost:
    """Size and FLOPs of a scheme on a shape, with every figure that the paper prints; its FLOPs are of 128 tokens."""
    bytes_, work, architecture = size(shape, scheme), flops(shape, scheme, tokens), name_of(shape) or ""
    ours_by_column = {
        "size": (bytes_.rule, bytes_.mib),
        "flops": ("flops", work.total / GIGA),
        "extra_flops": ("threshold_flops", work.threshold / GIGA),
    }
    figures = {}
    for column, (rule, ours) in ours_by_column.items():
        row = PRINTED_IN[column].row(scheme.name, architecture) if column == "size" or tokens == TOKENS else None
        printed = getattr(row, column, None)
        reason = "" if printed is None else REASONS.get((column, architecture, scheme.name), "")
        figures[column] = Figure(column, rule, ours, printed, reason)
    return Cost(scheme, bytes_, work, figures)


def schemes_by_figure(shape: PackedConfig, printed: bool = False) -> dict[Figure, list[str]]:
    """The figures of all schemes on a shape, or those that the paper prints, each with the schemes that share it."""
    costs = [cost_of(shape, scheme, min(TOKENS, shape.positions)) for scheme in SCHEMES.values()]
    found: dict[Figure, list[str]] = {}
    for column in PRINTED_IN:
        for cost in costs:
            figure = cost.figures[column]
            if figure.printed is not None or (figure.ours and not printed):
                found.setdefault(figure, []).append(cost.scheme.name)
    return found


def readings_of_13_4() -> dict[str, float]:
    """Ways to arrive at the printed 13.4 MB, in MiB; each leaves out something that the paper keeps in float.

    All start from the bits of word embedding, linears and pooler: bytes = (word + linears + pooler) / 8.
    """
    shape, scheme = ARCHITECTURES["bert-base"], SCHEMES["bibert"]
    counts = count_parameters(shape)
    bits = (counts["word"] + counts["linears"] + counts["pooler"]) / 8
    tables = counts["position"] + counts["token_type"]
    return {
        "bits alone": bits / MIB,
        "bits, position and type tables at 8 bits": (bits + tables) / MIB,
        "bits and row scales": (bits + 4 * count_scales(shape, scheme)) / MIB,
        "bits, tables at 1 bit, biases in float32": (bits + tables / 8 + 4 * counts["biases"]) / MIB,
    }
