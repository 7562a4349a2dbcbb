"""A BERT tokenizer (WordPiece, uncased) for a set of texts, for models that start from nothing.

Checkpoints bring their own tokenizer; this one serves the quickstart and the tests. The vocabulary is counted here
and not learned by the trainer of `tokenizers`: that trainer breaks ties by hash order, so the same texts gave
different vocabularies from one run to the next.
"""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from bibert.errors import DataError

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4
CONTINUATION = "##"


def train_tokenizer(texts: Iterable[str], vocab_size: int = 8192, max_length: int = 512) -> PreTrainedTokenizerFast:
    """Build a WordPiece tokenizer: the special tokens, every character, and the most frequent words of `texts`.

    A word outside the vocabulary falls apart into its characters. The same texts give the same vocabulary; of words
    that are equally frequent the alphabetically first ones are taken.

    Args:
        texts: what to count; each text is lower-cased, stripped of accents and split as BERT does.
        vocab_size: the largest number of tokens.
        max_length: where the tokenizer truncates when it is asked to.

    Raises:
        DataError: there is no word in `texts`, or `vocab_size` does not even hold the characters.
    """
    pipeline = Tokenizer(models.WordPiece(unk_token=UNK))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=True)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    vocabulary = _vocabulary(_count_words(texts, pipeline), vocab_size)
    pipeline.model = models.WordPiece(vocabulary, unk_token=UNK, continuing_subword_prefix=CONTINUATION)
    pipeline.decoder = decoders.WordPiece(prefix=CONTINUATION)
    pipeline.post_processor = processors.TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in (CLS, SEP)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=pipeline,
        pad_token=PAD,
        unk_token=UNK,
        cls_token=CLS,
        sep_token=SEP,
        mask_token=MASK,
        model_max_length=max_length,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def _count_words(texts: Iterable[str], pipeline: Tokenizer) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        normal = pipeline.normalizer.normalize_str(text)
        counts.update(word for word, _ in pipeline.pre_tokenizer.pre_tokenize_str(normal))
    if not counts:
        raise DataError("the tokenizer has no texts to count words in; give it at least one that is not empty")
    return counts


def _vocabulary(counts: Counter[str], vocab_size: int) -> dict[str, int]:
    """Ids in this order: special tokens, characters, characters inside a word, words from the most frequent on."""
    characters = sorted({character for word in counts for character in word})
    inside = sorted({character for word in counts for character in word[1:]})
    by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
    fixed = [*SPECIAL_TOKENS, *characters, *(CONTINUATION + character for character in inside)]
    if vocab_size < len(fixed):
        raise DataError(f"vocab_size is {vocab_size}, but the special tokens and characters alone are {len(fixed)}")
    tokens = dict.fromkeys([*fixed, *by_frequency])  # a word of one letter is among the characters already
    return {token: number for number, token in zip(range(vocab_size), tokens, strict=False)}
