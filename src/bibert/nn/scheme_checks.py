"""What the fields of a scheme may say: the names each takes, the bits each quantizer can have, and the rules between.

A scheme is checked when it is made, long before a network is built from it. The names are keys of tables that need
torch (`quantizers`, `attention`); here they stand without it, and a test compares the two. What a name computes is
there; the fields themselves, and the lists that belong to them alone, are in `schemes`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from bibert.errors import SchemeError

if TYPE_CHECKING:
    from bibert.nn.schemes import Scheme

FLOAT_BITS = 32
ONE, TWO = range(1, 2), range(2, 3)
STEPS = range(1, 9)
STEPS_ON_BOTH_SIDES = range(2, 9)  # up to ±(2^(bits-1) - 1), which is 0 for one bit
QUANTIZER_BITS: Mapping[str, range] = MappingProxyType(
    {
        "none": range(FLOAT_BITS, FLOAT_BITS + 1),
        "sign": ONE,
        "bool": ONE,
        "bwn": ONE,
        "twn": TWO,
        "symmetric": STEPS_ON_BOTH_SIDES,
        "ema_symmetric": STEPS_ON_BOTH_SIDES,
        "affine": STEPS,
        "group_affine": STEPS,
        "lsq": STEPS_ON_BOTH_SIDES,
        "lsq_unsigned": STEPS,
        "asym": ONE,
        "mean": ONE,
        "quantile": ONE,
    }
)
_ANY_SIGN = ("none", "sign", "bwn", "twn", "symmetric", "ema_symmetric", "affine", "lsq")
_FROM_ZERO_UP = ("bool", "lsq_unsigned")
ATTENTION_OF_NORMALIZER: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"softmax": (*_ANY_SIGN, *_FROM_ZERO_UP, "asym", "mean", "quantile"), "none": ("bool", "sign")}
)
NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "weight": ("none", "sign", "bwn", "twn", "symmetric", "group_affine"),
        "embedding": ("none", "sign", "bwn", "twn", "symmetric", "affine"),
        "activation": _ANY_SIGN,
        "ffn_input": ("", *_ANY_SIGN, *_FROM_ZERO_UP),
        "normalizer": tuple(ATTENTION_OF_NORMALIZER),
        "attention": ATTENTION_OF_NORMALIZER["softmax"],
        "ffn_activation": ("gelu", "relu", "linear"),
        "gain": ("none", "layer", "row"),
    }
)
WITHOUT_SCALE = ("none", "group_affine")  # weights whose levels are values
# Which of W-E-A a quantizer answers for. Beside `activation` itself, an activation may also have fewer bits.
PART_OF_FIELD: Mapping[str, str] = MappingProxyType(
    {
        "weight": "weight",
        "embedding": "embedding",
        "activation": "activation",
        "ffn_input": "activation",
        "attention": "activation",
    }
)


def check(scheme: "Scheme") -> None:
    """Refuse a scheme that names what does not exist, or whose fields contradict each other.

    Raises:
        SchemeError: with the scheme, the field, its value and what is allowed there.
    """
    for rule in (_names, _attention, _quantile, _gain, _bits, _ffn, _schedule):
        if problem := rule(scheme):
            raise SchemeError(f"scheme {scheme.name!r}: {problem}")


def _names(scheme: "Scheme") -> str | None:
    for field, names in NAMES.items():
        value = getattr(scheme, field)
        if value not in names:
            return f"{field} is {value!r}, must be one of {_listed(names)}"
    return None


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(name or "''" for name in names)


def _attention(scheme: "Scheme") -> str | None:
    allowed = ATTENTION_OF_NORMALIZER[scheme.normalizer]
    if scheme.attention not in allowed:
        return f"attention is {scheme.attention!r}, with normalizer={scheme.normalizer!r} one of {_listed(allowed)}"
    if (scheme.score_thresholds or scheme.scaled_context) and scheme.normalizer != "none":
        return (
            "score_thresholds and scaled_context belong to Bi-Attention, which has normalizer='none'; "
            f"here it is {scheme.normalizer!r}"
        )
    return None


def _gain(scheme: "Scheme") -> str | None:
    if scheme.gain != "none" and scheme.weight in WITHOUT_SCALE:
        return f"gain is {scheme.gain!r}, but weight={scheme.weight!r} has no scale for it to be a factor of"
    if scheme.gain != "none" and scheme.split:
        return f"gain is {scheme.gain!r}, but the two halves of a split weight have a scale each; leave one of them out"
    return None


def _quantile(scheme: "Scheme") -> str | None:
    if (scheme.attention == "quantile") != (scheme.quantile is not None):
        return (
            f"attention={scheme.attention!r} with quantile={scheme.quantile}; "
            "a quantile goes with attention='quantile' and with nothing else"
        )
    if scheme.quantile is not None and not 0.0 < scheme.quantile < 1.0:
        return f"quantile is {scheme.quantile}, must lie between 0 and 1"
    return None


def _bits(scheme: "Scheme") -> str | None:
    """W-E-A is true of the fields."""
    for field, part in PART_OF_FIELD.items():
        name, bits = getattr(scheme, field), getattr(scheme.bits, part)
        if name and not _fits(field, name, bits):
            allowed = ATTENTION_OF_NORMALIZER[scheme.normalizer] if field == "attention" else NAMES[field]
            fitting = tuple(other for other in allowed if other and _fits(field, other, bits))
            return (
                f"{field} is {name!r}, which has {_count(QUANTIZER_BITS[name])}, but a {scheme.bits} scheme has "
                f"{bits} there, so one of {_listed(fitting)}; or change a row of other bits"
            )
    if scheme.weight == "none" and scheme.activation != "none":
        return f"activation is {scheme.activation!r}, must be none: a layer with weight='none' does not quantize"
    return None


def _count(can: range) -> str:
    if len(can) > 1:
        return f"{can[0]} to {can[-1]} bits"
    return "1 bit" if can == ONE else f"{can[0]} bits"


def _fits(field: str, name: str, bits: int) -> bool:
    can = QUANTIZER_BITS[name]
    fewer_will_do = field != PART_OF_FIELD[field] and bits < FLOAT_BITS
    return bits in can or (fewer_will_do and can[0] < bits)


def _ffn(scheme: "Scheme") -> str | None:
    """What a bit in front of the second FFN layer can tell apart depends on the activation before it."""
    name = scheme.ffn_input or scheme.activation
    if name == "bool" and scheme.ffn_activation != "linear":
        return (
            f"ffn_input is 'bool' behind ffn_activation={scheme.ffn_activation!r}, which is 0 or more where its input "
            "is far below 0, and that counts as 1; with 'bool' ffn_activation must be 'linear'"
        )
    if name == "sign" and scheme.ffn_activation == "relu" and "ffn_hidden" not in scheme.thresholds:
        return "a sign behind ffn_activation='relu' is always +1; take 'gelu' or 'linear', or a threshold 'ffn_hidden'"
    return None


def _schedule(scheme: "Scheme") -> str | None:
    """A split scheme trains the half-width ternary student first; only that student shares its schedule."""
    half = [stage.half_width_ternary for stage in scheme.schedule]
    if not half:
        return "schedule is empty, must have at least one stage: without one nothing is trained"
    names = ", ".join(stage.name for stage in scheme.schedule)
    if half != sorted(half, reverse=True):
        return f"schedule is {names}; its half-width stages must come before all others"
    if scheme.split and (not half[0] or half[-1]):
        return (
            f"split is true, but its schedule ({names}) does not go from half-width stages to others, so nothing is "
            "ever split; change a 'binarybert' row"
        )
    first_student = scheme.weight == scheme.embedding == "twn"
    if half[0] and not scheme.split and not first_student:
        return (
            f"split is false, but its schedule ({names}) begins with the half-width student that is split later; "
            "change a row without such a stage"
        )
    return None
