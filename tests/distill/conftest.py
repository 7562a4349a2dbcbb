"""Random forward passes: traces with every tensor that a loss term reads."""

import copy
from collections.abc import Callable
from dataclasses import fields

import pytest
import torch
from torch import Tensor

from bibert.nn.functional import HeadLevels
from bibert.nn.layers import BiBertConfig, LayerTrace
from bibert.nn.model import BiBertForSequenceClassification, BiBertOutput, Trace

BATCH, TOKENS, HEADS, SIZE, LABELS = 3, 5, 2, 4, 3  # no other dimension has TOKENS elements: `padded` goes by size


@pytest.fixture
def mask() -> Tensor:
    """Three texts of 5, 3 and 1 tokens."""
    return (torch.arange(TOKENS) < torch.tensor([[5], [3], [1]])).double()


@pytest.fixture
def make_output(mask: Tensor) -> Callable[..., BiBertOutput]:
    """A function that draws the output of a model with the given number of layers."""

    def make(seed: int, layers: int = 2, dtype: torch.dtype = torch.float64) -> BiBertOutput:
        generator = torch.Generator().manual_seed(seed)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

        trace = Trace(mask.to(dtype), [draw(BATCH, TOKENS, HEADS * SIZE) for _ in range(layers + 1)])
        for _ in range(layers):
            per_token = [draw(BATCH, HEADS, TOKENS, SIZE) for _ in range(3)]
            per_pair = [draw(BATCH, HEADS, TOKENS, TOKENS) for _ in range(2)]
            levels = HeadLevels(*(x.sign() for x in per_token))
            trace.layers.append(LayerTrace(*per_token, *per_pair, draw(BATCH, TOKENS, HEADS * SIZE), levels))
            trace.layers[-1].mha = draw(BATCH, TOKENS, HEADS * SIZE)
            trace.layers[-1].ffn_hidden = draw(BATCH, TOKENS, 2 * HEADS * SIZE)
        trace.pooled = draw(BATCH, HEADS * SIZE)
        return BiBertOutput(logits=draw(BATCH, LABELS), trace=trace)

    return make


@pytest.fixture
def rows_of() -> Callable[[BiBertOutput, slice], BiBertOutput]:
    """A function that selects some texts of a batch."""
    return lambda output, rows: _map(output, lambda x: x[rows])


@pytest.fixture
def padded() -> Callable[[BiBertOutput, int], BiBertOutput]:
    """A function that appends padding tokens with arbitrary features to a batch."""

    def pad(output: BiBertOutput, more: int) -> BiBertOutput:
        def lengthen(x: Tensor) -> Tensor:
            for dim in [dim for dim in range(1, x.dim()) if x.shape[dim] == TOKENS]:
                shape = (*x.shape[:dim], more, *x.shape[dim + 1 :])
                x = torch.cat([x, x.new_full(shape, 7.0)], dim=dim)
            return x

        longer = _map(output, lengthen)
        longer.trace.mask[:, TOKENS:] = 0
        return longer

    return pad


def _map(output: BiBertOutput, change: Callable[[Tensor], Tensor]) -> BiBertOutput:
    layers = []
    for layer in output.trace.layers:
        layers.append(copy.copy(layer))
        for name in (field.name for field in fields(layer)):
            old = getattr(layer, name)
            setattr(layers[-1], name, HeadLevels(*map(change, old)) if name == "levels" else change(old))
    mask, pooled = change(output.trace.mask), change(output.trace.pooled)
    trace = Trace(mask, [change(x) for x in output.trace.hidden_states], layers, pooled)
    return BiBertOutput(logits=change(output.logits), trace=trace)


@pytest.fixture
def make_model() -> Callable[..., BiBertForSequenceClassification]:
    """A function that builds a small full-precision model."""

    def make(layers: int = 2, hidden: int = 16, heads: int = 2, labels: int = 2) -> BiBertForSequenceClassification:
        torch.manual_seed(layers)
        config = BiBertConfig(
            vocab_size=20,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=2 * hidden,
            max_position_embeddings=16,
            num_labels=labels,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        return BiBertForSequenceClassification(config)

    return make
