"""Every scheme of the table: it trains, all of it learns, and in eval mode its products see its levels only.

The products are watched where torch computes them (a dispatch mode), so nothing can slip past a module hook.
"""

import json
import math
import re
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bibert.distill.objective import Objective, match_layers
from bibert.errors import SchemeError
from bibert.nn.binarization import binarize, calibrate, first_student, split_student
from bibert.nn.schemes import (
    SCHEMES,
    STRUCTURES,
    Bits,
    Scheme,
    Stage,
    baseline_quantile,
    get_scheme,
    half_width_ternary,
)

ALL = [*SCHEMES.values(), baseline_quantile(30)]
PROBES = [get_scheme(f"baseline(kept={structure})") for structure in STRUCTURES]
PROBES += [get_scheme(f"baseline(without={term})") for term in SCHEMES["baseline"].schedule[0].terms]
QUANTIZED = [row for row in ALL if row.is_quantized]
SIGNS = [row for row in ALL if row.activation == "sign"]
SPLIT = [row for row in ALL if row.split]
STEPS, LENGTHS = 20, (12, 7, 9, 4, 10, 6, 12, 3)
HEAD = ("bert.pooler.", "classifier.")
ROUNDING = 1e-9  # a smaller gradient is the noise of one that should be 0


def by_name(schemes):
    return pytest.mark.parametrize("scheme", schemes, ids=lambda scheme: scheme.name)


# ---------------------------------------------------------------------------------------------- training


@dataclass
class Course:
    """What 20 steps left behind: the losses, and the largest gradient each parameter ever had."""

    losses: list[float] = field(default_factory=list)
    gradients: dict[str, float] = field(default_factory=dict)

    def note(self, loss, student) -> None:
        self.losses.append(loss.item())
        for name, parameter in student.named_parameters():
            largest = 0.0 if parameter.grad is None else parameter.grad.abs().max().item()
            self.gradients[name] = max(largest, self.gradients.get(name, 0.0))


def train(student, teacher, stage: Stage, batch) -> Course:
    """Train on one batch by the objective of a stage."""
    objective, match, course = Objective(stage.terms), match_layers(student, teacher), Course()
    texts = {name: value for name, value in batch.items() if name != "labels"}
    with torch.no_grad():
        taught = teacher(**texts, trace=True)
    optimizer = torch.optim.Adam(student.train().parameters(), lr=1e-3)
    for _ in range(STEPS):
        loss = objective(student(**texts, trace=objective.needs_trace), taught, batch["labels"], match).total
        optimizer.zero_grad()
        loss.backward()
        course.note(loss, student)
        optimizer.step()
    return course


def untaught(name: str, stage: Stage) -> bool:
    """Whether the objective cannot reach a parameter."""
    if not Objective(stage.terms).reaches_logits and name.startswith(HEAD):
        return True
    # A key bias shifts all scores of a row alike, which a softmax does not see; only these terms look before it.
    return name.endswith("key.bias") and not {"attention", "dmd_key"} & set(stage.terms)


@pytest.fixture
def teacher(new_model):
    return new_model(seed=1)


@pytest.fixture
def batch(new_batch):
    return new_batch(LENGTHS) | {"labels": torch.tensor([0, 1] * 4)}


def check(course: Course, stage: Stage) -> None:
    assert all(math.isfinite(loss) for loss in course.losses)
    assert sum(course.losses[-5:]) < sum(course.losses[:5]), course.losses
    still = {name for name, size in course.gradients.items() if size < ROUNDING and not untaught(name, stage)}
    assert still == set()


@by_name([*ALL, *PROBES])
def test_the_first_stage_trains_and_reaches_every_parameter(scheme, teacher, batch):
    student = first_student(teacher, scheme)
    calibrate(student, batch, teacher)
    check(train(student, teacher, scheme.schedule[0], batch), scheme.schedule[0])


@by_name(SPLIT)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_later_stages_of_a_split_scheme_train_too(scheme, number, teacher, batch):
    stage = scheme.schedule[number]
    student = first_student(teacher, scheme)
    if not stage.half_width_ternary:
        student = split_student(student, scheme)
    calibrate(student, batch, teacher)
    check(train(student, teacher, stage, batch), stage)


# ---------------------------------------------------------------------------------------------- levels


class Products(TorchDispatchMode):
    """Keeps the two operands of every matrix product."""

    KINDS = (
        "mm",
        "bmm",
        "addmm",
        "baddbmm",
        "addmv",
        "mv",
        "dot",
        "linear",
        "_scaled_dot_product_flash_attention_for_cpu",
    )

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in self.KINDS:
            left, right = [arg for arg in args if isinstance(arg, torch.Tensor)][-2:]
            self.seen.append((name, left.detach().clone(), right.detach().clone()))
        return function(*args, **(kwargs or {}))


def integers(low, high):
    return lambda x: bool((x == x.round()).all() and x.min() >= low and x.max() <= high)


def values(*allowed):
    return lambda x: set(x.unique().tolist()) <= set(allowed)


