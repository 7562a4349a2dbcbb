"""Schemes: every row of the paper's tables as one line of data.

A scheme says how each tensor of the network is quantized and by which losses it is trained. The names of
quantizers are keys of the tables in `quantizers`; the names of loss terms are keys of `distill.objective.TERMS`.
Nothing here computes and nothing here needs torch: a new rival is a new row. Which values go together is checked in
`scheme_checks`.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from bibert.errors import SchemeError, did_you_mean
from bibert.nn.scheme_checks import check
from bibert.packed.schema import SITES


@dataclass(frozen=True)
class Bits:
    """The paper's W-E-A notation: bits of weights, word embedding and activations."""

    weight: int
    embedding: int
    activation: int

    def __str__(self) -> str:
        return f"{self.weight}-{self.embedding}-{self.activation}"


@dataclass(frozen=True)
class Stage:
    """One training run of a schedule: which loss terms, at which share of the recipe's learning rate."""

    name: str
    terms: Mapping[str, float]
    learning_rate_factor: float = 1.0
    half_width_ternary: bool = False  # BinaryBERT's first student; the later stages train its split


STRUCTURES = ("mha", "intermediate", "output", "pooler", "embedding")  # the paper's Section 3.1 looks at each
LABELS_ONLY = (Stage("labels", {"gold": 1.0}),)
VANILLA = (Stage("vanilla", {"attention": 1.0, "mha": 1.0, "hidden": 1.0, "prediction": 1.0}),)
DMD = (
    Stage(
        "dmd",
        {"dmd_query": 1.0, "dmd_key": 1.0, "dmd_value": 1.0, "hidden_direction": 1.0, "prediction": 1.0},
    ),
)
TERNARY = (Stage("ternary", {"attention": 1.0, "hidden": 1.0, "prediction": 1.0}),)
TWO_STAGES_TWICE = (
    Stage("ternary-layers", {"attention": 1.0, "hidden": 1.0}, 2.5, half_width_ternary=True),
    Stage("ternary-logits", {"prediction": 1.0}, half_width_ternary=True),
    Stage("split-layers", {"attention": 1.0, "hidden": 1.0}, 2.5),
    Stage("split-logits", {"prediction": 1.0}),
)


@dataclass(frozen=True)
class Scheme:
    """How a BERT is quantized and trained.

    Attributes:
        weight: quantizer of every linear weight in the encoder and the pooler.
        embedding: quantizer of the word embedding, one scale per token.
        activation: quantizer of the input of every linear layer and of queries, keys and values.
        ffn_input: quantizer in front of the second FFN layer, where it differs from `activation`.
        normalizer: what turns attention scores into attention weights: `softmax`, or `none` (Bi-Attention).
        attention: quantizer of the attention weights.
        quantile: the share of zero attention weights that `attention="quantile"` asks for.
        ffn_activation: `gelu`, or what the checkpoint has in its place; `relu`, whatever the checkpoint has.
        split: every quantized weight is the sum of two binary ones (BinaryBERT).
        thresholds: where the sign has a learned threshold per channel in front of it, of `packed.schema.SITES`.
        score_thresholds: whether Bi-Attention has a learned threshold per head.
        gain: a learned factor of the scale of every weight: `none`, one per `layer`, or one per output `row`.
        scaled_context: whether the gradient window of the context's sign grows with the root of the attended keys.
        kept: which of `STRUCTURES` stay in full precision, to see what binarizing them costs.
        schedule: the training runs, in order; at least one.
    """

    name: str
    bits: Bits
    weight: str = "none"
    embedding: str = "none"
    activation: str = "none"
    ffn_input: str = ""
    normalizer: str = "softmax"
    attention: str = "none"
    quantile: float | None = None
    ffn_activation: str = "gelu"
    split: bool = False
    thresholds: tuple[str, ...] = ()
    score_thresholds: bool = False
    gain: str = "none"
    scaled_context: bool = False
    kept: tuple[str, ...] = ()
    schedule: tuple[Stage, ...] = LABELS_ONLY

    def __post_init__(self) -> None:
        self._check_kept()
        for site in self.thresholds:
            if site not in SITES:
                raise SchemeError(
                    f"scheme {self.name!r}: no threshold can stand at {site!r}; {did_you_mean(site, SITES)}"
                )
        check(self)

    def _check_kept(self) -> None:
        for structure in self.kept:
            if structure not in STRUCTURES:
                raise SchemeError(
                    f"scheme {self.name!r}: there is no structure {structure!r} to keep; "
                    f"{did_you_mean(structure, STRUCTURES)}"
                )
        if self.kept and self.split:
            raise SchemeError(
                f"scheme {self.name!r}: a split student has half of the teacher's width, so it cannot keep "
                f"{self.kept[0]!r} as it is; keep it in a scheme without split weights"
            )

    @property
    def is_quantized(self) -> bool:
        """Whether any part has fewer than 32 bits."""
        return self.bits != FULL_BITS

    @property
    def is_binarized(self) -> bool:
        """Whether every activation is a bit."""
        return self.bits.activation == 1 and not self.kept

    @property
    def ffn_quantizer(self) -> str:
        """The quantizer in front of the second FFN layer; a sign takes the GELU before it into its gradient."""
        name = self.ffn_input or self.activation
        return "gelu_sign" if name == "sign" and self.ffn_activation == "gelu" else name

    def part(self, structure: str) -> "Scheme":
        """What one of `STRUCTURES` is quantized by: this scheme, or `full_precision` if it is kept."""
        return SCHEMES["full_precision"] if structure in self.kept else self

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for config.json."""
        return asdict(replace(self, schedule=tuple(_with_plain_terms(stage) for stage in self.schedule)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Scheme":
        """The inverse of `to_dict`; unknown keys are refused."""
        known = {field.name for field in fields(cls)}
        for key in values:
            if key not in known:
                raise SchemeError(f"scheme has no field {key!r}; {did_you_mean(key, sorted(known))}")
        plain = dict(values)
        plain["bits"] = Bits(**plain["bits"])
        plain |= {name: tuple(plain.get(name, ())) for name in CHOICES}
        plain["schedule"] = tuple(Stage(**stage) for stage in plain.get("schedule", ()))
        return cls(**plain)


def _with_plain_terms(stage: Stage) -> Stage:
    return replace(stage, terms=dict(stage.terms))


CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType({"thresholds": SITES, "kept": STRUCTURES})  # some of many
FULL_BITS = Bits(32, 32, 32)
ONE_BIT = Bits(1, 1, 1)


def _fully_binarized(name: str, *, schedule: tuple[Stage, ...], **attention: Any) -> Scheme:
    """The paper's Section 2: bi-linear layers and signs everywhere; rows differ in attention and losses."""
    return Scheme(name, ONE_BIT, weight="sign", embedding="sign", activation="sign", schedule=schedule, **attention)


