"""The only bridge between the torch half and the torch-free half: a trained student becomes a packed model.

`pack` takes bits and scales from the functions the network computes with, and returns a model only after the engine
agrees with the torch graph bit for bit (`verify`). `packed.file` writes the file.
"""

import copy
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import bibert
from bibert.data import MAX_LENGTH
from bibert.data.encoding import Collator, EncodedRow, batches_by_length, check_length, encode
from bibert.data.examples import Split
from bibert.errors import CheckpointError, ModelFileError, NumericError, SchemeError
from bibert.nn.checkpoint import Classifier
from bibert.nn.functional import binarize_rows, bool_
from bibert.nn.layers import BiBertConfig, QuantLinear, Shift
from bibert.nn.levels import Levels, weight_distances
from bibert.nn.model import BiBertForSequenceClassification, evaluating
from bibert.nn.packable import LINEARS, NORMS, SHIFTS, SITE_OF_LINEAR, packed_config, why_not_packable
from bibert.nn.products import Quantized
from bibert.packed.bits import pack_rows
from bibert.packed.file import PackedModel
from bibert.packed.schema import PackedConfig
from bibert.runtime import reference
from bibert.runtime.engine import Encoded, Engine, available_isas
from bibert.runtime.text import TextEncoder

ROWS_PER_CHUNK = 4096  # of a weight at a time, so that the word embedding needs little memory
BATCH_SIZE = 32
GENERATED_LENGTHS = (1, 2, 3, 17, 63, 64, 65, 128, 200, 512)  # a word of bits ends at 64 tokens
REFERENCE_ROWS = 8  # for numpy's reference, which is slow; users run the engine

Tensors = dict[str, NDArray[Any]]
Floats = NDArray[np.float32]
ComputeLogits = Callable[..., Floats]


def pack(
    classifier: Classifier,
    rows: Split | None = None,
    *,
    max_length: int = MAX_LENGTH,
    about: Mapping[str, Any] | None = None,
    temperature: float = 1.0,
) -> PackedModel:
    """Pack a trained student of a packable scheme, and verify it on `rows` of texts, best from the dev set.

    The packed model truncates inputs after `max_length` tokens. `about` says where it comes from, as plain JSON values;
    scheme, version and number of verified rows are added. Scores are the softmax of logits / `temperature`.

    Examples:
        >>> packed = pack(load_classifier("runs/sst2/model"), rows=data.dev["dev"], max_length=64)
    """
    config = classifier.model.config
    check_length(max_length, config.max_position_embeddings)
    shape, labels = config_of(config), [config.id2label[label] for label in range(config.num_labels)]
    try:
        tensors, tokenizer = tensors_of(classifier.model), _tokenizer_json(classifier)
        packed = PackedModel.from_tensors(shape, labels, max_length, tensors, tokenizer, about or {})
        # Raises if the tokenizer does not fit the model.
        TextEncoder(packed.tokenizer, shape.vocabulary, max_length, token_types=shape.token_types)
    except ModelFileError as error:
        raise CheckpointError(f"the model does not fit a packed file: {error}") from error
    verified = verify(classifier, packed, rows)
    facts = {"scheme": config.quantization.name, "bibert": bibert.__version__, "verified_rows": verified}
    return replace(packed, about={**packed.about, **facts}, temperature=temperature)


def config_of(config: BiBertConfig) -> PackedConfig:
    """Return the shape of the packed model."""
    scheme = config.quantization
    if reason := why_not_packable(scheme):
        raise SchemeError(f"scheme {scheme.name!r} cannot be packed: {reason}; pack a student of --bits 1, 2 or 4")
    return packed_config(config.to_dict(), scheme)


