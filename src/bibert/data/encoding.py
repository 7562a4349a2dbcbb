"""Text to token ids, and token ids to batches: a tokenizer, a compact data set, padding, length-grouped order.

Checkpoints bring their own tokenizer; `train_tokenizer` makes one for models that start from scratch.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch.utils.data import Dataset, Sampler

from bibert.data import MOST_CHARACTERS
from bibert.data.examples import Split
from bibert.errors import DataError, RecipeError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_, UNK, CLS, SEP, _ = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4
CONTINUATION = "##"

ROWS_PER_CALL = 1000  # enough for the tokenizer's threads, few enough for its Python objects
BATCHES_PER_CHUNK = 50  # rows are sorted by length within this many batches: near-equal lengths, still random

EncodedRow = Mapping[str, Any]  # input_ids, token_type_ids and labels of one text
Batch = tuple[npt.NDArray[np.int64], dict[str, torch.Tensor]]  # the row numbers of a batch, and the batch


def train_tokenizer(texts: Iterable[str], vocab_size: int = 8192, max_length: int = 512) -> "PreTrainedTokenizerFast":
    """Build an uncased BERT tokenizer: the special tokens, every character, and the most frequent words of `texts`.

    A word outside the vocabulary is split into its characters. The same texts give the same vocabulary, which the
    trainer of `tokenizers` does not guarantee: it breaks ties by hash order. Here ties are broken alphabetically.
    """
    pipeline = Tokenizer(models.WordPiece(unk_token=UNK))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=True)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    counts: Counter[str] = Counter()
    for text in texts:
        words = pipeline.pre_tokenizer.pre_tokenize_str(pipeline.normalizer.normalize_str(text))
        counts.update(word for word, _ in words)
    vocabulary = _vocabulary(counts, vocab_size)
    pipeline.model = models.WordPiece(vocabulary, unk_token=UNK, continuing_subword_prefix=CONTINUATION)
    pipeline.decoder = decoders.WordPiece(prefix=CONTINUATION)
    pipeline.post_processor = processors.TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in (CLS, SEP)],
    )
    return fast_tokenizer(pipeline, max_length)


def fast_tokenizer(pipeline: Tokenizer, max_length: int) -> "PreTrainedTokenizerFast":
    """A tokenizer of BERT's as transformers wraps it."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=pipeline,
        **{f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS},
        model_max_length=max_length,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def _vocabulary(counts: Counter[str], vocab_size: int) -> dict[str, int]:
    """Number the special tokens, the characters, the characters inside a word, then words by frequency."""
    if not counts:
        raise DataError("the tokenizer has no texts to count words in; give it at least one that is not empty")
    characters = sorted({character for word in counts for character in word})
    inside = sorted({character for word in counts for character in word[1:]})
    fixed = [*SPECIAL_TOKENS, *characters, *(CONTINUATION + character for character in inside)]
    if vocab_size < len(fixed):
        raise DataError(f"vocab_size is {vocab_size}, but the special tokens and characters alone are {len(fixed)}")
    by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
    tokens = dict.fromkeys([*fixed, *by_frequency])  # a word of one letter is among the characters already
    return {token: number for number, token in zip(range(vocab_size), tokens, strict=False)}


