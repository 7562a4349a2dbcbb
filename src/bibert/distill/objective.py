"""The loss of a distillation: which terms, from which layers, with which weights.

`TERMS` maps the names used in schemes and recipes to terms. A term is a number per batch, summed over layers
as in the paper. The formulas are in `dmd` and `vanilla`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from bibert.distill.dmd import NormScope, dmd_loss, hidden_direction_loss
from bibert.distill.vanilla import prediction_loss, score_mse, token_mse
from bibert.errors import CheckpointError, NumericError, RecipeError, did_you_mean
from bibert.nn.functional import HeadLevels
from bibert.nn.model import BiBertForSequenceClassification, BiBertOutput, label_loss
from bibert.nn.trace import LayerTrace

T = TypeVar("T")


def _filled(field: T | None) -> T:
    """A field of a model's output that is always there when a term reads it."""
    assert field is not None
    return field


@dataclass(frozen=True)
class Lesson:
    """Student and teacher on the same batch, with layers matched."""

    student: BiBertOutput
    teacher: BiBertOutput
    labels: Tensor
    mask: Tensor  # (B, T); all ones where padding is to count, as in the released code
    scope: NormScope
    match: "LayerMatch"

    def layers(self) -> list[tuple[LayerTrace, LayerTrace]]:
        """Each layer of the student with the one of the teacher that it learns from."""
        return self.match.layers(_filled(self.student.trace).layers, _filled(self.teacher.trace).layers)

    def hidden_states(self) -> list[tuple[Tensor, Tensor]]:
        """Embedding output and layer outputs of the student, each with the teacher's."""
        student, teacher = _filled(self.student.trace).hidden_states, _filled(self.teacher.trace).hidden_states
        return [(mine, teacher[i * self.match.step]) for i, mine in enumerate(student)]


@dataclass(frozen=True)
class LayerMatch:
    """Which layer, and which heads, of the teacher each layer of the student learns from.

    A teacher `step` times as deep is cut into blocks: the last layer of each block teaches, and hidden states are
    compared at the ends of blocks. A half-width student learns from the heads that it kept.
    """

    step: int
    kept_heads: tuple[tuple[int, ...], ...] | None

    def layers(self, student: list[LayerTrace], teacher: list[LayerTrace]) -> list[tuple[LayerTrace, LayerTrace]]:
        """Pairs of (student, teacher) traces."""
        return list(zip(student, self.taught(teacher), strict=True))

    def taught(self, teacher: list[LayerTrace]) -> list[LayerTrace]:
        """What each layer of the student learns from."""
        last_of_blocks = teacher[self.step - 1 :: self.step]
        return [self._with_kept_heads(trace, layer) for layer, trace in enumerate(last_of_blocks)]

    def _with_kept_heads(self, trace: LayerTrace, layer: int) -> LayerTrace:
        if self.kept_heads is None:
            return trace
        heads = torch.tensor(self.kept_heads[layer], device=trace.query.device)
        names = ("query", "key", "value", "scores", "weights")
        levels = HeadLevels(*(tensor.index_select(1, heads) for tensor in trace.levels))
        kept = replace(trace, levels=levels, **{name: getattr(trace, name).index_select(1, heads) for name in names})
        kept.mha = trace.mha  # the sum over all heads: there is no part of it that belongs to the kept ones
        return kept