def _ternarybert(activation_bits: int, activation: str) -> Scheme:
    bits = Bits(2, 2, activation_bits)
    return Scheme(
        f"ternarybert_{bits}",
        bits,
        weight="twn",
        embedding="twn",
        activation=activation,
        attention=activation,
        schedule=TERNARY,
    )


def _binarybert(name: str, activation_bits: int, activation: str, **changes: Any) -> Scheme:
    scheme = Scheme(
        name,
        Bits(1, 1, activation_bits),
        weight="bwn",
        embedding="bwn",
        activation=activation,
        attention=activation,
        split=True,
        schedule=TWO_STAGES_TWICE,
    )
    return replace(scheme, **changes)


_ROWS = (
    Scheme("full_precision", FULL_BITS),
    # Table 1 and Section 2 to 3: the baseline, its two ablations, and BiBERT.
    _fully_binarized("baseline", attention="sign", schedule=VANILLA),
    _fully_binarized("baseline+bi_attention", normalizer="none", attention="bool", schedule=VANILLA),
    _fully_binarized("baseline+dmd", attention="sign", schedule=DMD),
    _fully_binarized("bibert", normalizer="none", attention="bool", schedule=DMD),
    _fully_binarized(
        "bibert_plus",
        normalizer="none",
        attention="bool",
        ffn_input="bool",
        ffn_activation="linear",
        thresholds=SITES,
        score_thresholds=True,
        gain="row",
        scaled_context=True,
        schedule=DMD,
    ),
    # Its assistant, which learns first and then teaches: ternary inputs of the linear layers, the rest alike.
    Scheme(
        "bibert_plus_1-1-2",
        Bits(1, 1, 2),
        weight="sign",
        embedding="sign",
        activation="twn",
        normalizer="none",
        attention="bool",
        score_thresholds=True,
        gain="row",
        schedule=DMD,
    ),
    # Appendix, "Solutions of Attention Weight".
    _fully_binarized("baseline_asym", attention="asym", schedule=VANILLA),
    _fully_binarized("baseline_mu", attention="mean", schedule=VANILLA),
    _fully_binarized("baseline_50", attention="quantile", quantile=0.5, schedule=VANILLA),
    # Appendix, "Variants of Binarized Attention Mechanism"; the fourth variant is `bibert` under another name.
    _fully_binarized("attention_sign", attention="sign", schedule=DMD),
    _fully_binarized("attention_bool", attention="bool", schedule=DMD),
    _fully_binarized("attention_sign_max_entropy", normalizer="none", attention="sign", schedule=DMD),
    _fully_binarized("attention_bool_max_entropy", normalizer="none", attention="bool", schedule=DMD),
    # Table 2, the rivals.
    Scheme("q_bert", Bits(2, 8, 8), weight="group_affine", embedding="affine", activation="affine", attention="affine"),
    Scheme(
        "q2bert",
        Bits(2, 8, 8),
        weight="symmetric",
        embedding="symmetric",
        activation="ema_symmetric",
        attention="ema_symmetric",
    ),
    _ternarybert(8, "symmetric"),
    _ternarybert(2, "twn"),
    _ternarybert(1, "bwn"),
    _binarybert(
        "binarybert_1-1-4",
        4,
        "lsq",
        attention="lsq_unsigned",
        ffn_input="lsq_unsigned",
        ffn_activation="relu",
    ),
    _binarybert("binarybert_1-1-2", 2, "twn"),
    _binarybert("binarybert_1-1-1", 1, "bwn"),
    _binarybert("binarybert_50", 1, "bwn", attention="quantile", quantile=0.5),
)

