"""Schemes: how a BERT is quantized and trained, with every row of the paper's tables as one row of data.

`QUANTIZERS` says which quantizer may be used where, and with how many bits. A `Scheme` is checked against it when it
is created. `SCHEMES` holds the rows of schemes.toml: a new rival is a new row there and a test. This module needs no
torch: `quantizers` implements the quantizers by name, `distill.objective` the loss terms.
"""

import re
import tomllib
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib import resources
from types import MappingProxyType
from typing import Any, NamedTuple

from bibert.errors import SchemeError, did_you_mean
from bibert.packed.schema import DIAL, SITES


@dataclass(frozen=True)
class Bits:
    """The paper's W-E-A notation: bits of weights, word embedding and activations."""

    weight: int
    embedding: int
    activation: int

    def __str__(self) -> str:
        return f"{self.weight}-{self.embedding}-{self.activation}"


FLOAT_BITS = 32
FULL_BITS = Bits(FLOAT_BITS, FLOAT_BITS, FLOAT_BITS)
ONE_BIT = Bits(1, 1, 1)
SCHEME_OF_BITS = {1: "bibert_plus", 2: "bibert_2", 4: "bibert_4"}  # the dial: by the bits of activations
DEFAULT_BITS = 4


class Quantizer(NamedTuple):
    """The bits that a quantizer can have, and the places where a scheme may use it."""

    bits: Sequence[int]
    places: tuple[str, ...]

    def fits(self, place: str, bits: int) -> bool:
        """Whether it may be used at a place of `bits`; attention weights and the second FFN layer may use fewer."""
        may_have_fewer = place in (*FROM_ZERO, "scores") and bits < FLOAT_BITS
        return place in self.places and (bits in self.bits or (may_have_fewer and self.bits[0] < bits))


# A place is a field of `Scheme`. Attention weights have two: `softmax`, and `scores` for Bi-Attention.
WEIGHTS = ("weight", "embedding")
FROM_ZERO = ("ffn_hidden", "softmax")  # places whose levels may start at 0; those of `activation` lie around it
ACTIVATIONS = ("activation", *FROM_ZERO)  # quantizers around 0 fit all three
FLOAT, ONE, TWO, ANY = range(FLOAT_BITS, FLOAT_BITS + 1), range(1, 2), range(2, 3), range(1, 9)
AT_LEAST_TWO = range(2, 9)  # levels up to ±(2^(bits-1) - 1), which is 0 for one bit
QUANTIZERS: Mapping[str, Quantizer] = {
    "none": Quantizer(FLOAT, (*WEIGHTS, *ACTIVATIONS)),
    "sign": Quantizer(ONE, (*WEIGHTS, *ACTIVATIONS, "scores")),
    "bool": Quantizer(ONE, (*FROM_ZERO, "scores")),
    "bwn": Quantizer(ONE, (*WEIGHTS, *ACTIVATIONS)),
    "twn": Quantizer(TWO, (*WEIGHTS, *ACTIVATIONS)),
    "symmetric": Quantizer(AT_LEAST_TWO, (*WEIGHTS, *ACTIVATIONS)),
    "ema_symmetric": Quantizer(AT_LEAST_TWO, ACTIVATIONS),
    "affine": Quantizer(ANY, ("embedding", *ACTIVATIONS)),
    "group_affine": Quantizer(ANY, ("weight",)),
    "lsq": Quantizer(AT_LEAST_TWO, ACTIVATIONS),
    "lsq_unsigned": Quantizer(ANY, FROM_ZERO),
    "levels": Quantizer(DIAL, ACTIVATIONS),
    "asym": Quantizer(ONE, ("softmax",)),
    "mean": Quantizer(ONE, ("softmax",)),
    "quantile": Quantizer(ONE, ("softmax",)),
}
STRUCTURES = ("mha", "intermediate", "output", "pooler", "embedding")  # the paper's Section 3.1 studies each
QUANTIZER_FIELDS: Mapping[str, str] = {  # the fields that name a quantizer, and whose bits it has
    **{part: part for part in ("weight", "embedding", "activation")},
    **dict.fromkeys(("ffn_hidden", "attention"), "activation"),
}
VALUES: Mapping[str, tuple[str | int, ...]] = {  # the fields that take one of several other values
    "normalizer": ("softmax", "none"),
    "ffn_activation": ("gelu", "relu", "linear"),
    "split": (False, True),
    "score_thresholds": (False, True),
    "gain": ("none", "layer", "row"),
    "scaled_context": (False, True),
    "attention_bits": (0, *DIAL),
}
SUBSETS: Mapping[str, tuple[str, ...]] = {"thresholds": SITES, "kept": STRUCTURES}
RENAMED: Mapping[str, str] = {"ffn_input": "ffn_hidden", "terms": "weights"}  # fields in saved configs and variants


