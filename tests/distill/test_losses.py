"""Loss terms: their formulas and gradients, and everything they must not depend on."""

import pytest
import torch
from torch.nn import functional as F

from bibert.distill.losses import (
    direction_distance,
    dmd_loss,
    hidden_direction_loss,
    prediction_loss,
    score_mse,
    similarity,
    token_mse,
)

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


def test_token_mse_is_the_mean_over_texts_of_the_mean_over_real_tokens(mask: torch.Tensor):
    student, teacher = draw(3, 5, 8), draw(3, 5, 8, seed=1)
    lengths = mask.sum(dim=1).int().tolist()
    per_text = [F.mse_loss(student[i, :n], teacher[i, :n]) for i, n in enumerate(lengths)]
    torch.testing.assert_close(token_mse(student, teacher, mask), torch.stack(per_text).mean())


def test_score_mse_is_the_mean_over_texts_of_the_mean_over_pairs_of_real_tokens(mask: torch.Tensor):
    student, teacher = draw(3, 2, 5, 5), draw(3, 2, 5, 5, seed=1)
    lengths = mask.sum(dim=1).int().tolist()
    per_text = [F.mse_loss(student[i, :, :n, :n], teacher[i, :, :n, :n]) for i, n in enumerate(lengths)]
    torch.testing.assert_close(score_mse(student, teacher, mask), torch.stack(per_text).mean())


def test_without_padding_both_are_the_plain_mse():
    states, scores = (draw(3, 5, 8), draw(3, 5, 8, seed=1)), (draw(3, 2, 5, 5), draw(3, 2, 5, 5, seed=1))
    ones = torch.ones(3, 5, dtype=torch.float64)
    torch.testing.assert_close(token_mse(*states, ones), F.mse_loss(*states))
    torch.testing.assert_close(score_mse(*scores, ones), F.mse_loss(*scores))


def test_mse_terms_have_the_gradient_of_their_formula(mask: torch.Tensor):
    states, scores = draw(3, 5, 4).requires_grad_(), draw(3, 2, 5, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: token_mse(x, draw(3, 5, 4, seed=1), mask), states)
    assert torch.autograd.gradcheck(lambda x: score_mse(x, draw(3, 2, 5, 5, seed=1), mask), scores)


def test_mse_terms_of_equal_tensors_are_zero_with_a_zero_gradient(mask: torch.Tensor):
    for function, x in ((token_mse, draw(3, 5, 8)), (score_mse, draw(3, 2, 5, 5))):
        student = x.clone().requires_grad_()
        loss = function(student, x, mask)
        loss.backward()
        assert loss.item() == 0
        assert torch.equal(student.grad, torch.zeros_like(x))


def test_a_text_of_padding_alone_does_not_divide_by_zero():
    nothing = torch.zeros(1, 5, dtype=torch.float64)
    assert token_mse(draw(1, 5, 8), draw(1, 5, 8, seed=1), nothing).item() == 0
    assert score_mse(draw(1, 2, 5, 5), draw(1, 2, 5, 5, seed=1), nothing).item() == 0


def test_prediction_loss_is_the_soft_cross_entropy_per_text():
    student, teacher = draw(4, 3), draw(4, 3, seed=1)
    mine, theirs = (x.exp() / x.exp().sum(dim=-1, keepdim=True) for x in (student, teacher))
    expected = -(theirs * mine.log()).sum(dim=-1).mean()
    torch.testing.assert_close(prediction_loss(student, teacher), expected)


def test_prediction_loss_is_smallest_at_the_teachers_logits_up_to_a_shift():
    teacher = draw(4, 3)
    student = (teacher + 5).requires_grad_()
    prediction_loss(student, teacher).backward()
    torch.testing.assert_close(student.grad, torch.zeros_like(teacher), atol=1e-12, rtol=0)


def test_prediction_loss_of_one_output_is_the_mse():
    student, teacher = draw(4, 1), draw(4, 1, seed=1)
    torch.testing.assert_close(prediction_loss(student, teacher), F.mse_loss(student, teacher))
