"""The weighted sum of terms: matched layers and heads, independence of padding, and errors."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from bibert.distill.objective import TERMS, LayerMatch, LossTerms, Objective, match_layers
from bibert.errors import CheckpointError, NumericError, RecipeError
from bibert.nn.model import BiBertForSequenceClassification, BiBertOutput
from bibert.nn.schemes import SCHEMES
from bibert.nn.students import first_student, with_scheme

SAME_DEPTH = LayerMatch(1, None)
LABELS = torch.tensor([0, 2, 1])
INSIDE = [name for name, term in TERMS.items() if term.trace]

Make = Callable[..., BiBertOutput]
Model = Callable[..., BiBertForSequenceClassification]


def terms(student: BiBertOutput, teacher: BiBertOutput, match: LayerMatch = SAME_DEPTH, **settings) -> LossTerms:
    labels = LABELS[: len(student.logits)]
    return Objective(dict.fromkeys(TERMS, 1.0), **settings)(student, teacher, labels, match)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scope", ["sample", "batch"])
def test_no_term_depends_on_padding(make_output: Make, padded, dtype: torch.dtype, scope: str):
    student, teacher = make_output(0, dtype=dtype), make_output(1, dtype=dtype)
    short = terms(student, teacher, norm_scope=scope)
    for more in (1, 11):
        long = terms(padded(student, more), padded(teacher, more), norm_scope=scope)
        for name in TERMS:
            torch.testing.assert_close(long.values[name], short.values[name], msg=name)


def test_loss_of_a_batch_is_the_mean_over_its_texts(make_output: Make, rows_of):
    student, teacher = make_output(0), make_output(1)
    together = terms(student, teacher)
    alone = []
    for row in range(3):
        one = [rows_of(output, slice(row, row + 1)) for output in (student, teacher)]
        alone.append(Objective(dict.fromkeys(TERMS, 1.0))(*one, LABELS[row : row + 1], SAME_DEPTH))
    for name in TERMS:
        mean = torch.stack([loss.values[name] for loss in alone]).mean()
        torch.testing.assert_close(together.values[name], mean, msg=name)
    torch.testing.assert_close(together.total, torch.stack([loss.total for loss in alone]).mean())


def test_without_masking_padding_counts(make_output: Make, padded):
    student, teacher = make_output(0), make_output(1)
    masked, counted = terms(student, teacher), terms(student, teacher, mask_padding=False)
    longer = terms(padded(student, 4), padded(teacher, 4), mask_padding=False)
    for name in INSIDE:
        assert counted.values[name] != masked.values[name], name
        assert counted.values[name] != longer.values[name], name


def test_total_is_the_weighted_sum_of_the_terms(make_output: Make):
    weights = {"hidden": 2.0, "dmd_value": 0.5, "gold": 3.0}
    loss = Objective(weights)(make_output(0), make_output(1), LABELS, SAME_DEPTH)
    assert set(loss.values) == set(weights)
    torch.testing.assert_close(loss.total, sum(weight * loss.values[name] for name, weight in weights.items()))


def test_a_term_is_the_sum_over_layers(make_output: Make):
    student, teacher = make_output(0), make_output(1)
    both = terms(student, teacher)
    for trace in (student.trace, teacher.trace):
        trace.layers.pop()
    first = terms(student, teacher)
    student.trace.layers, teacher.trace.layers = make_output(0).trace.layers[1:], make_output(1).trace.layers[1:]
    second = terms(student, teacher)
    for name in ("attention", "mha", "dmd_query", "dmd_key", "dmd_value"):
        torch.testing.assert_close(both.values[name], first.values[name] + second.values[name])


@pytest.mark.parametrize("step", [2, 3])
def test_last_layer_of_each_block_of_a_deeper_teacher_teaches(make_model: Model, make_output: Make, step: int):
    match = match_layers(make_model(layers=2), make_model(layers=2 * step))
    student, teacher = make_output(0, layers=2), make_output(1, layers=2 * step)
    assert match.taught(teacher.trace.layers) == [teacher.trace.layers[step - 1], teacher.trace.layers[2 * step - 1]]
    loss = Objective({"hidden": 1.0})(student, teacher, LABELS, match)
    ends = [teacher.trace.hidden_states[i * step] for i in range(3)]
    chosen = BiBertOutput(
        logits=teacher.logits, trace=replace(teacher.trace, hidden_states=ends, layers=student.trace.layers)
    )
    assert loss.total == Objective({"hidden": 1.0})(student, chosen, LABELS, SAME_DEPTH).total


def test_half_width_student_learns_from_the_heads_it_kept(make_model: Model):
    teacher = make_model(heads=4)
    student = first_student(teacher, SCHEMES["binarybert_1-1-1"])
    match = match_layers(student, teacher)
    inputs = {"input_ids": torch.arange(5, 11)[None]}
    mine, theirs = (model(**inputs, trace=True).trace.layers for model in (student, teacher))
    for layer, (student_trace, teacher_trace) in enumerate(zip(mine, match.taught(theirs), strict=True)):
        kept = student.config.kept_heads[layer]
        assert len(kept) == student_trace.scores.shape[1] == 2
        for name in ("query", "key", "value", "scores", "weights"):
            assert torch.equal(getattr(teacher_trace, name), getattr(theirs[layer], name)[:, kept]), name


def test_half_width_copy_of_the_teacher_has_the_queries_of_the_kept_heads(make_model: Model):
    teacher = make_model(heads=4, layers=1).eval()
    student = first_student(teacher, SCHEMES["binarybert_1-1-1"])
    narrow = with_scheme(student, SCHEMES["full_precision"]).eval()
    match = match_layers(narrow, teacher)
    outputs = [model(torch.arange(5, 11)[None], trace=True) for model in (narrow, teacher)]
    loss = Objective({"dmd_query": 1.0, "attention": 1.0})(*outputs, LABELS[:1], match)
    torch.testing.assert_close(loss.total, torch.tensor(0.0), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [
        ({"layers": 3}, ("3", "2")),
        ({"layers": 1}, ("1", "2")),
        ({"hidden": 32}, ("32", "16")),
        ({"heads": 4}, ("8", "4")),
        ({"heads": 4, "hidden": 32}, ("32", "16")),
        ({"labels": 5}, ("5", "2")),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused_with_both_numbers(make_model: Model, changes: dict, numbers: tuple):
    with pytest.raises(CheckpointError) as refusal:
        match_layers(make_model(), make_model(**changes))
    for number in numbers:
        assert number in str(refusal.value)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"dmd_querry": 1.0}, "'dmd_querry'.*'dmd_query'"),
        ({}, "weight 0"),
        ({"hidden": 0.0, "gold": 0.0}, "weight 0"),
        *(({"hidden": 1.0, "gold": weight}, f"'gold' is {weight}") for weight in (-1.0, float("nan"), float("inf"))),
    ],
)
def test_unknown_terms_and_weights_that_teach_nothing_or_are_out_of_range_are_refused(weights: dict, message: str):
    with pytest.raises(RecipeError, match=message):
        Objective(weights)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_an_error_that_names_the_term(make_output: Make, value: float):
    student, teacher = make_output(0), make_output(1)
    student.trace.layers[1].mha[0, 0, 0] = value
    with pytest.raises(NumericError, match=r"\{'mha': (nan|inf)\}"):
        terms(student, teacher)


def test_gradient_reaches_the_student_and_not_the_teacher(make_output: Make):
    student, teacher = make_output(0), make_output(1)
    read: dict[str, list[Tensor]] = {}
    for name, output in (("student", student), ("teacher", teacher)):
        layers = [x for layer in output.trace.layers for x in (layer.query, layer.key, layer.value, layer.scores)]
        read[name] = [*output.trace.hidden_states, *layers, output.logits]
    for x in (x for tensors in read.values() for x in tensors):
        x.requires_grad_()
    inside = dict.fromkeys(("attention", "dmd_query", "dmd_key", "dmd_value", "hidden_direction", "gold"), 1.0)
    Objective(inside)(student, teacher, LABELS, SAME_DEPTH).total.backward()
    assert all(x.grad is not None and x.grad.abs().sum() > 0 for x in read["student"])
    directions = [*teacher.trace.hidden_states, *(layer.query for layer in teacher.trace.layers)]
    assert not any(x.grad is not None and x.grad.any() for x in directions)


def test_terms_that_are_logged_carry_no_graph(make_output: Make):
    student = make_output(0)
    student.logits.requires_grad_()
    loss = terms(student, make_output(1))
    assert loss.total.requires_grad
    assert not any(value.requires_grad for value in loss.values.values())


@pytest.mark.parametrize(
    ("weights", "needs"),
    [
        ({"prediction": 1.0}, (False, True, True)),
        ({"gold": 1.0}, (False, True, False)),
        ({"hidden": 1.0}, (True, False, True)),
        ({"dmd_key": 1.0, "gold": 1.0}, (True, True, True)),
    ],
)
def test_an_objective_knows_what_it_needs(weights: dict, needs: tuple):
    objective = Objective(weights)
    assert tuple(map(objective.reads, ("trace", "logits", "teacher"))) == needs