def few_in(most, groups):
    """At most `most` different values in each of the groups that share a range."""
    return lambda x: all(len(group.unique()) <= most for group in groups(x))


def rows(x):
    return x.flatten(0, -2)


def whole_matrices(x):
    return x.reshape(-1, x.shape[-2] * x.shape[-1])


INPUT = {
    "sign": values(-1, 1),
    "bool": values(0, 1),
    "bwn": values(-1, 1),
    "twn": values(-1, 0, 1),
    "symmetric": integers(-127, 127),
    "ema_symmetric": integers(-127, 127),
    "affine": few_in(256, rows),
    "lsq": integers(-8, 7),
    "lsq_unsigned": integers(0, 15),
}
WEIGHT = INPUT | {"symmetric": values(-1, 0, 1), "group_affine": few_in(4, rows)}
HEADS = INPUT | {"affine": few_in(256, whole_matrices)}
REAL_KEYS = INPUT | {
    "sign": values(-1, 1),
    "bool": values(0, 1),
    "mean": values(0, 1),
    "quantile": values(0, 1),
    "asym": few_in(2, rows),
    "bwn": values(1),
}


def watch(student, batch) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    with Products() as products, torch.no_grad():
        student(**{name: value for name, value in batch.items() if name != "labels"})
    return products.seen


@by_name(QUANTIZED)
def test_every_product_of_eval_mode_sees_the_levels_of_the_scheme(scheme, teacher, batch):
    student = binarize(teacher, scheme).eval()
    calibrate(student, batch, teacher)
    seen = watch(student, batch)
    head = seen.pop()
    assert (head[0], head[1].dtype) == ("addmm", torch.float64)  # the classifier: float64, the only exception
    assert {left.dtype for _, left, _ in seen} == {torch.float32}
    linear = [entry for entry in seen if entry[0] == "mm"]
    heads = [entry for entry in seen if entry[0] == "bmm"]
    copies = 2 if scheme.split else 1
    assert (len(linear), len(heads)) == (copies * (6 * 2 + 1), 2 * 2)
    assert len(seen) == len(linear) + len(heads)
    inner = student.config.intermediate_size
    for _, inputs, weight in linear:
        name = scheme.ffn_input or scheme.activation if inputs.shape[1] == inner else scheme.activation
        assert INPUT[name](inputs)
        assert WEIGHT[scheme.weight](weight.T)
    mask = batch["attention_mask"].bool().repeat_interleave(student.config.num_attention_heads, dim=0)
    for (_, query, key), (_, weights, value) in zip(heads[::2], heads[1::2], strict=True):
        assert HEADS[scheme.activation](query)
        assert HEADS[scheme.activation](key.transpose(-1, -2))
        assert HEADS[scheme.activation](value.transpose(-1, -2))
        for text, real in zip(weights, mask, strict=True):
            assert (text[:, ~real] == 0).all()  # masked keys, in every scheme
            assert REAL_KEYS[scheme.attention](text[:, real])


@by_name(SIGNS)
def test_word_embeddings_of_a_one_bit_scheme_have_two_values_per_token(scheme, teacher):
    rows_of = binarize(teacher, scheme).bert.embeddings.word_embeddings(torch.arange(90))
    sizes = rows_of.abs()
    assert torch.equal(sizes, sizes[:, :1].expand_as(sizes))
    assert (rows_of[1:] < 0).any(dim=1).all()


# ---------------------------------------------------------------------------------------------- invariance


@by_name(SIGNS)
@torch.no_grad()
def test_logits_are_the_same_bits_alone_in_a_batch_and_with_more_padding(scheme, teacher, new_batch):
    student = binarize(teacher, scheme).eval()
    together = new_batch(LENGTHS)
    logits = student(**together).logits
    assert len(logits.unique()) > 8
    assert torch.equal(student(**new_batch(LENGTHS, width=31)).logits, logits)
    for row, length in enumerate(LENGTHS):
        alone = {name: value[row : row + 1, :length] for name, value in together.items()}
        assert torch.equal(student(**alone).logits[0], logits[row])
    order = torch.tensor([5, 2, 7, 0, 1, 3, 6, 4])
    assert torch.equal(student(**{name: value[order] for name, value in together.items()}).logits, logits[order])


@by_name([row for row in QUANTIZED if row.activation != "sign" and row.name != "q_bert"])
@torch.no_grad()
def test_rivals_with_scales_of_their_own_do_not_see_padding_either(scheme, teacher, new_batch):
    student = binarize(teacher, scheme).eval()
    calibrate(student, new_batch(LENGTHS), teacher)
    logits = student(**new_batch(LENGTHS)).logits
    torch.testing.assert_close(student(**new_batch(LENGTHS, width=31)).logits, logits, atol=1e-5, rtol=0)


# ---------------------------------------------------------------------------------------------- the table


