"""The models that are compared: a packed one with random weights, and the full-precision BERT that rivals start from.

How long a forward pass takes does not depend on the values, so a comparison of speed needs no trained weights. Nothing
can be said about accuracy with random ones, so a BERT may also get those of a classifier of ours. torch and
transformers are imported when a BERT is asked for.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bibert.errors import BibertError, SchemeError
from bibert.lab.rivals.inputs import Shape, random_batch
from bibert.packed.bits import pack_rows
from bibert.packed.file import PackedModel
from bibert.packed.schema import TOKENIZER, PackedConfig, TensorSpec, columns_of_bits, tensor_specs

INPUTS = ("input_ids", "attention_mask")  # of a BERT, in the order of `inputs.Run`
SPREAD = 0.02  # BERT's initializer_range: it keeps every LayerNorm's input far inside the range of the contract
BERT_KEYS = (  # of a configuration, beside the number of labels: what decides the values that a BERT computes
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
    "hidden_act",
    "layer_norm_eps",
)
NO_TOKENIZER = b"{}"  # a file must carry one; inputs here are ids already, and a rival's file has none either


def random_packed(config: PackedConfig, seed: int = 0, tokenizer: bytes = NO_TOKENIZER) -> PackedModel:
    """A packed model whose bits are coin flips and whose numbers are as large as a fresh BERT's."""
    generator = np.random.default_rng(seed)
    columns = columns_of_bits(config)
    tensors = {
        spec.name: _random_tensor(spec, columns.get(spec.name, 0), generator)
        for spec in tensor_specs(config, len(tokenizer))
        if spec.name != TOKENIZER
    }
    labels = [f"label {number}" for number in range(config.labels)]
    return PackedModel.from_tensors(config, labels, config.positions, tensors, tokenizer, {"weights": "random"})


def _random_tensor(spec: TensorSpec, columns: int, generator: np.random.Generator) -> NDArray[Any]:
    if spec.dtype == "U64":
        return pack_rows(generator.integers(2, size=(spec.shape[0], columns), dtype=np.uint8))
    if spec.dtype == "I32":
        return generator.integers(-1, 2, size=spec.shape, dtype=np.int32)
    values = SPREAD * generator.standard_normal(spec.shape, dtype=np.float32)
    if spec.name.endswith("norm.weight"):
        return 1 + values
    return np.abs(values) if spec.name.endswith(".scale") else values


def random_bert(config: PackedConfig) -> Any:
    """Hugging Face's `BertForSequenceClassification` of the same shape, fresh and in eval mode.

    Raises:
        BibertError: a BERT of that library cannot have this shape.
    """
    _check_heads(config.heads, config.head_size, config.hidden)
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    shape = BertConfig(
        num_hidden_layers=config.layers,
        hidden_size=config.hidden,
        num_attention_heads=config.heads,
        intermediate_size=config.intermediate,
        vocab_size=config.vocabulary,
        max_position_embeddings=config.positions,
        type_vocab_size=config.token_types,
        num_labels=config.labels,
        pad_token_id=None,  # nothing here is padding, and a vocabulary may be too short to have BERT's
    )
    return BertForSequenceClassification(shape).eval()


def _check_heads(heads: int, head_size: int, hidden: int) -> None:
    if heads * head_size != hidden:
        raise BibertError(
            f"{heads} heads of {head_size} make {heads * head_size} channels, a rival's attention needs "
            f"{hidden} like its hidden state; compare a model whose two numbers are equal"
        )


def trained_bert(folder: Path) -> Any:
    """Hugging Face's `BertForSequenceClassification` with the weights of a full-precision classifier, in eval mode.

    Raises:
        CheckpointError: the folder does not hold a whole classifier.
        SchemeError: the classifier is quantized.
        BibertError: a BERT of that library cannot have this shape.
    """
    from transformers import BertConfig, BertForSequenceClassification

    from bibert.nn.checkpoint import load_classifier

    ours = load_classifier(folder).model
    if ours.config.quantization.is_quantized:
        raise SchemeError(
            f"{folder}: is quantized by scheme {ours.config.quantization.name!r}, a rival starts from full precision; "
            "give the teacher"
        )
    _check_heads(ours.config.num_attention_heads, ours.config.head_size, ours.config.hidden_size)
    config = BertConfig(num_labels=ours.config.num_labels, **{key: getattr(ours.config, key) for key in BERT_KEYS})
    model = BertForSequenceClassification(config)
    model.load_state_dict(ours.state_dict())  # the two have the same names
    return model.eval()


def shape_of(bert: Any) -> PackedConfig:
    """The shape of a BERT in the words of a packed model."""
    config = bert.config
    return PackedConfig(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        head_size=config.hidden_size // config.num_attention_heads,
        intermediate=config.intermediate_size,
        vocabulary=config.vocab_size,
        positions=config.max_position_embeddings,
        token_types=config.type_vocab_size,
        labels=config.num_labels,
        norm_eps=float(config.layer_norm_eps),
    )


def example_inputs(config: PackedConfig) -> dict[str, Any]:
    """Tensors for a tool that follows a BERT through one call.

    There are two of them: an exporter takes one tensor under two names for one input. Neither axis is 1, which would
    be taken for a constant.
    """
    import torch

    batch = random_batch(Shape(2, min(16, config.positions)), config.vocabulary)
    return {name: torch.from_numpy(values) for name, values in zip(INPUTS, batch, strict=True)}
