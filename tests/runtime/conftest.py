"""A small tokenizer like BERT's, small packed models with random weights, and their files."""

from dataclasses import replace

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from bibert.packed.file import PackedModel, save
from bibert.packed.schema import PackedConfig

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Some words whole, some that fall into pieces, letters and digits, a little of everything else; the rest is unknown.
WORDS = ("the", "film", "is", "good", "bad", "un", "##able", "##s", "hello", "world", "=", "cafe", "中", "文")
SINGLE = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'\"()[]<>/-:;#@\u2014\u201c\u0301éß한カ😀"
VOCABULARY = tuple(dict.fromkeys((*SPECIAL, *WORDS, *SINGLE, *(f"##{letter}" for letter in SINGLE[:36]))))
SHAPE = PackedConfig(2, 40, 2, 20, 70, len(VOCABULARY), positions=64, token_types=2, labels=3)


@pytest.fixture(scope="session")
def new_tokenizer():
    """A factory; what it is given goes to the normalizer."""

    def make(added=(), **normalizer):
        numbers = {token: number for number, token in enumerate(VOCABULARY)}
        tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(**normalizer)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS]:0 $A:0 [SEP]:0",
            pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
            special_tokens=[(token, numbers[token]) for token in ("[CLS]", "[SEP]")],
        )
        tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
        tokenizer.add_tokens(list(added))
        return tokenizer

    return make


@pytest.fixture(scope="session")
def tokenizer(new_tokenizer):
    return new_tokenizer().to_str().encode()


@pytest.fixture(scope="session")
def new_packed(tokenizer, tensors_of):
    """A factory of models; what it is not given is small. Seed 5 tells the labels of a few words apart."""

    def make(seed=5, tokenizer=tokenizer, max_length=32, **shape):
        config = replace(SHAPE, **shape)
        labels = ["negative", "neutral", "positive", *map(str, range(config.labels))][: config.labels]
        return PackedModel.from_tensors(config, labels, max_length, tensors_of(config, seed), tokenizer, {"seed": seed})

    return make


@pytest.fixture(scope="session")
def model_file(new_packed, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "small.bibert"
    save(new_packed(), path)
    return path


@pytest.fixture(scope="session")
def with_tensors():
    """A function: the model with other values in some tensors, and parts that it did not have."""

    def make(packed, changes, **config):
        tensors = {spec.name: packed.tensor(spec.name) for spec in packed.specs[:-1]} | changes
        shape = replace(packed.config, **config)
        return PackedModel.from_tensors(shape, packed.labels, packed.max_length, tensors, packed.tokenizer, {})

    return make