def test_every_row_of_the_papers_tables_is_there():
    assert set(SCHEMES) >= {
        *("full_precision", "bibert", "baseline", "baseline+bi_attention", "baseline+dmd"),
        *("baseline_asym", "baseline_mu", "baseline_50"),
        *("attention_sign", "attention_bool", "attention_sign_max_entropy", "attention_bool_max_entropy"),
        *("q_bert", "q2bert", "ternarybert_2-2-8", "ternarybert_2-2-2", "ternarybert_2-2-1"),
        *("binarybert_1-1-4", "binarybert_1-1-2", "binarybert_1-1-1", "binarybert_50"),
    }
    assert str(SCHEMES["q_bert"].bits) == str(SCHEMES["q2bert"].bits) == "2-8-8"
    for name in ("ternarybert_2-2-8", "ternarybert_2-2-1", "binarybert_1-1-4"):
        assert name.endswith(str(SCHEMES[name].bits))


def test_only_the_teacher_is_not_quantized():
    assert [row.name for row in ALL if not row.is_quantized] == ["full_precision"]


@by_name([*ALL, *PROBES])
def test_a_scheme_survives_json(scheme):
    assert Scheme.from_dict(json.loads(json.dumps(scheme.to_dict()))) == scheme
    assert get_scheme(scheme.name) == scheme


def test_a_sign_takes_the_gelu_before_it_into_its_gradient():
    second = {
        name: get_scheme(name).ffn_quantizer for name in ("bibert", "bibert(ffn_activation=linear)", "bibert_plus")
    }
    assert list(second.values()) == ["gelu_sign", "sign", "bool"]
    assert SCHEMES["binarybert_1-1-4"].ffn_quantizer == "lsq_unsigned"
    assert get_scheme("bibert(kept=output)").part("output").ffn_quantizer == "none"


@by_name(ALL)
def test_every_term_of_a_schedule_is_a_distillation_term(scheme):
    for stage in scheme.schedule:
        assert Objective(stage.terms).weights == stage.terms


@pytest.mark.parametrize(("name", "share"), [("baseline_quantile(10)", 0.1), ("baseline_quantile(12.5)", 0.125)])
def test_a_quantile_of_any_percentage_is_a_scheme(name, share):
    row = get_scheme(name)
    assert (row.name, row.quantile, row.attention) == (name, share, "quantile")


@pytest.mark.parametrize("percent", [0, 100, 250])
def test_a_quantile_outside_the_open_interval_is_refused(percent):
    with pytest.raises(SchemeError, match=r"quantile is .*, must lie between 0 and 1"):
        get_scheme(f"baseline_quantile({percent})")


def test_an_unknown_scheme_is_refused_with_what_was_meant_or_all_that_exist():
    with pytest.raises(SchemeError, match=r"no scheme 'bibrt'; did you mean 'bibert'\? \(bibert schemes lists them\)"):
        get_scheme("bibrt")
    with pytest.raises(SchemeError) as caught:
        get_scheme("xyz")
    assert all(name in str(caught.value) for name in SCHEMES)


def test_fields_that_contradict_each_other_are_refused():
    with pytest.raises(SchemeError, match="a quantile goes with attention='quantile'"):
        Scheme("odd", Bits(1, 1, 1), attention="sign", quantile=0.5)
    with pytest.raises(SchemeError, match="has no field 'wieght'; did you mean 'weight'"):
        Scheme.from_dict(SCHEMES["bibert"].to_dict() | {"wieght": "sign"})
    with pytest.raises(SchemeError, match="'bibert' is not split, so it has no ternary first student"):
        half_width_ternary(SCHEMES["bibert"])


def test_a_row_with_changed_fields_is_written_in_parentheses():
    scheme = get_scheme("bibert(gain=row, scaled_context=true, thresholds=value+attention_input)")
    assert (scheme.gain, scheme.scaled_context) == ("row", True)
    assert scheme.thresholds == ("attention_input", "value")  # in the order of the file
    assert replace(scheme, name="bibert", gain="none", scaled_context=False, thresholds=()) == get_scheme("bibert")
    assert get_scheme("bibert_plus(thresholds=)").thresholds == ()


WRONG_VARIANTS = {
    "bibert(gian=row)": "'gian' is not a field to change; did you mean 'gain'",
    "bibert(bits=2)": "'bits' is not a field to change",
    "bibert(gain=column)": "gain is 'column', must be one of none, layer, row",
    "bibert(scaled_context=yes)": "scaled_context is 'yes', must be true or false",
    "q_bert(gain=row)": "gain is 'row', but weight='group_affine' has no scale",
    "full_precision(gain=layer)": "gain is 'layer', but weight='none' has no scale",
    "binarybert_1-1-1(gain=row)": "the two halves of a split weight have a scale each",
    "bibert(thresholds=context+nowhere)": "no threshold can stand at 'nowhere'",
    "baseline(score_thresholds=true)": "belong to Bi-Attention",
    "bibret(gain=row)": "there is no scheme 'bibret'",
}


@pytest.mark.parametrize(("name", "says"), WRONG_VARIANTS.items())
def test_a_change_that_has_no_meaning_is_refused(name, says):
    with pytest.raises(SchemeError, match=re.escape(says)):
        get_scheme(name)
