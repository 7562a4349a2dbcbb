"""The loss of a distillation: which terms, from which layers, with which weights.

`TERMS` maps the names in schemes and recipes to terms. A term is one number per batch, summed over layers as in the
paper. The formulas are in `losses`; a new term is a function there and a row here.
"""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from bibert.distill import losses
from bibert.distill.losses import NormScope
from bibert.errors import CheckpointError, NumericError, RecipeError, did_you_mean
from bibert.nn.layers import PER_HEAD, BiBertConfig, LayerTrace
from bibert.nn.model import BiBertOutput

LossOfLayer = Callable[[Tensor, Tensor, Tensor], Tensor]  # of the student's tensor, the teacher's and the mask


@dataclass(frozen=True)
class LayerMatch:
    """Which layer, and which heads, of the teacher each layer of the student learns from.

    A teacher `depth_ratio` times as deep is cut into blocks: the last layer of each block teaches, and hidden states
    are compared at the ends of blocks. A half-width student learns from the heads that it kept.
    """

    depth_ratio: int
    kept_heads: tuple[tuple[int, ...], ...] | None

    def taught(self, teacher: list[LayerTrace]) -> list[LayerTrace]:
        """The trace that each layer of the student learns from."""
        last_of_blocks = teacher[self.depth_ratio - 1 :: self.depth_ratio]
        return [self._with_kept_heads(trace, layer) for layer, trace in enumerate(last_of_blocks)]

    def _with_kept_heads(self, trace: LayerTrace, layer: int) -> LayerTrace:
        if self.kept_heads is None:
            return trace
        heads = torch.tensor(self.kept_heads[layer])
        kept = copy.copy(trace)  # mha mixes all heads and stays whole
        for name in vars(trace).keys() & PER_HEAD:
            setattr(kept, name, getattr(trace, name).index_select(1, heads))
        return kept


