"""Every scheme as a network: it trains, all of it learns, and in eval mode its products see only its levels.

A dispatch mode watches the products inside torch, so none can bypass it. Structures that a scheme keeps in full
precision are not quantized, and a student that keeps all of them answers like its teacher.
"""

import math
import re
from collections import Counter
from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bibert.distill.objective import Objective, match_layers
from bibert.nn.layers import BiAttention, QuantEmbedding, QuantLinear, SoftmaxAttention
from bibert.nn.model import label_loss
from bibert.nn.schemes import SCHEMES, STRUCTURES, Stage, baseline_quantile, get_scheme
from bibert.nn.students import binarize, calibrate, first_student, split_student

ALL = [*SCHEMES.values(), baseline_quantile(30)]
PROBES = [get_scheme(f"baseline(kept={structure})") for structure in STRUCTURES]
PROBES += [get_scheme(f"baseline(without={term})") for term in SCHEMES["baseline"].schedule[0].weights]
QUANTIZED = [row for row in ALL if row.is_quantized]
SIGNS = [row for row in ALL if row.activation == "sign"]
STEPS, LENGTHS = 20, (12, 7, 9, 4, 10, 6, 12, 3)
HEAD = ("bert.pooler.", "classifier.")
ROUNDING = 1e-9  # a smaller gradient is the noise of one that should be 0


def by_name(schemes):
    return pytest.mark.parametrize("scheme", schemes, ids=lambda scheme: scheme.name)


# ---------------------------------------------------------------------------------------------- training


def train(student, teacher, stage: Stage, batch):
    """Train on one batch by the objective of a stage: the losses, and the largest gradient of each parameter."""
    match = match_layers(student.config, teacher.config)
    objective, losses, largest = Objective(stage.weights), [], Counter()
    texts = {name: value for name, value in batch.items() if name != "labels"}
    gold = partial(label_loss, labels=batch["labels"])
    with torch.no_grad():
        taught = teacher(**texts, trace=True)
    optimizer = torch.optim.Adam(student.train().parameters(), lr=1e-3)
    for _ in range(STEPS):
        loss = objective(student(**texts, trace=objective.trace), taught, gold, match).total
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        largest |= {n: p.grad.abs().max().item() for n, p in student.named_parameters() if p.grad is not None}
        optimizer.step()
    return losses, largest


def untaught(name: str, stage: Stage) -> bool:
    """Whether the objective cannot reach a parameter."""
    if not Objective(stage.weights).reads("logits") and name.startswith(HEAD):
        return True
    # A key bias shifts all scores of a row alike, which a softmax does not see; only these terms look before it.
    return name.endswith("key.bias") and not {"attention", "dmd_key"} & set(stage.weights)


@pytest.fixture
def teacher(new_model):
    return new_model(seed=1)


@pytest.fixture
def batch(new_batch):
    return new_batch(LENGTHS) | {"labels": torch.tensor([0, 1] * 4)}


