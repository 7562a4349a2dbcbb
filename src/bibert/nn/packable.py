"""Which networks a packed file can hold: the shape of a Hugging Face config, and whether the scheme can be packed.

`export` packs and `bibert inspect` reports by these functions. They need no torch.
"""

from collections.abc import Mapping
from typing import Any

from bibert.errors import CheckpointError, ModelFileError
from bibert.nn.schemes import ONE_BIT, Scheme
from bibert.packed.schema import PackedConfig

CONFIG_KEYS: Mapping[str, str] = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "vocabulary": "vocab_size",
    "positions": "max_position_embeddings",
    "token_types": "type_vocab_size",
}

# Names in a packed file, and their paths in a block of the network.
LINEARS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention_output": "attention.output.dense",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
}
SHIFTS = {
    "attention_input": "attention.self.input_shift",
    "query": "attention.self.query_shift",
    "key": "attention.self.key_shift",
    "value": "attention.self.value_shift",
    "context": "attention.output.input_shift",
    "ffn_input": "intermediate.input_shift",
    "ffn_hidden": "output.input_shift",
}
SITE_OF_LINEAR = {  # the site whose levels a linear layer reads
    **dict.fromkeys(("query", "key", "value"), "attention_input"),
    "attention_output": "context",
    "intermediate": "ffn_input",
    "output": "ffn_hidden",
}
NORMS = {"attention_norm": "attention.output.LayerNorm", "output_norm": "output.LayerNorm"}

# Activation before and quantizer of the second FFN layer's input, and its levels in a packed file. `sign` and `bool`
# can be packed only without an activation: the sign of a computed GELU or ReLU is not the sign of its input.
FFN_LEVELS: Mapping[tuple[str, str], str] = {
    ("gelu", "gelu_sign"): "sign",
    ("linear", "sign"): "sign",
    ("linear", "bool"): "bool",
    ("linear", "levels"): "bool",
}


def packed_config(config: Mapping[str, Any], scheme: Scheme | None = None) -> PackedConfig:
    """Translate the values of a config.json; `scheme` adds the thresholds and FFN levels of a packable scheme."""
    sizes: dict[str, Any] = {name: config.get(key) for name, key in CONFIG_KEYS.items()}
    for name, value in sizes.items():
        if type(value) is not int or value < 1:
            raise CheckpointError(f"{CONFIG_KEYS[name]} is {value!r}, must be a whole number from 1 up")
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head_size = config.get("attention_head_size")
    if head_size is None and hidden % heads:
        raise CheckpointError(f"{heads} heads cannot share a hidden size of {hidden} evenly; choose a multiple")
    parts: dict[str, Any] = {}
    if scheme is not None:
        parts = {"thresholds": scheme.thresholds, "score_thresholds": scheme.score_thresholds}
        parts["ffn_levels"] = ffn_levels(scheme)
        if scheme.attention_bits:
            parts |= {"activation_bits": scheme.bits.activation, "attention_bits": scheme.attention_bits}
    try:
        return PackedConfig(
            **sizes,
            head_size=head_size or hidden // heads,
            labels=len(config.get("id2label") or ()) or config.get("num_labels", 2),
            norm_eps=float(config.get("layer_norm_eps", 1e-12)),
            **parts,
        )
    except ModelFileError as error:
        raise CheckpointError(f"the model does not fit a packed file: {error}") from error


def why_not_packable(scheme: Scheme) -> str | None:
    """The first reason why a packed file cannot hold the scheme, as the end of a sentence; None if it can."""
    ffn = (scheme.ffn_activation, scheme.ffn_quantizer)
    weights = ", ".join(sorted({scheme.weight, scheme.embedding}))
    reasons = (
        (bool(scheme.kept), f"it keeps {' and '.join(scheme.kept)} in full precision, the file holds bits"),
        (scheme.split, "every weight is the sum of two, the file holds one"),
        (weights != "sign", f"it has {scheme.bits} bits, weights by {weights}; the file has signs"),
        (scheme.activation == "levels", None),  # the rest is about one bit
        (scheme.bits != ONE_BIT, f"it has {scheme.bits} bits by {scheme.activation!r}, the engine computes 'levels'"),
        (scheme.normalizer != "none", "its attention has a softmax, the engine computes Bi-Attention for one bit"),
        (scheme.activation != "sign", f"its activations are {scheme.activation!r}, the engine's 'sign'"),
        (scheme.attention != "bool", f"its attention weights are {scheme.attention!r}, the engine's 'bool'"),
        (ffn not in FFN_LEVELS, f"its second FFN layer has {ffn[1]} after {ffn[0]}, the engine has no activation"),
    )
    return next((reason for applies, reason in reasons if applies), None)


def ffn_levels(scheme: Scheme) -> str:
    """The levels of the second FFN layer's input in the file of a packable scheme: `packed.schema.FFN_LEVELS`."""
    return FFN_LEVELS[scheme.ffn_activation, scheme.ffn_quantizer]
