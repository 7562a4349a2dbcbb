"""The weighted sum of terms: matched layers and heads, independence of padding, and errors."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain

import pytest
import torch

from bibert.distill.losses import sentence
from bibert.distill.objective import TERMS, LayerMatch, LossTerms, Objective, match_layers
from bibert.errors import CheckpointError, NumericError, RecipeError
from bibert.nn.layers import PER_HEAD
from bibert.nn.model import BiBertForSequenceClassification, BiBertOutput, label_loss
from bibert.nn.schemes import SCHEMES
from bibert.nn.students import first_student, with_scheme

SAME_DEPTH = LayerMatch(1, None)
LABELS = torch.tensor([0, 2, 1])
GOLD = partial(label_loss, labels=LABELS)
INSIDE = [name for name, term in TERMS.items() if term.trace]

Make = Callable[..., BiBertOutput]
Model = Callable[..., BiBertForSequenceClassification]


def terms(student: BiBertOutput, teacher: BiBertOutput, match: LayerMatch = SAME_DEPTH, **settings) -> LossTerms:
    return Objective(dict.fromkeys(TERMS, 1.0), **settings)(student, teacher, GOLD, match)


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
        gold = partial(label_loss, labels=LABELS[row : row + 1])
        alone.append(Objective(dict.fromkeys(TERMS, 1.0))(*one, gold, SAME_DEPTH))
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
    loss = Objective(weights)(make_output(0), make_output(1), GOLD, SAME_DEPTH)
    assert set(loss.values) == set(weights)
    torch.testing.assert_close(loss.total, sum(weight * loss.values[name] for name, weight in weights.items()))


def test_every_term_of_the_trace_is_a_sum_over_layers_or_hidden_states(make_output: Make):
    student, teacher = make_output(0), make_output(1)

    def part(output: BiBertOutput, some: slice) -> BiBertOutput:
        trace = output.trace
        cut = replace(trace, layers=trace.layers[some], hidden_states=trace.hidden_states[some])
        return BiBertOutput(logits=output.logits, trace=cut)

    whole, first, rest = (
        terms(part(student, some), part(teacher, some)).values for some in (slice(None), slice(1), slice(1, None))
    )
    torch.testing.assert_close(whole.pop("sentence_direction"), rest["sentence_direction"])  # the last state alone
    for name in whole.keys() & INSIDE:
        torch.testing.assert_close(whole[name], first[name] + rest[name], msg=name)


def test_a_trace_of_what_an_objective_reads_has_these_fields_alone_and_the_same_loss(make_model: Model):
    student, teacher = make_model(layers=2), make_model(layers=2)
    objective = Objective({"attention": 1.0, "dmd_key": 1.0, "hidden": 1.0})
    inputs = {"input_ids": torch.arange(5, 11).repeat(len(LABELS), 1)}
    whole, traced = (
        [model(**inputs, trace=trace) for model in (student, teacher)] for trace in (True, objective.trace)
    )
    assert objective.trace == {"scores", "key", "hidden_states"}
    assert all(vars(layer).keys() == {"scores", "key"} for output in traced for layer in output.trace.layers)
    losses = [objective(*outputs, LABELS, SAME_DEPTH).total for outputs in (whole, traced)]
    assert losses[0] == losses[1]


def test_without_a_term_that_reads_it_there_is_no_trace(make_model: Model):
    assert make_model()(torch.arange(5, 11)[None], trace=Objective({"prediction": 1.0}).trace).trace is None


@pytest.mark.parametrize("ratio", [2, 3])
def test_last_layer_of_each_block_of_a_deeper_teacher_teaches(make_model: Model, make_output: Make, ratio: int):
    match = match_layers(make_model(layers=2).config, make_model(layers=2 * ratio).config)
    student, teacher = make_output(0, layers=2), make_output(1, layers=2 * ratio)
    assert match.taught(teacher.trace.layers) == [teacher.trace.layers[ratio - 1], teacher.trace.layers[2 * ratio - 1]]
    loss = Objective({"hidden": 1.0})(student, teacher, GOLD, match)
    ends = [teacher.trace.hidden_states[i * ratio] for i in range(3)]
    chosen = BiBertOutput(
        logits=teacher.logits, trace=replace(teacher.trace, hidden_states=ends, layers=student.trace.layers)
    )
    assert loss.total == Objective({"hidden": 1.0})(student, chosen, GOLD, SAME_DEPTH).total


def test_half_width_student_learns_from_the_heads_it_kept(make_model: Model):
    teacher = make_model(heads=4)
    student = first_student(teacher, SCHEMES["binarybert_1-1-1"])
    match = match_layers(student.config, teacher.config)
    inputs = {"input_ids": torch.arange(5, 11)[None]}
    mine, theirs = (model(**inputs, trace=True).trace.layers for model in (student, teacher))
    for layer, (student_trace, teacher_trace) in enumerate(zip(mine, match.taught(theirs), strict=True)):
        kept = student.config.kept_heads[layer]
        assert len(kept) == student_trace.scores.shape[1] == 2
        assert {name for name, x in vars(student_trace).items() if name != "levels" and x.dim() == 4} == set(PER_HEAD)
        for name in PER_HEAD:
            assert torch.equal(getattr(teacher_trace, name), getattr(theirs[layer], name)[:, kept]), name


def test_half_width_copy_of_the_teacher_has_the_queries_of_the_kept_heads(make_model: Model):
    teacher = make_model(heads=4, layers=1).eval()
    student = first_student(teacher, SCHEMES["binarybert_1-1-1"])
    narrow = with_scheme(student, SCHEMES["full_precision"]).eval()
    match = match_layers(narrow.config, teacher.config)
    outputs = [model(torch.arange(5, 11)[None], trace=True) for model in (narrow, teacher)]
    loss = Objective({"dmd_query": 1.0, "attention": 1.0})(*outputs, GOLD, match)
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
        match_layers(make_model().config, make_model(**changes).config)
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


@pytest.mark.parametrize("name", TERMS)
def test_a_term_teaches_the_student_by_the_parts_that_its_entry_names(make_output: Make, name: str):
    student, teachers, term = make_output(0), (make_output(1), make_output(2)), TERMS[name]
    parts = {"hidden_states": student.trace.hidden_states, "logits": [student.logits], "pooled": [student.trace.pooled]}
    parts |= {
        key: [getattr(layer, key) for layer in student.trace.layers]
        for key in vars(student.trace.layers[0]).keys() - {"levels"}
    }
    for x in chain.from_iterable(parts.values()):
        x.requires_grad_()
    losses = [Objective({name: 1.0})(student, teacher, GOLD, SAME_DEPTH).total for teacher in teachers]
    losses[0].backward()
    read = {key for key, tensors in parts.items() if any(x.grad is not None and x.grad.any() for x in tensors)}
    assert read == {*term.trace, *(("logits",) if term.logits else ())}
    assert bool(losses[0] != losses[1]) == term.teacher


def test_terms_that_are_logged_carry_no_graph(make_output: Make):
    student = make_output(0)
    student.logits.requires_grad_()
    loss = terms(student, make_output(1))
    assert loss.total.requires_grad
    assert not any(value.requires_grad for value in loss.values.values())


@pytest.mark.parametrize(
    ("weights", "needs"),
    [
        ({"prediction": 1.0}, (False, True, True, True)),
        ({"gold": 1.0}, (False, True, True, False)),
        ({"hidden": 1.0}, (True, False, False, True)),
        ({"sentence_direction": 1.0}, (True, True, False, True)),
        ({"dmd_key": 1.0, "gold": 1.0}, (True, True, True, True)),
    ],
)
def test_an_objective_knows_what_it_needs(weights: dict, needs: tuple):
    objective = Objective(weights)
    assert tuple(map(objective.reads, ("trace", "pooled", "logits", "teacher"))) == needs


def test_the_sentence_of_the_teacher_is_the_mean_of_its_real_tokens(make_output: Make, padded):
    student, teacher = make_output(0), make_output(1)
    states, lengths = teacher.trace.hidden_states[-1], (5, 3, 1)
    expected = torch.stack([states[row, :length].mean(0) for row, length in enumerate(lengths)])
    longer = padded(teacher, 4).trace
    torch.testing.assert_close(sentence(longer.hidden_states[-1], longer.mask), expected)
    student.trace.pooled = 7 * expected  # the size does not count
    loss = Objective({"sentence_direction": 1.0})(student, teacher, GOLD, SAME_DEPTH)
    torch.testing.assert_close(loss.total, torch.zeros_like(loss.total))