@pytest.mark.parametrize(
    ("scheme", "number"),
    [(scheme, number) for scheme in (*ALL, *PROBES) for number in range(len(scheme.schedule))],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_stage_trains_and_reaches_every_parameter(scheme, number, teacher, batch):
    stage = scheme.schedule[number]
    student = first_student(teacher, scheme)
    if scheme.split and not stage.half_width_ternary:
        student = split_student(student, scheme)
    calibrate(student, batch, teacher)
    losses, largest = train(student, teacher, stage, batch)
    assert all(math.isfinite(loss) for loss in losses)
    assert sum(losses[-5:]) < sum(losses[:5]), losses
    names = [name for name, _ in student.named_parameters() if not untaught(name, stage)]
    assert [name for name in names if largest[name] < ROUNDING] == []


# ---------------------------------------------------------------------------------------------- levels


class Products(TorchDispatchMode):
    """Record the two operands of every matrix product."""

    KINDS = ("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "linear")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in self.KINDS or "scaled_dot_product" in name:
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
    "levels": integers(-15, 15),
}
WEIGHT = INPUT | {"symmetric": values(-1, 0, 1), "group_affine": few_in(4, rows)}
HEADS = INPUT | {"affine": few_in(256, whole_matrices)}
REAL_KEYS = INPUT | {
    "mean": values(0, 1),
    "quantile": values(0, 1),
    "asym": few_in(2, rows),
    "bwn": values(1),
    "levels": integers(0, 15),
}


@by_name(QUANTIZED)
def test_every_product_of_eval_mode_sees_the_levels_of_the_scheme(scheme, teacher, batch):
    student = binarize(teacher, scheme).eval()
    calibrate(student, batch, teacher)
    with Products() as products, torch.no_grad():
        student(**batch)
    seen = products.seen  # without the classifier, which adds up in a fixed order
    assert {left.dtype for _, left, _ in seen} == {torch.float32}
    linear = [entry for entry in seen if entry[0] == "mm"]
    heads = [entry for entry in seen if entry[0] == "bmm"]
    copies = 2 if scheme.split else 1
    assert (len(linear), len(heads)) == (copies * (6 * 2 + 1), 2 * 2)
    assert len(seen) == len(linear) + len(heads)
    inner = student.config.intermediate_size
    for _, inputs, weight in linear:
        name = scheme.ffn_hidden or scheme.activation if inputs.shape[1] == inner else scheme.activation
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
def test_logits_of_rivals_do_not_depend_on_padding_either(scheme, teacher, new_batch):
    student = binarize(teacher, scheme).eval()
    calibrate(student, new_batch(LENGTHS), teacher)
    logits = student(**new_batch(LENGTHS)).logits
    torch.testing.assert_close(student(**new_batch(LENGTHS, width=31)).logits, logits, atol=1e-5, rtol=0)


# ---------------------------------------------------------------------------------------------- kept structures

OWN = {  # the modules of each structure
    "mha": r"\.attention\.",
    "intermediate": r"\.intermediate\.",
    "output": r"layer\.\d\.output\.",
    "pooler": r"\.pooler\.",
    "embedding": r"\.word_embeddings",
}
ROWS = ("baseline", "bibert", "bibert_plus", "ternarybert_2-2-8", "q_bert")


def quantizers(model):
    """The quantizer of every linear layer and of the word embedding, by name."""
    kinds = (QuantLinear, QuantEmbedding)
    return {name: module.quantizer for name, module in model.named_modules() if isinstance(module, kinds)}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_exactly_the_kept_structure_is_not_quantized(row, structure, new_model):
    teacher = new_model()
    whole, kept = quantizers(binarize(teacher, row)), binarize(teacher, f"{row}(kept={structure})")
    assert quantizers(kept) == {n: "none" if re.search(OWN[structure], n) else value for n, value in whole.items()}
    learned = [name for name, _ in kept.named_parameters() if name.endswith((".threshold", ".gain"))]
    assert bool(learned) == (row == "bibert_plus")
    assert not [name for name in learned if re.search(OWN[structure], name)]
    for block in kept.bert.encoder.layer:
        softmax = structure == "mha" or SCHEMES[row].normalizer == "softmax"
        assert isinstance(block.attention.self.attention, SoftmaxAttention if softmax else BiAttention)


@pytest.mark.parametrize("row", ROWS)
@torch.no_grad()
def test_a_student_that_keeps_all_structures_answers_like_its_teacher(row, new_model, new_batch):
    teacher, batch = new_model(), new_batch((12, 7, 9, 4))
    student = binarize(teacher, f"{row}(kept={'+'.join(STRUCTURES)})").eval()
    expected = teacher(**batch).logits
    # LayerNorm rounds its input to 2^-16 in a student; nothing else may differ.
    torch.testing.assert_close(student(**batch).logits, expected, atol=1e-4, rtol=0)
    assert not torch.allclose(binarize(teacher, row).eval()(**batch).logits, expected, atol=1e-2)


@torch.no_grad()
def test_the_ffn_activation_belongs_to_the_second_layer(new_model, new_batch):
    """A sign needs no GELU in front of it, and `bool` follows `linear`; a float layer needs the GELU itself."""
    batch = new_batch((5, 3))
    for row in ("baseline", "bibert_plus"):
        student = binarize(new_model(), f"{row}(kept=output)").eval()
        trace = student(**batch, trace=True).trace
        assert trace.layers[0].ffn_hidden.min() > -0.2  # the lowest value of GELU is -0.17
    folded = binarize(new_model(), "baseline(kept=intermediate)").eval()
    assert folded(**batch, trace=True).trace.layers[0].ffn_hidden.min() < -0.2