@dataclass(frozen=True)
class Stage:
    """One training run of a schedule: the weights of its loss terms, and its factor of the recipe's learning rate."""

    name: str
    weights: dict[str, float]  # by the name of a term
    learning_rate_factor: float = 1.0
    half_width_ternary: bool = False  # BinaryBERT's first student; later stages train the student split from it


_TABLES = tomllib.loads(resources.files("bibert.nn").joinpath("schemes.toml").read_text(encoding="utf-8"))
SCHEDULES: Mapping[str, tuple[Stage, ...]] = {
    name: tuple(Stage(**stage) for stage in stages) for name, stages in _TABLES["schedules"].items()
}


@dataclass(frozen=True)
class Scheme:
    """How a BERT is quantized and trained; fields that contradict each other raise `SchemeError`."""

    name: str
    bits: Bits
    weight: str = "none"  # quantizer of every linear weight in the encoder and the pooler
    embedding: str = "none"  # quantizer of the word embedding, with one scale per token
    activation: str = "none"  # quantizer of the input of every linear layer and of queries, keys and values
    ffn_hidden: str = ""  # quantizer of the second FFN layer's input (the site `ffn_hidden`), if not `activation`
    normalizer: str = "softmax"  # turns attention scores into attention weights; `none` is Bi-Attention
    attention: str = "none"  # quantizer of the attention weights
    quantile: float | None = None  # the share of attention weights that `attention="quantile"` sets to zero
    ffn_activation: str = "gelu"  # `gelu` is the checkpoint's own activation; `relu` and `linear` replace it
    split: bool = False  # every quantized weight is the sum of two binary ones (BinaryBERT)
    thresholds: tuple[str, ...] = ()  # sites with a learned threshold per channel in front of the sign
    score_thresholds: bool = False  # Bi-Attention has a learned threshold per head
    gain: str = "none"  # a learned factor of the scale of a weight, one per `layer` or one per output `row`
    scaled_context: bool = False  # the gradient window of the context's sign grows with √(attended keys)
    kept: tuple[str, ...] = ()  # structures in full precision, to measure the cost of binarizing them
    attention_bits: int = 0  # bits of queries, keys, values and attention weights of `levels`; 0 in other schemes
    schedule: tuple[Stage, ...] = SCHEDULES["labels"]  # the training runs, in order

    def __post_init__(self) -> None:
        for rule in (_wrong_values, _wrong_quantizers, _contradictions, _wrong_levels, _wrong_schedule):
            for problem in rule(self):
                raise SchemeError(f"scheme {self.name!r}: {problem}")

    @property
    def is_quantized(self) -> bool:
        """Whether any part has fewer than 32 bits."""
        return self.bits != FULL_BITS

    @property
    def is_discrete(self) -> bool:
        """Whether every activation is a bit, or a level of 2 or 4 bits."""
        return (self.bits.activation == 1 or self.attention_bits > 0) and not self.kept

    @property
    def ffn_quantizer(self) -> str:
        """The quantizer of the second FFN layer's input; a sign includes the GELU before it in its gradient."""
        name = self.ffn_hidden or self.activation
        return "gelu_sign" if name == "sign" and self.ffn_activation == "gelu" else name

    def part(self, structure: str) -> "Scheme":
        """The scheme of one of `STRUCTURES`: this one, or `full_precision` if the structure is kept."""
        return SCHEMES["full_precision"] if structure in self.kept else self

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for config.json."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Scheme":
        """The inverse of `to_dict`, also for the names that fields once had; unknown keys raise."""
        known = sorted(field.name for field in fields(cls))
        plain = _renamed(values)
        for key in plain:
            if key not in known:
                raise SchemeError(f"scheme has no field {key!r}; {did_you_mean(key, known)}")
        plain["bits"] = Bits(**plain["bits"])
        plain |= {name: tuple(plain.get(name, ())) for name in SUBSETS}
        plain["schedule"] = tuple(Stage(**_renamed(stage)) for stage in plain.get("schedule", ()))
        return cls(**plain)


