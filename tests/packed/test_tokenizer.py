"""The tokenizer of a packed file: BERT's is read, anything else is refused by its name before the library sees it."""

import copy
import json
import re
import tracemalloc

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from bibert.errors import ModelFileError
from bibert.packed import file
from bibert.packed import tokenizer as module
from bibert.packed.header import encode
from bibert.packed.schema import BYTES_PER_TOKEN, SPARE_BYTES
from bibert.packed.tokenizer import MOST_ADDED, read_tokenizer

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a", "good")
ROWS = 64  # of the word embedding


@pytest.fixture(scope="module")
def bert():
    """The values of a tokenizer.json."""
    numbers = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [(word, numbers[word]) for word in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", special)
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(list(WORDS[:5]))
    tokenizer.add_tokens(["[new]", "[newer]"])
    return json.loads(tokenizer.to_str())


def dumped(values):
    return json.dumps(values).encode()


@pytest.fixture
def changed(bert):
    """A function: the tokenizer with other values, whose keys are paths such as "model.vocab"."""

    def change(**changes):
        values = copy.deepcopy(bert)
        for path, value in changes.items():
            *folders, name = path.split("__")
            place = values
            for folder in folders:
                place = place[int(folder) if isinstance(place, list) else folder]
            place[int(name) if isinstance(place, list) else name] = value
        return dumped(values)

    return change


def test_a_tokenizer_of_bert_is_read_as_it_is(bert):
    assert json.loads(read_tokenizer(dumped(bert), ROWS).to_str()) == bert


def test_what_bert_has_in_other_forms_is_read_too(bert, changed):
    old = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    assert read_tokenizer(changed(post_processor=old), ROWS).encode("good").ids == [2, 7, 3]
    assert read_tokenizer(changed(decoder=None), ROWS).encode("good").ids == [2, 7, 3]
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    fill = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": 0, "pad_id": 10**9}
    ignored = read_tokenizer(changed(truncation=cut, padding=fill), ROWS)
    assert json.loads(ignored.to_str()) == bert


REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
SPECIAL = "post_processor__special_tokens__[CLS]__ids"
SEQUENCE = {"Sequence": {"id": "A", "type_id": 0}}
HOSTILE = {
    # It made a text a billion times longer: the process aborted, at load or at predict.
    "replacements": ({"normalizer": {"type": "Sequence", "normalizers": [REPLACE] * 3}}, "normalizer is 'Sequence'"),
    "one replacement": ({"normalizer": REPLACE}, "normalizer is 'Replace', must be of the type BertNormalizer"),
    "no normalizer": ({"normalizer": None}, "normalizer is None"),
    # A word took time with the square of its length.
    "long words": ({"model__max_input_chars_per_word": 10**9}, "word is 1000000000, must be .* 1 to 100"),
    "words of length 0": ({"model__max_input_chars_per_word": 0}, "word is 0"),
    "words of length true": ({"model__max_input_chars_per_word": True}, "word is True"),
    "unigram": ({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a" * 20_000, 0.0]]}}, "model is 'Unigram'"),
    "many ids": ({SPECIAL: [2] * 10_000}, r"\[CLS\].*ids is .*, must be a list of 1 to 16"),
    "no ids": ({SPECIAL: []}, r"\[CLS\].*ids is a list of 0, must be a list of 1 to 16"),
    "many special tokens": ({"post_processor__single": [SEQUENCE] * 17}, "single is .* 0 to 16"),
    # It drew at random.
    "dropout": ({"model": {"type": "BPE", "dropout": 0.5, "vocab": {"a": 0}, "merges": []}}, "model is 'BPE'"),
    # Ids that the word embedding does not have were found out at predict.
    "an id of a word": ({"model__vocab__good": ROWS}, r"vocab\['good'\] is 64, must be .* 0 to 63"),
    "an id below 0": ({"model__vocab__good": -1}, r"vocab\['good'\] is -1"),
    "an id of a half": ({"model__vocab__good": 0.5}, r"vocab\['good'\] is 0.5"),
    "an id of a special token": ({SPECIAL: [ROWS]}, r"ids\[0\] is 64, must be .* 0 to 63"),
    "an id of an added token": ({"added_tokens__6__id": ROWS}, r"added_tokens\[6\].id is 64"),
    "another id of an added token": ({"added_tokens__6__id": 30}, r"added_tokens\[6\].id is 30, must be 9"),
    "another id of a token": ({"added_tokens__4__id": 5}, r"added_tokens\[4\].id is 5, must be 4"),
    # The rest of the table.
    "another version": ({"version": "2.0"}, "version is '2.0'"),
    "another key": ({"x": 1}, "the whole is .*, must be an object with the keys version"),
    "another field": ({"normalizer__x": 1}, "normalizer is .* the keys type, clean_text"),
    "another pre-tokenizer": ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a*)*$"}}}, "is 'Split'"),
    "another post-processor": ({"post_processor": {"type": "ByteLevel"}}, "post_processor is 'ByteLevel'"),
    "another decoder": ({"decoder": {"type": "Replace"}}, "decoder is 'Replace'"),
    "a type that is no name": ({"decoder": {"type": ["WordPiece"]}}, "decoder is a list of 1, must be of the type"),
    "a long prefix": ({"model__continuing_subword_prefix": "#" * 9}, "prefix is '#########', must be ##"),
    "an unknown token": ({"model__unk_token": "[nothing]"}, "unk_token is '.nothing.', must be a token"),
    "a long token": ({"added_tokens__5__content": "x" * 65}, r"\[5\].content is 'x+', must .* 64 characters"),
    "a token that vanishes": ({"added_tokens__5__content": "\0"}, r"\[5\].content is '.x00', must be more than"),
    "an empty token": ({"added_tokens__5__content": ""}, r"\[5\].content is ''"),
    "a text twice": ({"post_processor__single": [SEQUENCE] * 2}, r"single is .*, must be A once"),
    "nothing but the text": ({"post_processor__single": [SEQUENCE]}, r"single is .*, must be A once .* special"),
    "a pair without a text": ({"post_processor__pair": [SEQUENCE] * 3}, r"pair is .*, must be A and B once"),
    "a piece of another kind": ({"post_processor__single__0": {"Other": 1}}, r"single\[0\] is .* SpecialToken or"),
    "a special token of another name": (
        {"post_processor__special_tokens__[CLS]__id": "x"},
        "is '.CLS.', must be a key",
    ),
    "a token type": ({"post_processor__single__1": {"Sequence": {"id": "A", "type_id": 64}}}, "type_id is 64"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_anything_else_is_refused_by_its_name(name, changed, monkeypatch):
    changes, says = HOSTILE[name]
    if "another id" not in name and "vanishes" not in name:  # what only the library knows about an added token
        monkeypatch.setattr(module, "Tokenizer", None)
    with pytest.raises(ModelFileError, match=f"^tokenizer: .*{says}.*; use a plain BERT tokenizer$"):
        read_tokenizer(changed(**changes), ROWS)


def test_javascript_refuses_each_with_the_same_message(changed, tmp_path, check_in_javascript):
    raw, listed = changed(), []
    broken = [raw[:-1], raw + b"x", raw.replace(b"good", b"##a"), raw.replace(b": 7", b": NaN"), b"", b"[" * 262_144]
    broken += [raw.replace(b": 7", b": " + b"7" * 5000), raw.replace(b": 7", b": 7.0"), b"1" * 300_000]
    for number, bad in enumerate([*(changed(**changes) for changes, _ in HOSTILE.values()), *broken]):
        with pytest.raises(ModelFileError) as refusal:
            read_tokenizer(bad, ROWS)
        message = re.sub(r"(exceeded) while [^)]*", r"\1", str(refusal.value))  # the parser that gives up differs
        (tmp_path / str(number)).write_bytes(bad)
        listed.append({"file": str(tmp_path / str(number)), "rows": ROWS, "message": message})
    check_in_javascript([], {}, listed)


def test_a_repeated_key_and_deep_nesting_are_refused(changed):
    raw = changed()
    with pytest.raises(ModelFileError, match="tokenizer: the key 'good' is there 2 times"):
        read_tokenizer(raw.replace(b'"good": 7', b'"good": 7, "good": 6'), ROWS)
    with pytest.raises(ModelFileError, match="tokenizer: "):
        read_tokenizer(b"[" * 100_000, ROWS)
    with pytest.raises(ModelFileError, match="tokenizer: "):
        read_tokenizer(raw.replace(b'"good": 7', b'"good": ' + b"7" * 100_000), ROWS)


def test_the_size_of_a_tokenizer_is_limited_by_the_rows_of_the_embedding():
    most = SPARE_BYTES + BYTES_PER_TOKEN * 30_522
    with pytest.raises(ModelFileError, match=f"tokenizer: has {most + 1} bytes, at most {most} for 30522"):
        read_tokenizer(b" " * (most + 1), 30_522)


def test_a_file_with_a_larger_one_is_refused_before_it_is_read(make_model, tmp_path, monkeypatch):
    model, path = make_model(), tmp_path / "large.bibert"
    most = SPARE_BYTES + BYTES_PER_TOKEN * model.config.vocabulary
    path.write_bytes(encode(model, most + 1) + bytes(model.weights_bytes + most + 1))
    monkeypatch.setattr(file, "_read_data", None)
    with pytest.raises(ModelFileError, match=rf"large\.bibert: tokenizer: has {most + 1} bytes, at most {most}"):
        file.load(path)


@pytest.mark.parametrize("piece", [b"[],", b"{},", b'"ab",', b"[[257]],", b'{"a":[]},', b"1e9,"])
def test_the_worst_of_that_size_is_refused_with_little_memory(piece, changed):
    room = SPARE_BYTES + BYTES_PER_TOKEN * 30_522 - 10_000
    raw = changed(added_tokens=[]).replace(
        b'"added_tokens": []', b'"added_tokens": [' + piece * (room // len(piece)) + b"0]"
    )
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=f"added_tokens is .* 0 to {MOST_ADDED}"):
            read_tokenizer(raw, 30_522)
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()
