"""The optimizer of a recipe: parameter groups, Adam with or without bias correction, gradient clipping."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from bibert.training.recipe import Recipe


class BertAdam(torch.optim.Optimizer):
    """Adam without bias correction and with decoupled weight decay, as in the released code."""

    def __init__(self, params: Any, lr: float, eps: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        super().__init__(params, {"lr": lr, "eps": eps, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        if closure is not None:
            raise NotImplementedError("BertAdam takes its gradients from backward(), not from a closure")
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for parameter in (one for one in group["params"] if one.grad is not None):
                state, gradient = self.state[parameter], parameter.grad
                if not state:
                    state |= {"mean": torch.zeros_like(parameter), "square": torch.zeros_like(parameter)}
                state["mean"].lerp_(gradient, 1 - beta1)
                state["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.addcdiv_(state["mean"], state["square"].sqrt().add_(group["eps"]), value=-group["lr"])


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Adam over three groups: weights with decay, parameters without, and learned quantizer steps."""
    groups = parameter_groups(model, recipe)
    if recipe.bias_correction:
        return torch.optim.AdamW(groups, lr=recipe.learning_rate, eps=recipe.adam_epsilon, fused=True)
    return BertAdam(groups, lr=recipe.learning_rate, eps=recipe.adam_epsilon)


def parameter_groups(model: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """Parameters by how they are updated, without empty groups."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    steps = [p for name, p in named if name.endswith(".step")]
    plain = [p for name, p in named if p.dim() < 2 and not name.endswith(".step")]
    decayed = [p for _, p in named if p.dim() >= 2]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": recipe.weight_decay},
        {"params": plain, "weight_decay": 0.0},
        {"params": steps, "weight_decay": 0.0, "lr": recipe.step_learning_rate},
    ]
    return [group for group in groups if group["params"]]


def clip_each(parameters: Iterable[Tensor], limit: float) -> Tensor:
    """Clip the gradient of each parameter to the norm `limit`; return the norm over all, before clipping."""
    gradients, norms, total = _norms(parameters)
    for gradient, norm in zip(gradients, norms.tolist(), strict=True):
        if norm > limit:
            gradient.mul_(limit / norm)
    return total


def clip_all(parameters: Iterable[Tensor], limit: float) -> Tensor:
    """Clip the gradient over all parameters to the norm `limit`; return the norm before clipping."""
    gradients, _, total = _norms(parameters)
    if total > limit:
        torch._foreach_mul_(gradients, limit / total)
    return total


def _norms(parameters: Iterable[Tensor]) -> tuple[list[Tensor], Tensor, Tensor]:
    """The gradients, the norm of each, and the norm over all."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norms = torch.stack(torch._foreach_norm(gradients))
    return gradients, norms, torch.linalg.vector_norm(norms)


def not_finite(model: nn.Module) -> str:
    """The name of the first parameter whose gradient is not finite; clipping does not change such a gradient."""
    broken = (name for name, p in model.named_parameters() if p.grad is not None and not p.grad.isfinite().all())
    return next(broken, "the sum of all parameters")