@torch.no_grad()
def tensors_of(model: BiBertForSequenceClassification) -> Tensors:
    """Return every tensor of the packed model except the tokenizer; parameters must be finite float32."""
    path = "bert.embeddings.word_embeddings.weight"
    chunks = torch.split(model.get_parameter(path).cpu(), ROWS_PER_CHUNK)
    words, scales = zip(*(_bits_and_scale(path, binarize_rows(chunk)) for chunk in chunks), strict=True)
    tensors: Tensors = {
        "embeddings.word.bits": np.concatenate(words),
        "embeddings.word.scale": np.concatenate(scales),
        "embeddings.token_type": _parameter(model, "bert.embeddings.token_type_embeddings.weight"),
        "embeddings.position": _parameter(model, "bert.embeddings.position_embeddings.weight"),
        **_weight_and_bias(model, "bert.embeddings.LayerNorm", "embeddings.norm"),
        **_linear(model, "bert.pooler.dense", "pooler", "bert.pooler.input_shift"),
        **_site(model, "bert.pooler.input_shift", "pooler_input"),
        **_weight_and_bias(model, "classifier", "classifier"),
    }
    for layer in range(model.config.num_hidden_layers):
        block, at = f"bert.encoder.layer.{layer}", f"layers.{layer}"
        for name, path in LINEARS.items():
            tensors |= _linear(model, f"{block}.{path}", f"{at}.{name}", f"{block}.{SHIFTS[SITE_OF_LINEAR[name]]}")
        for name, path in NORMS.items():
            tensors |= _weight_and_bias(model, f"{block}.{path}", f"{at}.{name}")
        for site, path in SHIFTS.items():
            tensors |= _site(model, f"{block}.{path}", f"{at}.{site}")
        if model.config.quantization.attention_bits:
            tensors |= _level_attention(model, f"{block}.attention.self", at)
        if model.config.quantization.score_thresholds:
            tensors[f"{at}.score_threshold"] = _least_scores(model, f"{block}.attention.self.attention.threshold")
    return tensors


def verify(classifier: Classifier, packed: PackedModel, rows: Split | None = None) -> int:
    """Compare a packed model with its network, bit for bit, and return how many rows were compared.

    The engine is compared on all rows with every instruction set of this CPU but the slow "reference", which runs only
    where there is no other; the numpy reference on the first rows. Rows of random tokens are added to `rows`. The texts
    of `rows` must also give the same tokens with the tokenizer of the packed model as with the network's.
    """
    groups = [("generated", _generated_rows(packed))]
    if rows:
        encoded = encode(rows, classifier.tokenizer, packed.max_length)
        real: list[EncodedRow] = [encoded[index] for index in range(len(encoded))]
        encoder = TextEncoder(packed.tokenizer, packed.config.vocabulary, packed.max_length)
        _require_same_tokens(real, encoder.encode(rows.texts_or_pairs), rows.origin)
        groups.append((rows.origin, real))
    # On a CPU, where `tensors_of` took the row means; other devices sum differently.
    network = classifier.model if classifier.model.device.type == "cpu" else copy.deepcopy(classifier.model).cpu()

    def torch_logits(**batch: NDArray[np.int64]) -> Floats:
        return np.asarray(network(**{name: torch.from_numpy(values) for name, values in batch.items()}).logits)

    engines = [Engine.from_packed(packed, isa=isa) for isa in available_isas()[:-1] or available_isas()]
    numpy_logits = partial(reference.logits, packed)
    with evaluating(network):
        for origin, group in groups:
            expected, few = _all_logits(torch_logits, group), group[:REFERENCE_ROWS]
            for engine in engines:
                _require_same(expected, _all_logits(engine.logits, group), f"{origin}: the engine on {engine.isa}")
            _require_same(expected[: len(few)], _all_logits(numpy_logits, few), f"{origin}: the numpy reference")
    return sum(len(group) for _, group in groups)


def _linear(model: nn.Module, path: str, name: str, site: str) -> Tensors:
    """Bits, scale and bias of a binary linear layer, as the network computes them on a CPU; `site` is its input's."""
    layer, levels = model.get_submodule(path), model.get_submodule(site)
    assert isinstance(layer, QuantLinear)
    weight = copy.deepcopy(layer).cpu().quantized_weight()
    if isinstance(levels, Levels):  # the step of the input is part of the scale (rule 10)
        assert weight.scale is not None
        weight = weight._replace(scale=weight.scale * levels.positive_step.cpu())
    words, scale = _bits_and_scale(f"{path}.weight", weight)
    return {f"{name}.bits": words, f"{name}.scale": scale, f"{name}.bias": _parameter(model, f"{path}.bias")}


def _site(model: nn.Module, path: str, name: str) -> Tensors:
    """The threshold of a site, or the edge and rate of its levels; nothing if it has neither."""
    site = model.get_submodule(path)
    if isinstance(site, Levels):
        rule = site.rule
        return {f"{name}.edge": _floats(path, rule.edge), f"{name}.rate": _floats(path, rule.rate.view(1))}
    return {f"{name}.threshold": _parameter(model, f"{path}.threshold")} if isinstance(site, Shift) else {}