def _renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    return {RENAMED.get(field, field): value for field, value in values.items()}


def _wrong_values(scheme: Scheme) -> Iterator[str]:
    for field, allowed in VALUES.items():
        if (value := getattr(scheme, field)) not in allowed:
            yield f"{field} is {value!r}, must be one of {', '.join(map(str, allowed)).lower()}"
    for field, names in SUBSETS.items():
        for name in getattr(scheme, field):
            if name not in names:
                yield f"{field} cannot include {name!r}; {did_you_mean(name, names)}"


def _wrong_quantizers(scheme: Scheme) -> Iterator[str]:
    attention = {"softmax": "softmax", "none": "scores"}[scheme.normalizer]
    for field, part in QUANTIZER_FIELDS.items():
        place, bits = attention if field == "attention" else field, getattr(scheme.bits, part)
        name = getattr(scheme, field) or (scheme.activation if field == "ffn_hidden" else "")
        if name in QUANTIZERS and QUANTIZERS[name].fits(place, bits):
            continue
        has = f" (bits: {', '.join(map(str, QUANTIZERS[name].bits))})" if name in QUANTIZERS else ""
        names = [other for other, quantizer in QUANTIZERS.items() if quantizer.fits(place, bits)]
        reason = f"a {scheme.bits} scheme with normalizer={scheme.normalizer!r} has {bits} bits there"
        yield f"{field} is {name!r}{has}, must be one of {', '.join(names) or '(none fits)'}: {reason}"


def _contradictions(s: Scheme) -> Iterator[str]:
    if s.weight == "none" and s.activation != "none":
        yield f"activation is {s.activation!r}, must be none: a layer with weight='none' does not quantize"
    if (s.attention == "quantile") != (s.quantile is not None):
        yield f"attention is {s.attention!r} and quantile is {s.quantile}; a quantile needs attention='quantile'"
    if s.quantile is not None and not 0.0 < s.quantile < 1.0:
        yield f"quantile is {s.quantile}, must lie between 0 and 1"
    if (s.score_thresholds or s.scaled_context) and s.normalizer != "none":
        yield f"score_thresholds and scaled_context need normalizer='none' (Bi-Attention), it is {s.normalizer!r}"
    if s.gain != "none" and s.weight in ("none", "group_affine"):
        yield f"gain is {s.gain!r}, but weight={s.weight!r} has no scale to multiply"
    if s.split and (s.gain != "none" or s.kept):
        yield "a split student has half the teacher's width and two scales per weight: remove gain and kept, or split"
    ffn = s.ffn_hidden or s.activation
    if ffn == "bool" and s.ffn_activation != "linear":
        reason = f"ffn_activation={s.ffn_activation!r}, which is 0 far below 0, and 0 has the bit 1"
        yield f"ffn_hidden is 'bool' after {reason}; use ffn_activation='linear'"
    if ffn == "sign" and s.ffn_activation == "relu" and "ffn_hidden" not in s.thresholds:
        yield "a sign after ffn_activation='relu' is always +1; use 'gelu', 'linear' or a threshold at 'ffn_hidden'"


def _wrong_levels(s: Scheme) -> Iterator[str]:
    quantizers = {s.activation, s.attention, s.ffn_hidden or s.activation}
    if "levels" in quantizers and (quantizers != {"levels"} or s.weight != "sign" or s.ffn_activation != "linear"):
        others = "weight='sign' and ffn_activation='linear'"
        yield f"levels are for activation, ffn_hidden and attention together, with {others}"
    if bool(s.attention_bits) != ("levels" in quantizers):
        yield f"attention_bits is {s.attention_bits}, must be 2 or 4 with activation='levels' and 0 without"
    if s.attention_bits and s.thresholds:
        yield f"thresholds is {s.thresholds}, but levels have one at every site; remove it"


def _wrong_schedule(s: Scheme) -> Iterator[str]:
    half, stages = [stage.half_width_ternary for stage in s.schedule], ", ".join(stage.name for stage in s.schedule)
    if not half:
        yield "schedule is empty, must have at least one stage"
    if len({stage.name for stage in s.schedule}) < len(half):
        yield f"schedule is {stages}; each stage needs a name of its own, which is also that of its folder"
    if half != sorted(half, reverse=True):
        yield f"schedule is {stages}; half-width stages must come first"
    if s.split and set(half) != {True, False}:
        yield f"split is true, but the schedule ({stages}) has no half-width student to split; use 'binarybert_1-1-1'"
    is_first_student = s.weight == s.embedding == "twn"  # of a split scheme, whose schedule it shares
    if True in half and not s.split and not is_first_student:
        yield f"split is false, but the schedule ({stages}) trains a half-width student to split; use another row"


