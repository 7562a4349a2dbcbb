"""Direction losses: the formula, its gradient, and everything they must not depend on."""

import pytest
import torch
from torch.nn import functional as F

from bibert.distill.dmd import direction_distance, dmd_loss, hidden_direction_loss, similarity

SCOPES = ("sample", "batch")


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def ones(batch: int, tokens: int) -> torch.Tensor:
    return torch.ones(batch, tokens, dtype=torch.float64)


def test_similarity_is_the_product_with_the_own_transpose():
    x = draw(2, 3, 5, 4)
    assert torch.equal(similarity(x), x @ x.transpose(-1, -2))


def test_similarity_has_the_gradient_of_the_product():
    assert torch.autograd.gradcheck(similarity, draw(2, 1, 3, 4).requires_grad_())


def test_distance_is_the_root_of_two_minus_two_cosines():
    student, teacher = draw(4, 3, 6), draw(4, 3, 6, seed=1)
    cosine = F.cosine_similarity(student.flatten(1), teacher.flatten(1), dim=-1)
    expected = (2 - 2 * cosine).sqrt().mean()
    torch.testing.assert_close(direction_distance(student, teacher, 1, "sample"), expected)


def test_dmd_is_the_root_of_two_minus_two_cosines_of_each_head():
    student, teacher = draw(2, 3, 5, 4), draw(2, 3, 5, 4, seed=1)
    mine, theirs = (x @ x.transpose(-1, -2) for x in (student, teacher))
    cosine = F.cosine_similarity(mine.flatten(2), theirs.flatten(2), dim=-1)
    expected = (2 - 2 * cosine).sqrt().mean()
    torch.testing.assert_close(dmd_loss(student, teacher, ones(2, 5), "sample"), expected)


def test_batch_scope_is_the_released_formula():
    """S/‖S‖ - T/‖T‖ over the whole batch tensor, with the released code's 1/√D, which cancels."""
    student, teacher = draw(2, 3, 5, 64), draw(2, 3, 5, 64, seed=1)
    mine, theirs = (x @ x.transpose(-1, -2) / 64**0.5 for x in (student, teacher))
    expected = torch.norm(mine / torch.norm(mine) - theirs / torch.norm(theirs))
    torch.testing.assert_close(dmd_loss(student, teacher, ones(2, 5), "batch"), expected)


def test_batch_scope_of_hidden_states_is_the_released_formula():
    student, teacher = draw(2, 5, 8), draw(2, 5, 8, seed=1)
    expected = torch.norm(student / torch.norm(student) - teacher / torch.norm(teacher))
    torch.testing.assert_close(hidden_direction_loss(student, teacher, ones(2, 5), "batch"), expected)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("kept", [1, 2])
def test_distance_has_the_gradient_of_its_formula(scope: str, kept: int):
    student, teacher = draw(2, 3, 4, 4).requires_grad_(), draw(2, 3, 4, 4, seed=1)
    assert torch.autograd.gradcheck(lambda x: direction_distance(x, teacher, kept, scope), student)


@pytest.mark.parametrize("scope", SCOPES)
def test_losses_have_the_gradient_of_their_formula_behind_a_mask(scope: str, mask: torch.Tensor):
    heads, hidden = draw(3, 2, 5, 4), draw(3, 5, 8)
    teacher_heads, teacher_hidden = draw(3, 2, 5, 4, seed=1), draw(3, 5, 8, seed=1)
    assert torch.autograd.gradcheck(lambda x: dmd_loss(x, teacher_heads, mask, scope), heads.requires_grad_())
    assert torch.autograd.gradcheck(
        lambda x: hidden_direction_loss(x, teacher_hidden, mask, scope), hidden.requires_grad_()
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scope", SCOPES)
def test_equal_tensors_have_no_loss_and_a_zero_gradient(dtype: torch.dtype, scope: str):
    student = draw(2, 3, 5, 4, dtype=dtype).requires_grad_()
    loss = dmd_loss(student, student.detach().clone(), torch.ones(2, 5, dtype=dtype), scope)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(student.grad, torch.zeros_like(student))


@pytest.mark.parametrize("scope", SCOPES)
def test_all_zero_tensors_have_a_finite_loss_and_gradient(scope: str):
    student = torch.zeros(2, 3, 5, 4, requires_grad=True)
    loss = dmd_loss(student, draw(2, 3, 5, 4, dtype=torch.float32), torch.ones(2, 5), scope)
    loss.backward()
    assert loss.item() == pytest.approx(1)
    assert torch.isfinite(student.grad).all()


@pytest.mark.parametrize("scope", SCOPES)
def test_size_of_the_student_does_not_matter(scope: str, mask: torch.Tensor):
    heads, hidden = (draw(3, 2, 5, 4), draw(3, 2, 5, 4, seed=1)), (draw(3, 5, 8), draw(3, 5, 8, seed=1))
    for scale in (1e-3, 1.0, 1e4):
        for function, (student, teacher) in ((dmd_loss, heads), (hidden_direction_loss, hidden)):
            expected = function(student, teacher, mask, scope)
            torch.testing.assert_close(function(scale * student, teacher, mask, scope), expected)
            torch.testing.assert_close(function(student, scale * teacher, mask, scope), expected)


def test_opposite_directions_are_two_apart():
    x = draw(2, 5, 8)
    torch.testing.assert_close(hidden_direction_loss(x, -x, ones(2, 5), "sample").item(), 2.0)


def test_a_text_of_padding_alone_counts_as_equal():
    student = draw(1, 5, 8).requires_grad_()
    loss = hidden_direction_loss(student, draw(1, 5, 8, seed=1), torch.zeros(1, 5, dtype=torch.float64), "sample")
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(student.grad, torch.zeros_like(student))