@dataclass(frozen=True, eq=False)
class EncodedSplit(Dataset[dict[str, Any]]):
    """The token ids of a split: two flat arrays, and where each row starts in them."""

    input_ids: npt.NDArray[np.int32]  # of all rows, end to end
    token_type_ids: npt.NDArray[np.int8]  # 0 for the first text, 1 for the second
    offsets: npt.NDArray[np.int64]  # row i is input_ids[offsets[i]:offsets[i + 1]]
    labels: npt.NDArray[np.int64] | npt.NDArray[np.float32]  # class ids, or scores

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        row = index % len(self)
        place = slice(self.offsets[row], self.offsets[row + 1])
        ids, types = self.input_ids[place], self.token_type_ids[place]
        return {"input_ids": ids, "token_type_ids": types, "labels": self.labels[row]}

    @classmethod
    def joined(cls, splits: "Sequence[EncodedSplit]") -> "EncodedSplit":
        """All rows of several splits, one after the other."""
        lengths = np.concatenate([[0], *(split.lengths for split in splits)])
        names = ("input_ids", "token_type_ids", "labels")
        columns = {name: np.concatenate([getattr(split, name) for split in splits]) for name in names}
        return cls(offsets=np.cumsum(lengths, dtype=np.int64), **columns)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of tokens of each row."""
        return np.diff(self.offsets)


def encode(split: Split, tokenizer: "PreTrainedTokenizerFast", max_length: int) -> EncodedSplit:
    """Turn texts into token ids, cut to `max_length`; integer labels into int64 ids, others into float32 scores."""
    special = tokenizer.num_special_tokens_to_add(pair=split.pairs is not None)
    if max_length <= special:
        raise RecipeError(f"max_length is {max_length}, special tokens alone take {special}; set {special + 1} or more")
    ids: list[npt.NDArray[np.int32]] = []
    types: list[npt.NDArray[np.int8]] = []
    lengths: list[int] = [0]
    for start in range(0, len(split), ROWS_PER_CALL):
        place = slice(start, start + ROWS_PER_CALL)
        batch = tokenizer(
            [text[:MOST_CHARACTERS] for text in split.texts[place]],
            None if split.pairs is None else [text[:MOST_CHARACTERS] for text in split.pairs[place]],
            truncation=True,
            max_length=max_length,
            return_attention_mask=False,
            return_token_type_ids=True,
        )
        ids.append(np.fromiter(chain.from_iterable(batch["input_ids"]), dtype=np.int32))
        types.append(np.fromiter(chain.from_iterable(batch["token_type_ids"]), dtype=np.int8))
        lengths.extend(map(len, batch["input_ids"]))
    labels: npt.NDArray[Any] = np.asarray(split.labels)
    return EncodedSplit(
        input_ids=np.concatenate(ids),
        token_type_ids=np.concatenate(types),
        offsets=np.cumsum(lengths, dtype=np.int64),
        labels=labels.astype(np.int64) if labels.dtype.kind == "i" else labels.astype(np.float32),
    )


@dataclass(frozen=True)
class Collator:
    """Turns rows into a batch of tensors, padded to the longest row."""

    pad_token_id: int

    def __call__(self, rows: Sequence[EncodedRow]) -> dict[str, torch.Tensor]:
        """Pad and stack `rows`; padding has mask 0 and token type 0."""
        longest = max(len(row["input_ids"]) for row in rows)
        names = ("input_ids", "attention_mask", "token_type_ids")
        batch = {name: np.zeros((len(rows), longest), dtype=np.int64) for name in names}
        batch["input_ids"][:] = self.pad_token_id
        for position, row in enumerate(rows):
            for name in names:
                batch[name][position, : len(row["input_ids"])] = row.get(name, 1)  # rows have no mask: all is real
        batch["labels"] = np.asarray([row["labels"] for row in rows])
        return {name: torch.from_numpy(values) for name, values in batch.items()}


def batches_by_length(
    rows: "EncodedSplit | Sequence[EncodedRow]", collate: Collator, batch_size: int
) -> Iterator[Batch]:
    """Yield batches of rows of similar length, with the row numbers of each."""
    order = np.argsort([len(rows[place]["input_ids"]) for place in range(len(rows))], kind="stable")
    for start in range(0, len(order), batch_size):
        places = order[start : start + batch_size]
        yield places, collate([rows[int(place)] for place in places])


class LengthGroupedSampler(Sampler[int]):
    """A random order in which each run of `batch_size` rows has similar lengths; every row once an epoch.

    The order depends only on the seed and the epoch, so a resumed or a distributed run sees the same batches.
    `batch_size` counts the rows of one optimizer step over all processes. `extra_per_batch` of them are drawn from
    `extra` rows, which follow the others in number and do not lengthen the epoch.
    """

    def __init__(
        self,
        lengths: npt.NDArray[np.int64] | Sequence[int],
        batch_size: int,
        seed: int,
        extra: npt.NDArray[np.int64] | Sequence[int] = (),
        extra_per_batch: int = 0,
    ) -> None:
        self.lengths = np.asarray(lengths, dtype=np.int64)
        self.extra = np.asarray(extra, dtype=np.int64)
        self.extra_per_batch = extra_per_batch
        self.batch_size = batch_size - extra_per_batch
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the given epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths) + -(-len(self.lengths) // self.batch_size) * self.extra_per_batch

    def __iter__(self) -> Iterator[int]:
        generator = np.random.default_rng([self.seed, self.epoch])
        rows = len(self.lengths)
        shuffled = generator.permutation(rows)
        size = self.batch_size * BATCHES_PER_CHUNK
        chunks = [shuffled[start : start + size] for start in range(0, rows, size)]
        ordered = np.concatenate([chunk[np.argsort(self.lengths[chunk], kind="stable")] for chunk in chunks])
        # A last batch that is not full stays last: elsewhere it would shift the batches behind it.
        batches = [ordered[start : start + self.batch_size] for start in range(0, rows, self.batch_size)]
        if self.extra_per_batch:
            batches = self._with_extra(batches, generator)
        full = rows // self.batch_size
        for number in (*generator.permutation(full), *range(full, len(batches))):
            yield from batches[number].tolist()

    def _with_extra(self, batches: list[npt.NDArray[Any]], generator: np.random.Generator) -> list[npt.NDArray[Any]]:
        """Batches with extra rows, numbered from `len(lengths)` up: long texts with long ones."""
        wanted = len(batches) * self.extra_per_batch
        order = np.random.default_rng(self.seed).permutation(len(self.extra))  # all are seen before one comes again
        drawn = np.resize(np.roll(order, -(self.epoch * wanted % len(order))), wanted)
        groups = drawn[np.argsort(self.extra[drawn], kind="stable")].reshape(len(batches), -1) + len(self.lengths)
        places = np.argsort(np.argsort([self.lengths[batch].mean() for batch in batches], kind="stable"))
        mixed = [np.concatenate([batch, groups[place]]) for batch, place in zip(batches, places, strict=True)]
        return [generator.permutation(batch) for batch in mixed]  # processes that share a batch get both kinds


def check_length(max_length: int, positions: int) -> None:
    """Raise `RecipeError` for sequences longer than the model's position embedding."""
    if max_length > positions:
        raise RecipeError(f"max_length is {max_length}, the model has {positions} positions; set at most {positions}")


def check_types(split: EncodedSplit, types: int) -> None:
    """Raise `DataError` for pairs of texts if the model tells no second text from the first."""
    if (found := int(split.token_type_ids.max(initial=0)) + 1) > types:
        raise DataError(f"rows have {found} texts, the model's type_vocab_size is {types}; join the texts of a pair")
