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


def cosine_distance(student: torch.Tensor, teacher: torch.Tensor, lead_dims: int) -> torch.Tensor:
    cosine = F.cosine_similarity(student.flatten(lead_dims), teacher.flatten(lead_dims), dim=-1)
    return (2 - 2 * cosine).sqrt().mean()


def batch_distance(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """The released formula: one norm over the whole batch tensor."""
    return torch.norm(student / torch.norm(student) - teacher / torch.norm(teacher))


def test_similarity_is_the_product_with_its_own_transpose():
    x = draw(2, 3, 5, 4)
    assert torch.equal(similarity(x), x @ x.transpose(-1, -2))
    assert torch.autograd.gradcheck(similarity, draw(2, 1, 3, 4).requires_grad_())


def test_a_direction_distance_is_the_root_of_two_minus_two_cosines():
    student, teacher = draw(4, 3, 6), draw(4, 3, 6, seed=1)
    found = direction_distance(student, teacher, torch.ones(()), "sample", lead_dims=1)
    torch.testing.assert_close(found, cosine_distance(student, teacher, 1))


def test_dmd_is_the_distance_of_the_similarities_of_each_head():
    heads = draw(2, 3, 5, 64), draw(2, 3, 5, 64, seed=1)
    similarities = [x @ x.transpose(-1, -2) / 64**0.5 for x in heads]  # the released code's 1/√D cancels
    torch.testing.assert_close(dmd_loss(*heads, ones(2, 5), "sample"), cosine_distance(*similarities, 2))
    torch.testing.assert_close(dmd_loss(*heads, ones(2, 5), "batch"), batch_distance(*similarities))


def test_the_hidden_state_term_is_the_distance_of_each_text():
    states = draw(2, 5, 8), draw(2, 5, 8, seed=1)
    torch.testing.assert_close(hidden_direction_loss(*states, ones(2, 5), "sample"), cosine_distance(*states, 1))
    torch.testing.assert_close(hidden_direction_loss(*states, ones(2, 5), "batch"), batch_distance(*states))


@pytest.mark.parametrize("scope", SCOPES)
def test_direction_losses_have_the_gradient_of_their_formula(scope: str, mask: torch.Tensor):
    heads, hidden = draw(3, 2, 5, 4), draw(3, 5, 8)
    for function, x in ((dmd_loss, heads), (hidden_direction_loss, hidden)):
        teacher = draw(*x.shape, seed=1)
        assert torch.autograd.gradcheck(lambda x, f=function, t=teacher: f(x, t, mask, scope), x.requires_grad_())


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
@pytest.mark.parametrize("scale", [1e-3, 1e4])
def test_direction_losses_do_not_depend_on_scale(scope: str, scale: float, mask: torch.Tensor):
    for function, x in ((dmd_loss, draw(3, 2, 5, 4)), (hidden_direction_loss, draw(3, 5, 8))):
        teacher = draw(*x.shape, seed=1)
        expected = function(x, teacher, mask, scope)
        torch.testing.assert_close(function(scale * x, teacher, mask, scope), expected)
        torch.testing.assert_close(function(x, scale * teacher, mask, scope), expected)


def test_opposite_directions_are_two_apart():
    x = draw(2, 5, 8)
    torch.testing.assert_close(hidden_direction_loss(x, -x, ones(2, 5), "sample").item(), 2.0)


def test_the_mse_terms_are_means_over_texts_of_means_over_real_tokens(mask: torch.Tensor):
    lengths = mask.sum(dim=1).int().tolist()
    states, scores = (draw(3, 5, 8), draw(3, 5, 8, seed=1)), (draw(3, 2, 5, 5), draw(3, 2, 5, 5, seed=1))
    per_text = [F.mse_loss(*(x[i, :n] for x in states)) for i, n in enumerate(lengths)]
    torch.testing.assert_close(token_mse(*states, mask), torch.stack(per_text).mean())
    per_text = [F.mse_loss(*(x[i, :, :n, :n] for x in scores)) for i, n in enumerate(lengths)]
    torch.testing.assert_close(score_mse(*scores, mask), torch.stack(per_text).mean())
    torch.testing.assert_close(token_mse(*states, ones(3, 5)), F.mse_loss(*states))
    torch.testing.assert_close(score_mse(*scores, ones(3, 5)), F.mse_loss(*scores))


@pytest.mark.parametrize(("function", "shape"), [(token_mse, (3, 5, 8)), (score_mse, (3, 2, 5, 5))])
def test_the_mse_terms_have_the_gradient_of_their_formula(function, shape: tuple, mask: torch.Tensor):
    student, teacher = draw(*shape).requires_grad_(), draw(*shape, seed=1)
    assert torch.autograd.gradcheck(lambda x: function(x, teacher, mask), student)
    loss = function(student, student.detach().clone(), mask)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(student.grad, torch.zeros_like(student))


def test_a_text_of_padding_alone_has_no_loss_and_a_finite_gradient():
    nothing = torch.zeros(1, 5, dtype=torch.float64)
    student = draw(1, 5, 8).requires_grad_()
    loss = hidden_direction_loss(student, draw(1, 5, 8, seed=1), nothing, "sample")
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(student.grad, torch.zeros_like(student))
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
