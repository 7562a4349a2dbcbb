"""A model to look into, whatever it is: a packed file, or a folder with a torch model.

A `Subject` takes texts and gives its inside (`inside`) with the tokens it read. Torch is imported only for a folder.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bibert.data.examples import MAX_LENGTH
from bibert.errors import DataError, require_extra
from bibert.lab.inside import Batch, Inside, inside_of_packed
from bibert.models import find_file
from bibert.nn import RUN_MODEL, network_folder
from bibert.packed import file
from bibert.runtime.engine import Encoded
from bibert.runtime.text import Row, TextEncoder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BATCH = 32  # texts that are read at a time


@dataclass(frozen=True)
class Reading:
    """What a model did with one text: its tokens, and its inside."""

    tokens: tuple[str, ...]
    inside: Inside


@dataclass(frozen=True)
class Subject:
    """A model to look into.

    Attributes:
        name: for titles: the file or folder.
        scheme: the name of its scheme.
        look: from token ids to its inside.
        encode: from texts to token ids.
        tokens_of: from token ids to tokens.
    """

    name: str
    scheme: str
    look: Callable[[Batch], Inside]
    encode: Callable[[Sequence[Row]], list[Encoded]]
    tokens_of: Callable[[Sequence[int]], list[str]]

    def read(self, row: Row) -> Reading:
        """Read one text, or pair of texts."""
        [encoded] = self.encode([row])
        return Reading(tuple(self.tokens_of(encoded.ids.tolist())), self.look(padded([encoded])))

    def insides(self, rows: Sequence[Row]) -> Iterator[Inside]:
        """Read any number of texts, some at a time.

        Raises:
            DataError: there is no text.
        """
        if not rows:
            raise DataError("no text to read; give at least one")
        for start in range(0, len(rows), BATCH):
            yield self.look(padded(self.encode(rows[start : start + BATCH])))


def load_subject(path: str | Path, max_length: int = MAX_LENGTH) -> Subject:
    """A packed file (or a name on the Hub), a model folder, or a run folder with a model in it.

    Args:
        path: what to load.
        max_length: tokens of the longest text that a folder reads; longer ones are cut.

    Raises:
        MissingExtraError: a folder needs torch, which is not installed.
        BibertError: it is none of these.
    """
    folder = network_folder(Path(path))
    return _from_file(find_file(path)) if folder is None else _from_folder(folder, max_length)


def _from_file(path: Path) -> Subject:
    packed = file.load(path)
    encoder = TextEncoder(packed.tokenizer, packed.config.vocabulary, packed.max_length, parallel=False)
    scheme = str(packed.about.get("scheme", "bibert"))
    return Subject(path.name, scheme, partial(inside_of_packed, packed), encoder.encode, encoder.tokens_of)


def _from_folder(folder: Path, max_length: int) -> Subject:
    require_extra("train", f"a look into the folder {folder}")
    from bibert.lab.network import inside_of_network
    from bibert.nn.checkpoint import load_classifier

    classifier = load_classifier(folder)
    model, tokenizer = classifier.model, classifier.tokenizer
    encode = partial(encode_rows, tokenizer, min(max_length, model.config.max_position_embeddings))
    name = folder.parent.name if folder.name == RUN_MODEL else folder.name
    scheme = model.config.quantization.name
    return Subject(name, scheme, partial(inside_of_network, model), encode, tokenizer.convert_ids_to_tokens)


def encode_rows(tokenizer: "PreTrainedTokenizerBase", most: int, rows: Sequence[Row]) -> list[Encoded]:
    """Token ids of texts and pairs, which may stand side by side, cut at `most` tokens."""
    texts = [(row,) if isinstance(row, str) else row for row in rows]
    read = [tokenizer(*row, truncation=True, max_length=most, return_token_type_ids=True) for row in texts]
    ids, types = ([np.array(one[name], np.int32) for one in read] for name in ("input_ids", "token_type_ids"))
    return [Encoded(*row) for row in zip(ids, types, strict=True)]


def padded(encoded: Sequence[Encoded]) -> Batch:
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


class Named(Protocol):
    """What has a scheme and a name."""

    @property
    def scheme(self) -> str: ...  # noqa: D102

    @property
    def name(self) -> str: ...  # noqa: D102


def titles(models: Sequence[Named]) -> list[str]:
    """A title for each, no two alike: its scheme, else its name, else its name with its place in the row."""
    schemes = Counter(model.scheme for model in models)
    names = [model.scheme if schemes[model.scheme] == 1 else model.name for model in models]
    times = Counter(names)
    return [name if times[name] == 1 else f"{name} ({place})" for place, name in enumerate(names, start=1)]