def _level_attention(model: BiBertForSequenceClassification, path: str, at: str) -> Tensors:
    """The step of the values, and the limits of the attention weights of each head (rule 11)."""
    sites = [model.get_submodule(f"{path}.{name}_shift") for name in ("query", "key", "value")]
    query, key, value = (cast("Levels", site).positive_step for site in sites)
    size, heads = model.config.head_size, model.config.num_attention_heads
    scale = query.item() * key.item() / math.sqrt(size)
    limits = weight_distances(scale, model.config.quantization.attention_bits, size)
    of_heads = np.tile(np.array(limits, dtype=np.int32), (heads, 1))
    return {f"{at}.value.step": _floats(path, value.view(1)), f"{at}.attention_threshold": of_heads}


def _bits_and_scale(name: str, rows: Quantized) -> tuple[NDArray[np.uint64], Floats]:
    assert rows.scale is not None  # row-wise binarization always has one
    return pack_rows((rows.levels > 0).numpy()), _floats(name, rows.scale.squeeze(-1))


def _least_scores(model: BiBertForSequenceClassification, path: str) -> NDArray[np.int32]:
    """For each head, the smallest integer score that the network attends to."""
    threshold, size = torch.from_numpy(_parameter(model, path)), model.config.head_size
    scores = torch.arange(-size, size + 1.0)
    attended = bool_(scores / math.sqrt(size) - threshold[:, None]) > 0
    return np.asarray(torch.where(attended, scores, size + 1.0).amin(dim=-1), dtype=np.int32)


def _weight_and_bias(model: nn.Module, path: str, name: str) -> Tensors:
    return {f"{name}.{part}": _parameter(model, f"{path}.{part}") for part in ("weight", "bias")}


def _parameter(model: nn.Module, path: str) -> Floats:
    return _floats(path, model.get_parameter(path))


def _floats(name: str, values: Tensor) -> Floats:
    if values.dtype != torch.float32:
        raise CheckpointError(f"{name!r} is {values.dtype}, must be torch.float32; convert it with model.float()")
    if not values.isfinite().all():
        raise NumericError(f"{name!r} holds NaN or infinity, or its mean overflows; its training has diverged")
    return np.asarray(values.detach().cpu())


def _tokenizer_json(classifier: Classifier) -> bytes:
    """The contents of tokenizer.json without spaces, truncation and padding, which the runtime decides."""
    backend = getattr(classifier.tokenizer, "backend_tokenizer", None)
    if backend is None:
        kind = type(classifier.tokenizer).__name__
        raise CheckpointError(f"{kind} has no tokenizer.json, which a packed file needs; load it with AutoTokenizer")
    values = json.loads(backend.to_str()) | {"truncation": None, "padding": None}
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


def _generated_rows(packed: PackedModel) -> list[EncodedRow]:
    """Rows of random tokens, with lengths at which something changes, up to the longest input."""
    random = np.random.default_rng(0)
    lengths = [length for length in GENERATED_LENGTHS if length < packed.max_length]
    return [
        {
            "input_ids": random.integers(packed.config.vocabulary, size=length),
            "token_type_ids": random.integers(packed.config.token_types, size=length),
            "labels": 0,
        }
        for length in (*lengths, packed.max_length)
    ]


def _all_logits(logits: ComputeLogits, rows: Sequence[EncodedRow]) -> Floats:
    """The logits of every row, in order, computed in batches of similar length."""
    places, found = [], []
    for numbers, batch in batches_by_length(rows, Collator(pad_token_id=0), BATCH_SIZE):
        places.append(numbers)
        found.append(logits(**{name: values.numpy() for name, values in batch.items() if name != "labels"}))
    return np.concatenate(found)[np.argsort(np.concatenate(places))]


def _require_same_tokens(expected: Sequence[EncodedRow], found: Sequence[Encoded], origin: str) -> None:
    for number, (row, encoded) in enumerate(zip(expected, found, strict=True)):
        types = np.zeros_like(encoded.ids) if encoded.token_types is None else encoded.token_types
        if not (np.array_equal(row["input_ids"], encoded.ids) and np.array_equal(row["token_type_ids"], types)):
            ours, theirs = len(encoded.ids), len(row["input_ids"])
            tokens = f"{theirs} tokens with the tokenizer of the network, {ours} with its tokenizer.json alone"
            raise CheckpointError(f"{origin}: row {number} has {tokens}, and they differ; use a plain BERT tokenizer")


def _require_same(expected: Floats, found: Floats, what: str) -> None:
    differs = expected.view(np.int32) != found.view(np.int32)
    if differs.any():
        row, label = (int(number) for number in np.argwhere(differs)[0])
        both = f"{found[row, label]!s} for label {label} of row {row}, the network {expected[row, label]!s}"
        rows = f"{differs.any(axis=1).sum()} of {len(expected)} rows differ"
        raise NumericError(f"{what} gives {both}; {rows}; do not ship this model and report a bug")