SCHEMES: Mapping[str, Scheme] = MappingProxyType({row.name: row for row in _ROWS})
QUANTILE_NAME = re.compile(r"baseline_quantile\((\d+(?:\.\d+)?)\)")
VARIANT_NAME = re.compile(r"(?P<row>[^()]+)\((?P<changes>[^()=]+=[^()]*)\)")


def baseline_quantile(percent: float) -> Scheme:
    """The baseline with a threshold that sets `percent` % of the attention weights to zero."""
    return replace(SCHEMES["baseline_50"], name=f"baseline_quantile({percent:g})", quantile=percent / 100)


def get_scheme(name: str) -> Scheme:
    """The row called `name`; `baseline_quantile(p)` works for any percentage p.

    A row with some fields changed is written `bibert(gain=row,thresholds=context+value)` or `baseline(kept=mha)`; a
    row whose schedule leaves a loss term out, `baseline(without=attention)`. The bits are those of the row: a quantizer
    that has others is refused.

    Raises:
        SchemeError: there is no such row, field or value, or the values contradict each other; the message lists what
            is allowed.
    """
    if match := QUANTILE_NAME.fullmatch(name):
        return baseline_quantile(float(match[1]))
    if match := VARIANT_NAME.fullmatch(name):
        return _variant(name, get_scheme(match["row"]), match["changes"])
    if name not in SCHEMES:
        raise SchemeError(f"there is no scheme {name!r}; {did_you_mean(name, SCHEMES)} (bibert schemes lists them)")
    return SCHEMES[name]


def _variant(name: str, row: Scheme, changes: str) -> Scheme:
    """`row` under a new name, with the fields changed that are written as `key=value,key=value`."""
    values: dict[str, Any] = {}
    for change in changes.split(","):
        key, _, text = (part.strip() for part in change.partition("="))
        if key == "without":
            values["schedule"] = _without(name, values.get("schedule", row.schedule), _words(text))
        else:
            values[key] = _read(name, row, key, text)
    return replace(row, **{**values, "name": name})


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split("+") if word.strip()]


def _read(name: str, row: Scheme, key: str, text: str) -> Any:
    """The value of a field as it is written in the name of a variant: a word, true or false, or names with a plus."""
    kinds = {field.name: type(getattr(row, field.name)) for field in fields(row) if field.name != "name"}
    if key in CHOICES:
        order, words = CHOICES[key], dict.fromkeys(_words(text))
        return tuple(sorted(words, key=lambda word: order.index(word) if word in order else len(order)))
    if kinds.get(key) is bool:
        if text not in ("true", "false"):
            raise SchemeError(f"scheme {name!r}: {key} is {text!r}, must be true or false")
        return text == "true"
    if kinds.get(key) is not str:
        known = ["without", *CHOICES, *(field for field, kind in kinds.items() if kind in (str, bool))]
        raise SchemeError(f"scheme {name!r}: {key!r} is not a field to change; {did_you_mean(key, known)}")
    return text


def _without(name: str, schedule: tuple[Stage, ...], terms: list[str]) -> tuple[Stage, ...]:
    """A schedule that leaves some loss terms out."""
    known = list(dict.fromkeys(term for stage in schedule for term in stage.terms))
    if not terms:
        raise SchemeError(f"scheme {name!r}: says without what? {did_you_mean('', known)}")
    for term in terms:
        if term not in known:
            raise SchemeError(f"scheme {name!r}: no stage has the term {term!r}; {did_you_mean(term, known)}")
    left = [replace(stage, terms={k: v for k, v in stage.terms.items() if k not in terms}) for stage in schedule]
    for stage in left:
        if not stage.terms:
            raise SchemeError(f"scheme {name!r}: nothing is left to learn from in the stage {stage.name!r}")
    return tuple(left)


def half_width_ternary(scheme: Scheme) -> Scheme:
    """The ternary student that BinaryBERT trains first and then splits into `scheme`."""
    if not scheme.split:
        raise SchemeError(f"scheme {scheme.name!r} is not split, so it has no ternary first student")
    bits = Bits(2, 2, scheme.bits.activation)
    return replace(scheme, name=f"{scheme.name}/ternary", bits=bits, weight="twn", embedding="twn", split=False)
