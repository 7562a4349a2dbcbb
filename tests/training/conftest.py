"""A run that breaks at a step, to be resumed."""

import pytest
import torch
from transformers import TrainerCallback


class Breaks(TrainerCallback):
    """Makes a weight NaN before a step."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, model=None, **kwargs):  # noqa: ARG002
        if state.global_step == self.step:
            model.bert.embeddings.LayerNorm.bias.data.fill_(torch.nan)


@pytest.fixture(scope="session")
def break_at():
    """A function of a step that gives a callback."""
    return Breaks
