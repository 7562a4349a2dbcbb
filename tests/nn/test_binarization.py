"""Students: copies of the teacher's weights under a scheme, and what one batch sets before training."""

from dataclasses import replace

import pytest
import torch

from bibert.errors import SchemeError
from bibert.nn.binarization import binarize, calibrate, first_student, split_student, with_scheme
from bibert.nn.schemes import SCHEMES, baseline_quantile, half_width_ternary

PLAIN = [name for name, row in SCHEMES.items() if not row.split]
SPLIT = [name for name, row in SCHEMES.items() if row.split]


@pytest.mark.parametrize("name", PLAIN)
def test_a_student_starts_from_the_teachers_latent_weights(name, new_model):
    teacher = new_model()
    student = binarize(teacher, name)
    assert student.config.quantization == SCHEMES[name]
    mine = dict(student.named_parameters())
    for key, value in teacher.named_parameters():
        assert torch.equal(mine[key], value)
        assert mine[key].data_ptr() != value.data_ptr()  # a copy: training one does not move the other
    new = mine.keys() - dict(teacher.named_parameters()).keys()
    assert all(key.endswith((".step", ".threshold", ".gain")) for key in new)


def test_a_scheme_may_be_given_as_a_value(new_model):
    row = baseline_quantile(12.5)
    assert binarize(new_model(), row).config.quantization == row


@pytest.mark.parametrize("name", SPLIT)
def test_a_split_student_comes_from_a_half_width_ternary_one(name, new_model):
    teacher = new_model()
    ternary = first_student(teacher, SCHEMES[name])
    assert ternary.config.quantization == half_width_ternary(SCHEMES[name])
    assert (ternary.config.num_attention_heads, ternary.config.intermediate_size) == (2, 24)
    assert ternary.config.head_size == teacher.config.head_size
    student = binarize(teacher, name)
    assert student.config.quantization == SCHEMES[name]
    assert student.config.kept_heads == ternary.config.kept_heads
    twins = [key for key in student.state_dict() if key.endswith("twin_weight")]
    assert len(twins) == 6 * 2 + 2  # six linear layers in each block, pooler, word embedding


def test_labels_of_the_teacher_stay(new_model):
    teacher = new_model(id2label={0: "no", 1: "yes", 2: "maybe"}, label2id={"no": 0, "yes": 1, "maybe": 2})
    for name in ("bibert", "binarybert_1-1-1"):
        assert binarize(teacher, name).config.id2label == {0: "no", 1: "yes", 2: "maybe"}


def test_a_split_model_cannot_become_another_scheme(new_model):
    student = binarize(new_model(), "binarybert_1-1-1")
    with pytest.raises(
        SchemeError, match=r"'binarybert_1-1-1' cannot become 'bibert': only one .* split weights; start"
    ):
        with_scheme(student, SCHEMES["bibert"])


def test_an_unknown_scheme_is_refused(new_model):
    with pytest.raises(SchemeError, match="no scheme 'ternarybert'"):
        binarize(new_model(), "ternarybert")


@pytest.mark.parametrize("name", ["q2bert", "binarybert_1-1-4"])
def test_calibration_sets_every_range_and_step_and_nothing_else(name, new_model, new_batch):
    teacher = new_model()
    student = first_student(teacher, SCHEMES[name]).train()
    before = {key: value.clone() for key, value in student.state_dict().items()}
    calibrate(student, new_batch((9, 5, 7)) | {"labels": torch.tensor([0, 1, 0])}, teacher)
    assert student.training
    assert not any(getattr(module, "calibrating", False) for module in student.modules())
    after = student.state_dict()
    changed = {key for key in after if not torch.equal(after[key], before[key])}
    assert changed == {key for key in after if key.endswith((".range", ".step"))}
    assert len(changed) == 10 * 2 + 1
    assert all(after[key] > 0 for key in changed)


def test_calibration_leaves_other_schemes_alone(new_model, new_batch):
    teacher = new_model()
    student = binarize(teacher, "bibert")
    before = {key: value.clone() for key, value in student.state_dict().items()}
    calibrate(student, new_batch((4, 3)), teacher)
    assert all(torch.equal(value, before[key]) for key, value in student.state_dict().items())


def test_splitting_keeps_the_steps_of_the_ternary_student(new_model, new_batch):
    row = SCHEMES["binarybert_1-1-4"]
    teacher = new_model()
    ternary = first_student(teacher, row)
    calibrate(ternary, new_batch((9, 5)), teacher)
    steps = {key: value for key, value in ternary.state_dict().items() if key.endswith(".step")}
    student = split_student(ternary, row)
    calibrate(student, new_batch((7, 3)), ternary)
    assert len(steps) == 21
    assert all(torch.equal(student.state_dict()[key], value) for key, value in steps.items())


def test_steps_for_other_bits_are_not_taken_over(new_model, new_batch):
    four = first_student(new_model(), SCHEMES["binarybert_1-1-4"])
    calibrate(four, new_batch((9, 5)), new_model())
    bits = replace(SCHEMES["binarybert_1-1-4"].bits, activation=2)
    two = first_student(new_model(), replace(SCHEMES["binarybert_1-1-4"], bits=bits))
    two.load_state_dict(four.state_dict())
    calibrate(two, new_batch((9, 5)), four)
    steps = [key for key in two.state_dict() if key.endswith(".step")]
    assert not any(torch.equal(two.state_dict()[key], four.state_dict()[key]) for key in steps)
