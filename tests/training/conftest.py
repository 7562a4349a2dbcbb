"""A run that goes wrong at a step, to be resumed."""

import pytest
import torch
from transformers import TrainerCallback


def break_weights(model):
    model.bert.embeddings.LayerNorm.bias.data.fill_(torch.nan)


class Changes(TrainerCallback):
    """Changes the model before a step."""

    def __init__(self, step, change=break_weights):
        self.step, self.change = step, change

    def on_step_begin(self, args, state, control, model=None, **kwargs):  # noqa: ARG002
        if state.global_step == self.step:
            self.change(model)


@pytest.fixture(scope="session")
def change_at():
    """A function of a step that gives a callback, which breaks the weights unless it is told what to do."""
    return Changes
