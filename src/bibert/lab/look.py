"""A model seen from inside while it reads texts: the bits or levels of every layer and head, in one form for any model.

A `Subject` is a packed file, read by the numpy reference, or a folder with a torch model, read by `network`; torch is
imported only for a folder. `attention` shows what heads attend to.

The information entropy of a tensor (Section 3.2.1, Fig. "Analysis" (a)) is that of one bit drawn from all its bits,
without padding: 1 if half of them are 1, 0 if all are equal. For levels of k bits it is that of one level, up to k.

Shapes: B texts, T tokens, H heads, D head size, I intermediate. Bits are booleans, levels of 2 and 4 bits integers.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bibert.data import MAX_LENGTH
from bibert.errors import DataError, require_extra
from bibert.models import find_file
from bibert.nn import RUN_MODEL, network_folder
from bibert.packed import file
from bibert.packed.bits import unpack_rows
from bibert.packed.file import PackedModel
from bibert.runtime import reference
from bibert.runtime.classifier import softmax
from bibert.runtime.engine import Encoded
from bibert.runtime.text import Text, TextEncoder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

HEADS = ("query", "key", "value", "attention", "context")  # activations of each head
SITES = (*HEADS, "ffn_hidden")  # and of each layer
HEAD_WEIGHTS = ("query", "key", "value", "attention_output")  # matrices whose rows or columns belong to heads
MOST_LEVEL = 15  # levels of 4 bits are -15 to 15; attention weights and the FFN's are 0 to 15

Flags = NDArray[np.bool_]
Floats = NDArray[np.float32]
Entropies = NDArray[np.float64]
Levels = NDArray[Any]  # bits or levels
Arrays = Mapping[str, NDArray[np.int64]]  # input_ids, attention_mask and token_type_ids, (B, T) each


@dataclass(frozen=True)
class LayerInside:
    """The inside of one block; values at padding tokens have no meaning."""

    query: Levels  # (B, H, T, D), like key, value and context
    key: Levels
    value: Levels
    attention: Floats  # (B, H, T, T), the attention weights that multiply the values; 0 for a masked key
    attended: Levels  # their bits or levels
    context: Levels
    ffn_hidden: Levels  # (B, T, I), what enters the second FFN layer
    # Reads the bits of the six matrices, by their names in a packed file; rows are outputs. Empty where a weight has
    # several bits, or is the sum of two.
    weights: Callable[[], Mapping[str, Flags]]


@dataclass(frozen=True)
class Inside:
    """The inside of a pass over a batch; `real` is (B, T), false for padding."""

    real: Flags
    layers: tuple[LayerInside, ...]


@dataclass(frozen=True)
class Subject:
    """A model to look into; `name` is its file or folder, `scheme` the name of its scheme."""

    name: str
    scheme: str
    look: Callable[[Arrays], Inside]
    encode: Callable[[Sequence[Text]], list[Encoded]]
    tokens_of: Callable[[Sequence[int]], list[str]]
    logits: Callable[[Arrays], Floats]  # (B, labels)
    labels: Sequence[str]  # one name, or none, for a score
    temperature: float = 1.0

    def answer(self, row: Text) -> str:
        """The label of one text with its probability, or its score."""
        [logits] = self.logits(padded(self.encode([row])))
        if len(logits) == 1:
            return f"{logits[0]:.2f}"
        scores = softmax(logits, self.temperature)
        return f"{self.labels[int(scores.argmax())]} {scores.max():.2f}"

    def read(self, row: Text) -> tuple[tuple[str, ...], Inside]:
        """The tokens of one text, or pair of texts, and the inside of the model that reads them."""
        [encoded] = self.encode([row])
        return tuple(self.tokens_of(encoded.ids.tolist())), self.look(padded([encoded]))

    def insides(self, rows: Sequence[Text]) -> Iterator[Inside]:
        """Read any number of texts, one after the other: with levels of 4 bits, one of 128 tokens takes 90 MB."""
        if not rows:
            raise DataError("no text to read; give at least one")
        for row in rows:
            yield self.look(padded(self.encode([row])))


def load_subject(path: str | Path, max_length: int = MAX_LENGTH) -> Subject:
    """Load a packed file (or a name on the Hub), a model folder, or a run folder with a model in it.

    A folder truncates texts at `max_length` tokens; a packed file knows its own limit.
    """
    folder = network_folder(Path(path))
    if folder is None:
        found = find_file(path)
        packed = file.load(found)
        encoder = TextEncoder(packed.tokenizer, packed.config.vocabulary, packed.max_length, parallel=False)
        return Subject(
            found.name,
            str(packed.about.get("scheme", "bibert")),
            partial(inside_of_packed, packed),
            encoder.encode,
            encoder.tokens_of,
            lambda batch: reference.logits(packed, **batch),
            packed.labels,
            packed.temperature,
        )
    require_extra("train", f"a look into the folder {folder}")
    from bibert.lab.network import inside_of_network, logits_of_network
    from bibert.nn.checkpoint import load_classifier
    from bibert.training.provenance import provenance

    classifier = load_classifier(folder)
    model, tokenizer = classifier.model, classifier.tokenizer
    encode = partial(encode_rows, tokenizer, min(max_length, model.config.max_position_embeddings))
    name = folder.parent.name if folder.name == RUN_MODEL else folder.name
    return Subject(
        name,
        model.config.quantization.name,
        partial(inside_of_network, model),
        encode,
        tokenizer.convert_ids_to_tokens,
        partial(logits_of_network, model),
        classifier.label_names,
        provenance(folder).get("temperature", 1.0),
    )


def inside_of_packed(packed: PackedModel, batch: Arrays) -> Inside:
    """Read a batch with a packed model."""
    trace = reference.trace(packed, **batch)
    layers = tuple(_layer(packed, index, layer) for index, layer in enumerate(trace.layers))
    return Inside(batch["attention_mask"] == 1, layers)


def _layer(packed: PackedModel, index: int, layer: reference.LayerBits) -> LayerInside:
    config = packed.config
    inputs = dict.fromkeys(("query", "key", "value"), config.hidden)
    inputs |= {"attention_output": config.inner, "intermediate": config.hidden, "output": config.intermediate}
    attention = layer.attention.astype(np.float32)
    if config.has_levels:
        attention /= attention.sum(axis=-1, keepdims=True)
    return LayerInside(
        **{name: by_head(getattr(layer, name), config.heads) for name in ("query", "key", "value", "context")},
        attention=attention,
        attended=layer.attention,
        ffn_hidden=layer.ffn_hidden,
        weights=lambda: {
            name: unpack_rows(packed.tensor(f"layers.{index}.{name}.bits"), size) for name, size in inputs.items()
        },
    )


def by_head(rows: Levels, heads: int) -> Levels:
    """Heads side by side, (B, T, H · D), to (B, H, T, D)."""
    return rows.reshape(*rows.shape[:2], heads, -1).swapaxes(1, 2)


def encode_rows(tokenizer: "PreTrainedTokenizerBase", most: int, rows: Sequence[Text]) -> list[Encoded]:
    """Token ids of texts and pairs, in any mixture, truncated at `most` tokens."""
    texts = [(row,) if isinstance(row, str) else row for row in rows]
    read = [tokenizer(*row, truncation=True, max_length=most, return_token_type_ids=True) for row in texts]
    return [Encoded(np.array(one["input_ids"], np.int32), np.array(one["token_type_ids"], np.int32)) for one in read]


def padded(encoded: Sequence[Encoded]) -> Arrays:
    """Rows of token ids as one batch."""
    shape = (len(encoded), max(len(row.ids) for row in encoded))
    batch = {name: np.zeros(shape, np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
    for place, row in enumerate(encoded):
        real = slice(len(row.ids))
        batch["input_ids"][place, real] = row.ids
        batch["attention_mask"][place, real] = 1
        if row.token_types is not None:
            batch["token_type_ids"][place, real] = row.token_types
    return batch


def require_head(name: str, shape: Sequence[int], layer: int, head: int) -> None:
    """Raise an error if a model of `shape`, its layers and heads, has no such head."""
    if not (0 <= layer < shape[0] and 0 <= head < shape[1]):
        there = f"layers are 0 to {shape[0] - 1}, heads 0 to {shape[1] - 1}"
        raise DataError(f"{name}: has no layer {layer} with a head {head}; {there}")


def by_title(models: Sequence[Any]) -> dict[str, Any]:
    """Models or histories by title: the scheme if it is unique, else the name, numbered if it repeats."""
    schemes = Counter(one.scheme for one in models)
    names = [one.scheme if schemes[one.scheme] == 1 else one.name for one in models]
    times = Counter(names)
    titles = (name if times[name] == 1 else f"{name} ({place})" for place, name in enumerate(names, start=1))
    return dict(zip(titles, models, strict=True))


def entropies(insides: Iterable[Inside]) -> dict[str, Entropies]:
    """The entropy of each tensor over all batches, (layers, heads) or (layers,); of a matrix as "weight of ..."."""
    counts: list[dict[str, Any]] = []  # of each layer, by name: how often each level occurs
    last = None
    for last in insides:
        found = [_counts(layer, last.real) for layer in last.layers]
        both = zip(counts, found, strict=True) if counts else ()
        counts = [{name: one[name] + other[name] for name in one} for one, other in both] or found
    if last is None:
        raise DataError("no text was read, so there is no entropy; give at least one text")
    for count, layer in zip(counts, last.layers, strict=True):
        count |= _counts_of_weights(layer)
    return {name: np.array([_entropy(count[name]) for count in counts]) for name in counts[0]}


def rounded(tables: Mapping[str, Entropies]) -> dict[str, Any]:
    """Entropies with four digits, as plain values for JSON."""
    return {name: np.round(table, 4).tolist() for name, table in tables.items()}


def _counts(layer: LayerInside, real: Flags) -> dict[str, Any]:
    tokens, keys = real[:, None, :, None], real[:, None, None, :]
    found = {}
    for name in HEADS:
        bits, where = (layer.attended, tokens & keys) if name == "attention" else (getattr(layer, name), tokens)
        found[name] = _count(bits, where, (0, 2, 3))
    return found | {"ffn_hidden": _count(layer.ffn_hidden, real[..., None], (0, 1, 2))}


def _count(values: Levels, where: Flags, axes: tuple[int, ...]) -> NDArray[np.int64]:
    """How often each level occurs, (levels, ...)."""
    levels = (False, True) if values.dtype == np.bool_ else range(-MOST_LEVEL, MOST_LEVEL + 1)
    return np.array([((values == level) & where).sum(axes) for level in levels])


def _entropy(counts: NDArray[np.int64]) -> Entropies:
    """The entropy of levels that occur so often, over the first axis."""
    shares = counts / counts.sum(axis=0)
    return np.asarray(np.abs((shares * np.log2(np.where(shares > 0, shares, 1.0))).sum(axis=0)))


def _counts_of_weights(layer: LayerInside) -> dict[str, Any]:
    """The zeros and ones of each matrix."""
    counts = {}
    for name, bits in layer.weights().items():
        rows = bits.T if name == "attention_output" else bits  # (H · D, other side) if they belong to heads
        shape = (layer.attention.shape[1], -1) if name in HEAD_WEIGHTS else (-1,)
        counts[f"weight of {name}"] = _count(rows.reshape(shape), np.array(True), (-1,))
    return counts