def match_layers(student: BiBertForSequenceClassification, teacher: BiBertForSequenceClassification) -> LayerMatch:
    """How the two models fit together.

    Raises:
        CheckpointError: depth, width, heads or labels do not fit; the message names both numbers.
    """
    mine, theirs = student.config, teacher.config
    if theirs.num_hidden_layers % mine.num_hidden_layers:
        raise CheckpointError(
            f"the teacher has {theirs.num_hidden_layers} layers, the student {mine.num_hidden_layers}: "
            "the teacher's depth must be a multiple of the student's"
        )
    equal = {"hidden_size": "hidden size", "num_labels": "number of labels", "head_size": "size of a head"}
    if mine.kept_heads is None:
        equal["num_attention_heads"] = "number of heads"
    for key, name in equal.items():
        if getattr(theirs, key) != getattr(mine, key):
            raise CheckpointError(
                f"the teacher's {name} is {getattr(theirs, key)}, the student's {getattr(mine, key)}: "
                "they must be equal"
            )
    kept = None if mine.kept_heads is None else tuple(tuple(row) for row in mine.kept_heads)
    return LayerMatch(theirs.num_hidden_layers // mine.num_hidden_layers, kept)


def _total(values: list[Tensor]) -> Tensor:
    return torch.stack(values).sum()


def _dmd(lesson: Lesson, name: str) -> Tensor:
    pairs = [(getattr(mine, name), getattr(theirs, name)) for mine, theirs in lesson.layers()]
    return _total([dmd_loss(mine, theirs, lesson.mask, lesson.scope) for mine, theirs in pairs])


def _direction(lesson: Lesson) -> Tensor:
    pairs = lesson.hidden_states()
    return _total([hidden_direction_loss(mine, theirs, lesson.mask, lesson.scope) for mine, theirs in pairs])


@dataclass(frozen=True)
class Term:
    """A term of the loss, and what it reads; what no term reads is not computed or gets no gradient.

    Attributes:
        loss: one number from a lesson.
        inside: whether it looks inside the networks (`layers`, `hidden_states`, `mask`).
        logits: whether it looks at the student's logits; without such a term pooler and classifier stay as they are.
        teacher: whether it looks at the teacher.
    """

    loss: Callable[[Lesson], Tensor]
    inside: bool = True
    logits: bool = False
    teacher: bool = True


TERMS: Mapping[str, Term] = {
    "attention": Term(lambda x: _total([score_mse(s.scores, t.scores, x.mask) for s, t in x.layers()])),
    "mha": Term(lambda x: _total([token_mse(s.mha, t.mha, x.mask) for s, t in x.layers()])),
    "hidden": Term(lambda x: _total([token_mse(s, t, x.mask) for s, t in x.hidden_states()])),
    "dmd_query": Term(lambda x: _dmd(x, "query")),
    "dmd_key": Term(lambda x: _dmd(x, "key")),
    "dmd_value": Term(lambda x: _dmd(x, "value")),
    "hidden_direction": Term(_direction),
    "prediction": Term(
        lambda x: prediction_loss(_filled(x.student.logits), _filled(x.teacher.logits)), inside=False, logits=True
    ),
    "gold": Term(lambda x: label_loss(_filled(x.student.logits), x.labels), inside=False, logits=True, teacher=False),
}


def check_weights(weights: Mapping[str, float]) -> None:
    """Refuse weights of terms that do not exist, and weights below 0.

    Raises:
        RecipeError: the message names the term.
    """
    for name, weight in weights.items():
        if name not in TERMS:
            raise RecipeError(f"there is no distillation term {name!r}; {did_you_mean(name, TERMS)}")
        if not 0 <= weight < math.inf:
            raise RecipeError(f"the weight of the distillation term {name!r} is {weight}; it must be 0 or more")


@dataclass(frozen=True)
class LossTerms:
    """The loss of one batch, term by term; `total` is what is minimized."""

    terms: Mapping[str, Tensor]  # unweighted
    total: Tensor


@dataclass(frozen=True)
class Objective:
    """A weighted sum of terms.

    Attributes:
        weights: weight of each term; a term that is not named does not count.
        norm_scope: a norm per sample and head (the paper's reading), or one per batch (the released code's).
        mask_padding: whether padding tokens are left out; the released code counts them.
    """

    weights: Mapping[str, float]
    norm_scope: NormScope = "sample"
    mask_padding: bool = True

    def __post_init__(self) -> None:
        check_weights(self.weights)
        object.__setattr__(self, "weights", {name: weight for name, weight in self.weights.items() if weight})
        if not self.weights:
            raise RecipeError("every distillation term has weight 0: nothing would be learned; give one a weight")

    @property
    def needs_trace(self) -> bool:
        """Whether any term looks inside the network."""
        return any(TERMS[name].inside for name in self.weights)

    @property
    def reaches_logits(self) -> bool:
        """Whether pooler and classifier get a gradient."""
        return any(TERMS[name].logits for name in self.weights)

    @property
    def needs_teacher(self) -> bool:
        """Whether any term looks at the teacher at all."""
        return any(TERMS[name].teacher for name in self.weights)

    def __call__(self, student: BiBertOutput, teacher: BiBertOutput, labels: Tensor, match: LayerMatch) -> LossTerms:
        """Evaluate every term that has a weight."""
        mask = _filled(student.trace).mask if self.needs_trace else torch.ones_like(_filled(student.logits)[:, :1])
        if not self.mask_padding:
            mask = torch.ones_like(mask)
        lesson = Lesson(student, teacher, labels, mask, self.norm_scope, match)
        terms = {name: TERMS[name].loss(lesson) for name in self.weights}
        total = _total([self.weights[name] * value for name, value in terms.items()])
        if not torch.isfinite(total.detach()):
            broken = {name: value.item() for name, value in terms.items() if not torch.isfinite(value.detach())}
            raise NumericError(f"the loss is not finite ({broken or 'the sum overflows'}); lower the learning rate")
        return LossTerms({name: value.detach() for name, value in terms.items()}, total)