def match_layers(mine: BiBertConfig, theirs: BiBertConfig) -> LayerMatch:
    """Match the layers and heads of a student and its teacher, whose depth, width, heads and labels must fit."""
    if theirs.num_hidden_layers % mine.num_hidden_layers:
        layers = f"{theirs.num_hidden_layers} layers, the student {mine.num_hidden_layers}"
        raise CheckpointError(f"the teacher has {layers}: its depth must be a multiple of the student's")
    equal = {"hidden_size": "hidden size", "num_labels": "number of labels", "head_size": "size of a head"}
    if mine.kept_heads is None:
        equal["num_attention_heads"] = "number of heads"
    for key, name in equal.items():
        wanted, found = getattr(theirs, key), getattr(mine, key)
        if wanted != found:
            raise CheckpointError(f"the teacher's {name} is {wanted}, the student's {found}: they must be equal")
    kept = None if mine.kept_heads is None else tuple(tuple(row) for row in mine.kept_heads)
    return LayerMatch(theirs.num_hidden_layers // mine.num_hidden_layers, kept)


@dataclass(frozen=True)
class Lesson:
    """One batch as the terms see it: tensors of the student, each with the teacher's."""

    layers: list[tuple[LayerTrace, LayerTrace]]  # empty, like the hidden states, unless a term reads the `trace`
    hidden_states: list[tuple[Tensor, Tensor]]  # the embedding output and the layer outputs
    pooled: Tensor | None  # the student's pooled first token, (B, C)
    logits: tuple[Tensor, Tensor]
    gold: Callable[[Tensor], Tensor]  # the loss of logits against the labels
    mask: Tensor  # (B, T), ones if padding counts (the released code); ones (B, 1) unless a term reads the `trace`
    norm_scope: NormScope

    def sum_over_layers(self, loss: LossOfLayer, name: str) -> Tensor:
        """The sum of a loss of one tensor of each layer."""
        pairs = [(getattr(mine, name), getattr(theirs, name)) for mine, theirs in self.layers]
        return _total([loss(mine, theirs, self.mask) for mine, theirs in pairs])

    def sum_over_hidden_states(self, loss: LossOfLayer) -> Tensor:
        """The sum of a loss of the hidden states."""
        return _total([loss(mine, theirs, self.mask) for mine, theirs in self.hidden_states])

    def sentence_direction(self) -> Tensor:
        """How far the pooled first token points away from the teacher's embedding of the text."""
        assert self.pooled is not None
        embedding = losses.sentence(self.hidden_states[-1][1], self.mask)
        return losses.direction_distance(self.pooled, embedding, self.mask.new_ones(()), self.norm_scope, lead_dims=1)

    def scoped(self, loss: Callable[..., Tensor]) -> LossOfLayer:
        """A loss of directions with the norm scope of the lesson."""
        return partial(loss, norm_scope=self.norm_scope)


def _total(values: list[Tensor]) -> Tensor:
    return torch.stack(values).sum()


@dataclass(frozen=True)
class Term:
    """A term of the loss, and the parts of a lesson that it reads; other parts are not computed or get no gradient."""

    loss: Callable[[Lesson], Tensor]
    trace: tuple[str, ...] = ()  # the fields of `layers` that it reads, `hidden_states` or `pooled`
    pooled: bool = False  # reads the student's pooled first token; otherwise the pooler does not change
    logits: bool = False  # reads the student's logits; otherwise the classifier does not change
    teacher: bool = True  # reads anything of the teacher


HIDDEN = ("hidden_states",)
TERMS: Mapping[str, Term] = {
    "attention": Term(lambda x: x.sum_over_layers(losses.score_mse, "scores"), ("scores",)),
    "mha": Term(lambda x: x.sum_over_layers(losses.token_mse, "mha"), ("mha",)),
    "hidden": Term(lambda x: x.sum_over_hidden_states(losses.token_mse), HIDDEN),
    "dmd_query": Term(lambda x: x.sum_over_layers(x.scoped(losses.dmd_loss), "query"), ("query",)),
    "dmd_key": Term(lambda x: x.sum_over_layers(x.scoped(losses.dmd_loss), "key"), ("key",)),
    "dmd_value": Term(lambda x: x.sum_over_layers(x.scoped(losses.dmd_loss), "value"), ("value",)),
    "hidden_direction": Term(lambda x: x.sum_over_hidden_states(x.scoped(losses.hidden_direction_loss)), HIDDEN),
    "sentence_direction": Term(Lesson.sentence_direction, ("pooled",), pooled=True),
    "prediction": Term(lambda x: losses.prediction_loss(*x.logits), pooled=True, logits=True),
    "gold": Term(lambda x: x.gold(x.logits[0]), pooled=True, logits=True, teacher=False),
}


@dataclass(frozen=True)
class LossTerms:
    """The loss of one batch, term by term; `total` is minimized."""

    values: Mapping[str, Tensor]  # by the name of a term, unweighted
    total: Tensor


@dataclass(frozen=True)
class Objective:
    """A weighted sum of terms."""

    weights: Mapping[str, float]  # missing terms have weight 0
    norm_scope: NormScope = "sample"  # a norm per sample and head (the paper), or one per batch (the released code)
    mask_padding: bool = True  # the released code counts padding

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            if name not in TERMS:
                raise RecipeError(f"there is no distillation term {name!r}; {did_you_mean(name, TERMS)}")
            if not 0 <= weight < math.inf:
                raise RecipeError(f"the weight of the distillation term {name!r} is {weight}, must be from 0 up")
        object.__setattr__(self, "weights", {name: weight for name, weight in self.weights.items() if weight})
        if not self.weights:
            raise RecipeError("every distillation term has weight 0, so nothing would be learned; give one a weight")

    def reads(self, part: str) -> bool:
        """Whether any term reads a part of the lesson: `trace`, `pooled` or `logits` of the student, or `teacher`."""
        return any(getattr(TERMS[name], part) for name in self.weights)

    @property
    def trace(self) -> set[str]:
        """The parts of a trace that the terms read, to be kept by the forward pass."""
        return {part for name in self.weights for part in TERMS[name].trace}

    def __call__(
        self, student: BiBertOutput, teacher: BiBertOutput, gold: Callable[[Tensor], Tensor], match: LayerMatch
    ) -> LossTerms:
        """Evaluate every term that has a weight; `gold` is the loss of logits against the labels."""
        assert student.logits is not None
        assert teacher.logits is not None
        layers, states, pooled, mask = [], [], None, torch.ones_like(student.logits[:, :1])
        if self.reads("trace"):
            mine, theirs = student.trace, teacher.trace
            assert mine is not None
            assert theirs is not None
            layers = list(zip(mine.layers, match.taught(theirs.layers), strict=True))
            states = list(zip(mine.hidden_states, theirs.hidden_states[:: match.depth_ratio], strict=True))
            pooled = mine.pooled
            mask = mine.mask if self.mask_padding else torch.ones_like(mine.mask)
        lesson = Lesson(layers, states, pooled, (student.logits, teacher.logits), gold, mask, self.norm_scope)
        values = {name: TERMS[name].loss(lesson) for name in self.weights}
        total = _total([self.weights[name] * value for name, value in values.items()])
        if not torch.isfinite(total.detach()):
            broken = {name: value.item() for name, value in values.items() if not torch.isfinite(value.detach())}
            raise NumericError(f"the loss is not finite ({broken or 'the sum overflows'}); lower the learning rate")
        return LossTerms({name: value.detach() for name, value in values.items()}, total)
