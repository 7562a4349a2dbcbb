"""Tiny networks and batches for the tests of the network."""

import pytest
import torch

from bibert.data.encoding import train_tokenizer
from bibert.nn.layers import BiBertConfig
from bibert.nn.model import BiBertForSequenceClassification

TEXTS = ("a good film", "a bad film that nobody saw", "it was so good", "it was bad, so bad")
SHAPE = {
    "vocab_size": 90,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "initializer_range": 0.1,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer(TEXTS)


@pytest.fixture(scope="session")
def new_model():
    """A factory of random models in eval mode, in which biases and LayerNorms are random too."""

    def make(seed=0, **changes):
        torch.manual_seed(seed)
        model = BiBertForSequenceClassification(BiBertConfig(**SHAPE | changes))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.1 * torch.randn_like(parameter))
        return model.eval()

    return make


@pytest.fixture(scope="session")
def new_batch():
    """A factory of random batches: rows of the given lengths, padded, the second half of each of token type 1."""

    def make(lengths, seed=0, width=None):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(5, SHAPE["vocab_size"], (len(lengths), max(lengths)), generator=generator)
        ids = torch.nn.functional.pad(ids, (0, (width or max(lengths)) - max(lengths)))
        place = torch.arange(ids.shape[1])
        ends = torch.tensor(lengths)[:, None]
        mask = (place < ends).long()
        return {
            "input_ids": ids * mask,
            "attention_mask": mask,
            "token_type_ids": (place >= ends // 2).long() * mask,
        }

    return make
