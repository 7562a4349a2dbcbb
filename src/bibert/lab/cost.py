"""Size and FLOPs of any scheme on any BERT, by the rules of the paper: one rule, one function, one formula.

These are counts on paper: no file is measured and no clock is read. What a rule gives is set beside what the paper
prints in `comparison`. Letters in the formulas: L layers, H hidden, I intermediate, V vocabulary, N tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

from bibert.errors import BibertError, SchemeError
from bibert.lab.architecture import Architecture, count_parameters
from bibert.nn.schemes import Scheme
from bibert.packed.schema import LAYER_SITES

MIB = 2**20  # what the paper's tables call MB
FLOAT_BITS = 32
WORD_BITS = 64  # "a CPU with instruction size of 64-bit"
TOKENS = 128  # the input length behind every FLOPs figure of the paper; its text does not say so
Q_BERT_TABLE_BITS = 8
Q_BERT_GROUPS = 128  # output rows of a matrix that share a range, as many groups as this

Widths = Mapping[str, int]  # bits for each number of a part of `Parameters`; a part that is left out has 0


@dataclass(frozen=True)
class Size:
    """What a model takes by a rule.

    Attributes:
        rule: the name of the rule.
        parts: bytes of each part that the rule counts.
        scale_bytes: float32 scales that a file needs on top; the paper's rules forget them.
    """

    rule: str
    parts: Mapping[str, float]
    scale_bytes: int

    @property
    def mib(self) -> float:
        """The size by the rule, to set beside a printed one."""
        return sum(self.parts.values()) / MIB

    @property
    def mib_with_scales(self) -> float:
        """The size of a file that can really be run."""
        return self.mib + self.scale_bytes / MIB


def size(architecture: Architecture, scheme: Scheme) -> Size:
    """Bytes of every part by the rule that belongs to the scheme, with the scales beside them.

    Raises:
        SchemeError: the scheme keeps a structure in full precision, which no rule of the paper counts.
    """
    _refuse_kept(scheme)
    widths = rule_of(scheme)
    counts = asdict(count_parameters(architecture))
    parts = {part: counts[part] * bits / 8 for part, bits in widths(scheme).items() if bits}
    return Size(widths.__name__, MappingProxyType(parts), 4 * count_scales(architecture, scheme))


def _refuse_kept(scheme: Scheme) -> None:
    if scheme.kept:
        raise SchemeError(
            f"scheme {scheme.name!r} keeps {' and '.join(scheme.kept)} in full precision, which the paper's rules do "
            "not count; leave 'kept' out"
        )


def bits_plus_float(scheme: Scheme) -> Widths:
    """The rule behind the printed 418 and 28.0; `RULES` has it in words.

    bytes = (w·(linears + pooler) + e·word + 32·(position + token_type + biases + layer_norms + classifier)) / 8
    """
    return {
        "word": scheme.bits.embedding,
        "position": FLOAT_BITS,
        "token_type": FLOAT_BITS,
        "linears": scheme.bits.weight,
        "pooler": scheme.bits.weight,
        "biases": FLOAT_BITS,
        "layer_norms": FLOAT_BITS,
        "classifier": FLOAT_BITS,
    }


def q_bert_tables(scheme: Scheme) -> Widths:
    """The rule behind the printed 43.0; `RULES` has it in words.

    bytes = (w·linears + 8·(word + position + token_type)) / 8
    """
    return {
        "word": Q_BERT_TABLE_BITS,
        "position": Q_BERT_TABLE_BITS,
        "token_type": Q_BERT_TABLE_BITS,
        "linears": scheme.bits.weight,
        "pooler": 0,
        "biases": 0,
        "layer_norms": 0,
        "classifier": 0,
    }


def split_twice(scheme: Scheme) -> Widths:
    """BinaryBERT's rule: `bits_plus_float`, but the word embedding and the pooler exist twice.

    Ternary weight splitting makes two binary copies of a model of half width. Blocks come out as large as those of
    the full width; the embedding and the pooler, which keep the hidden size, come out twice as large.
    """
    return {**bits_plus_float(scheme), "word": 2 * scheme.bits.embedding, "pooler": 2 * scheme.bits.weight}


RULE_OF_SCHEME: Mapping[str, Callable[[Scheme], Widths]] = MappingProxyType(
    {"q_bert": q_bert_tables, "q2bert": q_bert_tables}
)


def rule_of(scheme: Scheme) -> Callable[[Scheme], Widths]:
    """The size rule of a scheme: BinaryBERT's for a split one, Q-BERT's for its two rows, else the general one."""
    if scheme.split:
        return split_twice
    return RULE_OF_SCHEME.get(scheme.name, bits_plus_float)


def _per_matrix(architecture: Architecture) -> int:
    return 6 * architecture.layers + 1


# How many float32 numbers a quantizer keeps for all linear weights, and how many for a row of the word embedding.
WEIGHT_SCALES: Mapping[str, Callable[[Architecture], int]] = MappingProxyType(
    {
        "none": lambda architecture: 0,  # noqa: ARG005
        "sign": lambda architecture: count_parameters(architecture).biases,  # an output row has one bias, one alpha
        "bwn": _per_matrix,
        "twn": _per_matrix,
        "symmetric": _per_matrix,
        "group_affine": lambda architecture: 2 * Q_BERT_GROUPS * _per_matrix(architecture),  # a step and an offset
    }
)
EMBEDDING_SCALES: Mapping[str, int] = MappingProxyType(
    {"none": 0, "sign": 1, "bwn": 1, "twn": 1, "symmetric": 1, "affine": 2}
)


def count_scales(architecture: Architecture, scheme: Scheme) -> int:
    """Scales and thresholds a file must hold: for BiBERT one alpha per output row and per token, L(5H + I) + H + V."""
    for table, name in ((WEIGHT_SCALES, scheme.weight), (EMBEDDING_SCALES, scheme.embedding)):
        if name not in table:
            raise SchemeError(
                f"scheme {scheme.name!r}: nothing says how many scales {name!r} has; add it to analysis.cost"
            )
    copies = 2 if scheme.split else 1
    rows = EMBEDDING_SCALES[scheme.embedding] * architecture.vocabulary
    scales = copies * (WEIGHT_SCALES[scheme.weight](architecture) + rows)
    return scales + count_thresholds(architecture, scheme)


def count_thresholds(architecture: Architecture, scheme: Scheme) -> int:
    """Learned thresholds: one per channel at the sites of the scheme, one per head for scores."""
    in_a_layer = [site for site in scheme.thresholds if site in LAYER_SITES]
    channels = sum(architecture.intermediate if site == "ffn_hidden" else architecture.hidden for site in in_a_layer)
    heads = architecture.heads if scheme.score_thresholds else 0
    pooler = architecture.hidden if "pooler_input" in scheme.thresholds else 0
    return architecture.layers * (channels + heads) + pooler


@dataclass(frozen=True)
class Flops:
    """FLOPs of one input, part by part.

    Attributes:
        linears: products of the blocks' weights.
        pooler: the pooler's product, for one token.
        scores: queries with keys.
        context: attention weights with values.
        elementwise: float work around the products: scales, biases, residuals, LayerNorm, GELU, softmax.
        threshold: what the paper adds for an attention threshold found at run time; not part of its Table 2.
    """

    linears: float
    pooler: float
    scores: float
    context: float
    elementwise: float
    threshold: float

    @property
    def products(self) -> float:
        """The matrix products alone."""
        return self.linears + self.pooler + self.scores + self.context

    @property
    def total(self) -> float:
        """Products and elementwise work, to set beside the FLOPs column of Table 2."""
        return self.products + self.elementwise


def flops(architecture: Architecture, scheme: Scheme, tokens: int = TOKENS) -> Flops:
    """FLOPs of one input of `tokens` tokens, all of them real.

    MACs: linears N·L(4H² + 2HI), pooler H² (twice if split), scores and context L·N²·H each. The embedding is a
    look-up and the classifier is left out (2·H·labels, under 10⁻⁵ of the rest).

    Raises:
        BibertError: `tokens` is below 1 or above the positions of the architecture.
        SchemeError: the scheme keeps a structure in full precision.
    """
    _refuse_kept(scheme)
    if not 1 <= tokens <= architecture.positions:
        raise BibertError(f"tokens is {tokens}, but this architecture takes from 1 to {architecture.positions}")
    counts = count_parameters(architecture)
    weight, activation = scheme.bits.weight, scheme.bits.activation
    attention = product_flops(architecture.layers * tokens**2 * architecture.hidden, activation, activation)
    return Flops(
        linears=product_flops(tokens * counts.linears, weight, activation),
        pooler=product_flops(counts.pooler * (2 if scheme.split else 1), weight, activation),
        scores=attention,
        context=attention,
        elementwise=elementwise_flops(architecture, scheme, tokens),
        threshold=threshold_flops(architecture, scheme, tokens),
    )


def product_flops(macs: int, left_bits: int, right_bits: int) -> float:
    """FLOPs of `macs` multiply-adds of numbers of m and n bits: 2·macs·min(1, m·n / 64).

    The paper charges m·n / 64 per multiplication of low-bit numbers. Its printed figures need the factor 2, and
    the float row is charged 2 per MAC, not the 16 per multiplication that m·n / 64 would make of it: hence the min.
    """
    return 2 * macs * min(1.0, left_bits * right_bits / WORD_BITS)


# FLOPs for each element, by the convention of ELECTRA's published counter. Comparisons are free: so is a sign.
LAYER_NORM_FLOPS = 5  # two sums, a square, gain, bias
SOFTMAX_FLOPS = 5
SCORE_SCALE_FLOPS = 1  # 1/√D
FFN_ACTIVATION_FLOPS: Mapping[str, int] = MappingProxyType({"gelu": 8, "relu": 0, "linear": 0})
# What a quantizer of activations computes at run time for each element.
QUANTIZER_FLOPS: Mapping[str, int] = MappingProxyType(
    {
        "none": 0,
        "sign": 0,
        "bool": 0,
        "bwn": 2,  # |a| and its sum
        "twn": 3,  # |a|, its sum, the sum of what is kept
        "symmetric": 3,  # |a|, times 1/step, round
        "ema_symmetric": 2,  # times 1/step, round
        "affine": 3,  # minus low, times 1/step, round
        "lsq": 2,
        "lsq_unsigned": 2,
        "asym": 0,  # the paper's charge for these three is `threshold_flops`
        "mean": 0,
        "quantile": 0,
    }
)


def elementwise_flops(architecture: Architecture, scheme: Scheme, tokens: int = TOKENS) -> float:
    """Float work on single numbers; the paper does not say what it counts, this is our count.

    N·L·(2(5H + I) + 2H + 2·5H + 8I) for scale and bias, residuals, LayerNorms and GELU (1 instead of 2 for the
    biases of a float model), L·heads·N²·(5 + 1) for a softmax, plus what activation quantizers measure at run time
    and the embedding's sum, scale and LayerNorm. BERT base at 1-1-1: 0.074 G without softmax, 0.088 G with it.
    """
    hidden, intermediate = architecture.hidden, architecture.intermediate
    scale = 1 if scheme.is_quantized else 0
    per_token = (scale + 1) * (5 * hidden + intermediate) + 2 * hidden + 2 * LAYER_NORM_FLOPS * hidden
    per_token += FFN_ACTIVATION_FLOPS[scheme.ffn_activation] * intermediate
    per_token += QUANTIZER_FLOPS[scheme.activation] * 6 * hidden  # inputs of q/k/v, output, FFN; queries, keys, values
    per_token += QUANTIZER_FLOPS[scheme.ffn_input or scheme.activation] * intermediate
    per_weight = QUANTIZER_FLOPS[scheme.attention]
    per_weight += SOFTMAX_FLOPS + SCORE_SCALE_FLOPS if scheme.normalizer == "softmax" else 0
    embedding = tokens * hidden * (2 + scale + LAYER_NORM_FLOPS)  # three tables, two sums
    attention = architecture.heads * tokens**2 * per_weight
    return float(embedding + architecture.layers * (tokens * per_token + attention))


THRESHOLDS_AT_RUN_TIME = ("asym", "mean", "quantile")


def threshold_flops(architecture: Architecture, scheme: Scheme, tokens: int = TOKENS) -> float:
    """The paper's extra charge for asym, μ and quantile thresholds: L·N²·H·32/64.

    Its 0.074 to 0.076 G are the product of attention weights and values charged as 32 bits by 1 bit, at one FLOP
    per MAC (0.0755 G). That holds for asym, whose two values are floats; the weights of μ and 50 % are bits.
    """
    if scheme.attention not in THRESHOLDS_AT_RUN_TIME:
        return 0.0
    return architecture.layers * tokens**2 * architecture.hidden * FLOAT_BITS / WORD_BITS


# Each rule in words, by the name of its function.
RULES: Mapping[str, str] = MappingProxyType(
    {
        bits_plus_float.__name__: (
            "quantized parts at their bits (linears and pooler at W, the word embedding at E of W-E-A), the rest in "
            "float32"
        ),
        q_bert_tables.__name__: "linears at W bits, all three embeddings at 8, nothing else",
        split_twice.__name__: "the word embedding and the pooler twice, the rest as in bits_plus_float",
        flops.__name__: (
            "2 per multiply-add, times m*n/64 for operands of m and n bits, plus float work on single numbers"
        ),
        threshold_flops.__name__: (
            "L*N*N*H*32/64 for a threshold found at run time, on top of flops: attention weights of 32 bits times "
            "values of 1 bit, one FLOP per multiply-add"
        ),
    }
)


def readings_of_13_4(architecture: Architecture, scheme: Scheme) -> Mapping[str, float]:
    """Ways to arrive at the printed 13.4 MB, in MiB; each leaves out something that the paper keeps in float.

    All start from the bits of word embedding, linears and pooler: bytes = (word + linears + pooler) / 8.
    """
    counts = count_parameters(architecture)
    bits = (counts.word + counts.linears + counts.pooler) / 8
    tables = counts.position + counts.token_type
    return {
        "bits alone": bits / MIB,
        "bits, position and type tables at 8 bits": (bits + tables) / MIB,
        "bits and row scales": (bits + 4 * count_scales(architecture, scheme)) / MIB,
        "bits, tables at 1 bit, biases in float32": (bits + tables / 8 + 4 * counts.biases) / MIB,
    }
