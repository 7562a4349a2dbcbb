"""Making a student: a copy of a full-precision BERT under a scheme, with the same latent weights.

Schemes that split (BinaryBERT) start from a half-width ternary student; cutting the width and splitting the
weights are in `splitting`.
"""

from torch import Tensor

from bibert.errors import SchemeError
from bibert.nn.config import BiBertConfig, as_scheme
from bibert.nn.model import BiBertForSequenceClassification, evaluating
from bibert.nn.quantizers import EmaSymmetric, LearnedStep
from bibert.nn.schemes import Scheme, half_width_ternary
from bibert.nn.splitting import half_width, split_model


def binarize(teacher: BiBertForSequenceClassification, scheme: Scheme | str) -> BiBertForSequenceClassification:
    """A student under `scheme` that starts from the teacher's weights.

    Args:
        teacher: a full-precision classifier.
        scheme: a row of `schemes.SCHEMES`, by name or as a value.
    """
    row = as_scheme(scheme)
    if not row.split:
        return with_scheme(teacher, row)
    return split_student(first_student(teacher, row), row)


def first_student(teacher: BiBertForSequenceClassification, scheme: Scheme) -> BiBertForSequenceClassification:
    """The student of the first stage of the scheme's schedule."""
    if not scheme.split:
        return with_scheme(teacher, scheme)
    return with_scheme(half_width(teacher), half_width_ternary(scheme))


def split_student(ternary: BiBertForSequenceClassification, scheme: Scheme) -> BiBertForSequenceClassification:
    """BinaryBERT's second student: two binary weights for each ternary one, with the same sum."""
    return split_model(ternary, _empty(ternary, scheme))


def with_scheme(model: BiBertForSequenceClassification, scheme: Scheme) -> BiBertForSequenceClassification:
    """A copy of `model` under another scheme, parameter by parameter."""
    if model.config.quantization.split != scheme.split:
        raise SchemeError(
            f"a model of scheme {model.config.quantization.name!r} cannot become {scheme.name!r}: "
            "only one of the two has split weights; start from the full-precision teacher"
        )
    student = _empty(model, scheme)
    missing, unexpected = student.load_state_dict(model.state_dict(), strict=False)
    lost = [name for name in missing if not _is_quantizer_state(name)]
    surplus = [name for name in unexpected if not _is_quantizer_state(name)]
    if lost or surplus:
        raise SchemeError(f"scheme {scheme.name!r}: parameters {(lost + surplus)[:3]} do not carry over")
    return student


def calibrate(
    model: BiBertForSequenceClassification, batch: dict[str, Tensor], source: BiBertForSequenceClassification
) -> None:
    """Set learned steps and moving ranges from the activations of one batch; other schemes are left as they are.

    So are those that `source`, which the model was made from, has learned for the same quantizers: they are in it.
    """
    sites = [module for module in model.modules() if isinstance(module, EmaSymmetric | LearnedStep)]
    if not sites or _reads_alike(source.config.quantization, model.config.quantization):
        return
    for site in sites:
        site.calibrating = True
    try:
        with evaluating(model):
            model(**{name: value for name, value in batch.items() if name != "labels"})
    finally:
        for site in sites:
            site.calibrating = False


def _reads_alike(one: Scheme, other: Scheme) -> bool:
    """Whether two schemes quantize every activation in the same way, whatever they do to weights."""
    names = ("activation", "ffn_input", "ffn_activation", "attention", "normalizer", "kept")
    alike = all(getattr(one, name) == getattr(other, name) for name in names)
    return alike and one.bits.activation == other.bits.activation


def _empty(model: BiBertForSequenceClassification, scheme: Scheme) -> BiBertForSequenceClassification:
    values = model.config.to_dict() | {"scheme": scheme.to_dict()}
    values.pop("model_type")
    return BiBertForSequenceClassification(BiBertConfig(**values))


def _is_quantizer_state(name: str) -> bool:
    return name.endswith((".step", ".range", ".threshold", ".gain"))
