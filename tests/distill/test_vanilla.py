"""Value losses against loops over texts, and the soft cross-entropy against its formula."""

import torch
from torch.nn import functional as F

from bibert.distill.vanilla import prediction_loss, score_mse, token_mse


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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