def _rows() -> Iterator[Scheme]:
    for name, row in _TABLES["schemes"].items():
        groups = [_TABLES["common"][group] for group in row.pop("like", ())]
        values = dict(ChainMap(row, *groups))
        values |= {"bits": Bits(*values["bits"]), "thresholds": tuple(values.get("thresholds", ()))}
        yield Scheme(name, **{**values, "schedule": SCHEDULES[values.get("schedule", "labels")]})


SCHEMES: Mapping[str, Scheme] = MappingProxyType({row.name: row for row in _rows()})


def scheme_of_bits(bits: int) -> str:
    """The scheme of a position of the dial, by the bits of activations."""
    if bits not in SCHEME_OF_BITS:
        raise SchemeError(f"bits is {bits!r}, must be one of {', '.join(map(str, SCHEME_OF_BITS))}")
    return SCHEME_OF_BITS[bits]


def baseline_quantile(percent: float) -> Scheme:
    """The baseline with a threshold that sets `percent` % of the attention weights to zero."""
    return replace(SCHEMES["baseline_50"], name=f"baseline_quantile({percent:g})", quantile=percent / 100)


def get_scheme(name: str) -> Scheme:
    """The row called `name`, or a variant of a row.

    `baseline_quantile(p)` takes any percentage p. `bibert(gain=row,thresholds=context+value)` and `baseline(kept=mha)`
    change fields of a row, except its bits; `baseline(without=attention)` removes a loss term from its schedule.
    """
    if match := re.fullmatch(r"baseline_quantile\((\d+(?:\.\d+)?)\)", name):
        return baseline_quantile(float(match[1]))
    if match := re.fullmatch(r"([^()]+)\(([^()=]+=[^()]*)\)", name):
        return _variant(name, get_scheme(match[1]), match[2])
    if name not in SCHEMES:
        raise SchemeError(f"there is no scheme {name!r}; {did_you_mean(name, SCHEMES)} (bibert schemes lists them)")
    return SCHEMES[name]


def _variant(name: str, row: Scheme, changes: str) -> Scheme:
    """`row` with the changes that its new name lists as `field=value,field=value`; `Scheme` checks the values."""
    values: dict[str, Any] = {"name": name}
    for change in changes.split(","):
        field, _, text = (part.strip() for part in change.partition("="))
        field = RENAMED.get(field, field)
        words = [word.strip() for word in text.split("+") if word.strip()]
        if field == "without":
            values["schedule"] = _without(name, values.get("schedule", row.schedule), words)
        elif field in SUBSETS:
            known = [word for word in SUBSETS[field] if word in words]
            values[field] = (*known, *(word for word in words if word not in known))
        elif field in VALUES or field in QUANTIZER_FIELDS:
            values[field] = {"true": True, "false": False}.get(text, int(text) if text.isdigit() else text)
        else:
            fields_to_change = ["without", *SUBSETS, *QUANTIZER_FIELDS, *VALUES]
            raise SchemeError(f"scheme {name!r}: cannot change {field!r}; {did_you_mean(field, fields_to_change)}")
    return replace(row, **values)


def _without(name: str, schedule: tuple[Stage, ...], terms: list[str]) -> tuple[Stage, ...]:
    known = list(dict.fromkeys(term for stage in schedule for term in stage.weights))
    for term in terms or [""]:
        if term not in known:
            raise SchemeError(f"scheme {name!r}: no stage has the term {term!r}; {did_you_mean(term, known)}")
    left = [replace(stage, weights={k: v for k, v in stage.weights.items() if k not in terms}) for stage in schedule]
    if empty := [stage.name for stage in left if not stage.weights]:
        raise SchemeError(f"scheme {name!r}: the stage {empty[0]!r} has no term left; keep at least one")
    return tuple(left)


def as_scheme(scheme: Any) -> Scheme:
    """A scheme from its name, its plain values, or itself."""
    if isinstance(scheme, Scheme):
        return scheme
    return Scheme.from_dict(scheme) if isinstance(scheme, Mapping) else get_scheme(scheme)
