"""Bad files, one for every way a file can be wrong: each is refused with its own message."""

import copy
import hashlib
import json
import math
import re
import struct
from collections.abc import Callable

import pytest

from bibert.errors import ModelFileError
from bibert.packed.file import load, save
from bibert.packed.schema import tensor_specs

DEEP = "[" * 10**5
LONG = "x" * 10**5


class Draft:
    """A good file taken apart; `build` puts it together again after a change, with the digest it should have."""

    def __init__(self, model):
        self.model = model
        self.metadata = {
            "format": "bibert",
            "version": "2" if model.config.has_levels else "1",
            "config": dump(model.config.to_dict(), sort_keys=True),
            "labels": dump(model.labels),
            "max_length": "8",
            "about": dump(model.about),
            "sha256": "0" * 64,
        }
        specs = tensor_specs(model.config, len(model.tokenizer))
        self.table = {
            name: entry(dtype, shape, begin, spec.nbytes) for spec in specs for name, dtype, shape, begin in [spec]
        }
        self.data = bytearray(model.data)

    def build(self, rewrite: Callable[[str], str] = lambda text: text) -> bytes:
        """The file; `rewrite` may change the text of the header before it is padded and signed."""
        text = rewrite(dump({"__metadata__": self.metadata} | self.table)).encode("utf-8", "surrogateescape")
        text += b" " * (-len(text) % 8)
        unsigned = len(text).to_bytes(8, "little") + text + self.data
        return unsigned.replace(b"0" * 64, hashlib.sha256(unsigned).hexdigest().encode(), 1)

    def config(self, **changes):
        self.metadata["config"] = dump(json.loads(self.metadata["config"]) | changes, sort_keys=True)

    def put(self, name, index, value):
        """Change one number of the data."""
        spec = next(spec for spec in self.model.specs if spec.name == name)
        code, size = {"U64": ("<Q", 8), "F32": ("<f", 4), "I32": ("<i", 4)}[spec.dtype]
        struct.pack_into(code, self.data, spec.offset + size * index, value)


def dump(value, sort_keys=False):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys)


def entry(dtype, shape, begin, size):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, begin + size]}


# Each function below gives a change: a function that gets a draft and alters it, or returns the bytes of the bad file.


def metadata(**changes):
    return lambda draft: draft.metadata.update(changes)


def config(**changes):
    return lambda draft: draft.config(**changes)


def tensor(name, **changes):
    return lambda draft: draft.table[name].update(changes)


def table(change):
    return lambda draft: change(draft.table)


def number(name, index, value):
    return lambda draft: draft.put(name, index, value)


def header(old, new):
    """The text of the header with `old` replaced once."""

    def rewrite(text):
        assert old in text
        return text.replace(old, new, 1)

    return lambda draft: draft.build(rewrite)


def rewritten(rewrite):
    return lambda draft: draft.build(rewrite)


def whole_header(text):
    return rewritten(lambda _: text)


def length(value):
    return lambda draft: value.to_bytes(8, "little") + draft.build()[8:]


def without(name):
    return lambda draft: draft.metadata.pop(name)


def config_text(change):
    return lambda draft: draft.metadata.update(config=change(draft.metadata["config"]))


def shift(name, begin, end):
    """Move the offsets of a tensor."""

    def change(draft):
        first, last = draft.table[name]["data_offsets"]
        draft.table[name]["data_offsets"] = [first + begin, last + end]

    return change


# Each way to be bad: the change or the bytes of the file, and what matches its message and no other.
KINDS = {
    # not a packed file at all
    "empty": (b"", "has 0 bytes.* takes 8"),
    "seven bytes": (b"\x10" + b"\x00" * 6, "has 7 bytes.* takes 8"),
    "torch checkpoint": (b"PK\x03\x04" + bytes(100), r"torch checkpoint \(.bin, .pt\)"),
    "pickle": (b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x02os", "Python pickle"),
    "git lfs pointer": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "gguf": (b"GGUF\x03\x00\x00\x00" + bytes(100), "GGUF"),
    "web page": (b"<!DOCTYPE html><html></html>", "web page"),
    "config.json": (b'{"architectures": []}', "plain JSON"),
    "text": (b"text\tlabel\ngood\t1\n", "not a file made by bibert pack: .* 7089066076322424180 bytes"),
    "hugging face checkpoint": (metadata(format="pt"), "__metadata__ is {'format': 'pt'.* must .* 'bibert'"),
    "bare safetensors": (whole_header('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'), "__metadata__ is None"),
    # the length of the header
    "no header": (length(0), "header: .*not JSON.* 0 of 0"),
    "odd header": (length(7), "header: .*not JSON.* 1 of 7"),
    "header of a megabyte and more": (length(2**20 + 8), " 1048584 bytes, at most 1048576"),
    "header of 2^63": (length(2**63), " 9223372036854775808 bytes"),
    "header of 2^64 - 8": (length(2**64 - 8), " 18446744073709551608 bytes"),
    "cut in the header": (lambda draft: draft.build()[:1000], "header: 1000 bytes of at least"),
    # its text
    "not UTF-8": (header("label 1", "label \udcff"), r"header .*not UTF-8 at byte 3\d\d of"),
    "not JSON": (header('{"__metadata__"', '{__metadata__"'), "header: is not JSON: .* character 1 of 3"),
    "no object": (whole_header('["__metadata__"]'), r"header: is \['__metadata__'\], must be an object"),
    "deep header": (whole_header('{"a":' + DEEP), "header: is nested 17 deep.* 16"),
    "tensor twice": (header('"pooler.bias"', '"pooler.scale"'), "header: the key 'pooler.scale' is there 2 times"),
    "metadata twice": (header('{"format"', '{"format":"a","format"'), "header: the key 'format' is there 2 times"),
    "NaN in the header": (header('"shape":[12,1]', '"shape":[NaN,1]'), "header: the number NaN"),
    "endless number": (header('"shape":[12,1]', f'"shape":[{"9" * 5000},1]'), "header: .* 5000 digits, at most 32"),
    # one spelling
    "space": (header('a__":{"format"', 'a__": {"format"'), r"""spelling .* byte 16 .* b' \{"forma', must"""),
    "tab as padding": (rewritten(lambda text: text + "\t"), r"spelling .* b'\\t *', must"),
    "too much padding": (rewritten(lambda text: text + " " * 16), "spelling .* must be b''"),
    "needless escape": (header('"bibert"', '"b\\u0069bert"'), r"spelling .* b'\\\\u0069be', must"),
    "true for 1": (header('"shape":[12,1]', '"shape":[12,true]'), "spelling .* b'true]"),
    "another order of keys": (header('"dtype":"U8","shape":[17]', '"shape":[17],"dtype":"U8"'), "spelling .* b'shape"),
    "about with a space": (metadata(about='{"seed": 0}'), "spelling .* b' 0}"),
    "tensors in another order": (
        table(lambda entries: entries.update({"pooler.bias": entries.pop("pooler.bias")})),
        "spelling .* b'classifi', must be b'pooler",
    ),
    # format and version
    "metadata is a list": (lambda draft: setattr(draft, "metadata", ["0" * 64]), r"__metadata__ is \['"),
    "no format": (without("format"), "__metadata__ is {'version'"),
    "version 0": (metadata(version="0"), "version is '0', must be"),
    "version of the future": (metadata(version="3"), "newer bibert: .*version 3.* up to 2; pip install"),
    "version 2 with one bit": (metadata(version="2"), """spelling .* b'2",.* must be b'1"""),
    "version in words": (metadata(version="one"), "version is 'one', must be"),
    "version as a number": (metadata(version=1), "version is 1, must be"),
    "version missing": (without("version"), "version is None, must be"),
    # fields of the metadata
    "unknown field": (metadata(label="a"), r"metadata: .*unknown fields \['label'\]"),
    "missing field": (without("labels"), r"metadata: missing fields \['labels'\]"),
    "field that is no string": (metadata(max_length=8), "metadata: max_length is 8, must be a string"),
    "digest in capitals": (metadata(sha256="A" * 64), "metadata: sha256 is 'A+', must be 64 digits"),
    "digest too short": (metadata(sha256="abc"), "metadata: sha256 is 'abc', must be 64 digits"),
    "digest of something else": (metadata(sha256="12" * 32), "SHA-256 [0-9a-f]{64}, the header says (12){32};"),
    # config
    "config a long text": (metadata(config=f'"{LONG}"'), "config: is 'x+ ... x+', must be an object"),
    "config a list": (metadata(config="[]"), r"config: is \[\], must be an object"),
    "config key twice": (config_text(lambda text: text.replace('"heads"', '"layers"')), "config: the key 'layers' is"),
    "config unknown field": (config(hiden=20), r"config: .* unknown fields \['hiden'\]"),
    "config field missing": (config_text(lambda text: text.replace('"heads":2,', "")), r"config: .*\['heads'\]"),
    "config with a long name": (config(**{"y" * 50_000: 1}), r"config: .*'y{200,300} \.\.\. "),
    "no layers": (config(layers=0), "config: layers is 0, must be .* 1 to 48"),
    "thresholds no list": (config(thresholds="query"), "config: thresholds is 'query', must list"),
    # labels, max_length, about
    "labels not JSON": (metadata(labels="a,b"), "labels: is not JSON"),
    "labels no list": (metadata(labels='{"0":"a"}'), r"labels is \{'0': 'a'\}, must be a list"),
    "a label too many": (metadata(labels='["a","b","c"]'), "labels has 3 .* 2 outputs"),
    "label empty": (metadata(labels='["a",""]'), "labels: number 1 is ''"),
    "label a number": (metadata(labels="[0,1]"), "labels: number 0 is 0"),
    "label twice": (metadata(labels='["a","a"]'), "labels: 'a' is there 2 times"),
    "half a character": (metadata(labels='["a","\\ud800"]'), r"labels: number 1 is '\\ud800'"),
    "max_length 0": (metadata(max_length="0"), "max_length is '0'"),
    "max_length beyond": (metadata(max_length="9"), "max_length is 9, must be 1 to 8"),
    "max_length with a zero": (metadata(max_length="08"), "max_length is '08'"),
    "temperature too high": (metadata(temperature="20.5"), "temperature is 20.5, must .* 0.05 to 20.0"),
    "temperature no number": (metadata(temperature='"1.5"'), "temperature is '1.5', must be a float"),
    "temperature not finite": (metadata(temperature="NaN"), "temperature: the number NaN"),
    "temperature of 1 spelled out": (
        header('"about":', '"temperature":"1.0","about":'),
        "spelling .* b'temperat', must be b'about",
    ),
    "about no object": (metadata(about='"me"'), "about: is 'me', must be an object"),
    "about too long": (metadata(about=dump({"a": "x" * 2**16})), "about: has 65544 bytes, at most 65536"),
    "about half a character": (metadata(about='{"a":"\\udfff"}'), "about: .*surrogates"),
    # the table of tensors
    "tensor missing": (table(lambda entries: entries.pop("pooler.bits")), "'pooler.bits' is absent, must"),
    "tensor too many": (table(lambda entries: entries.update(x=entry("U8", [0], 0, 0))), "'x' is .*, must be absent"),
    "entry no object": (table(lambda entries: entries.update({"pooler.scale": 1})), "'pooler.scale' is 1, must"),
    "entry with more": (tensor("pooler.bias", strides=[4]), r"'pooler.bias' is .* 'strides': \[4\]}, must"),
    "wrong dtype": (tensor("pooler.bias", dtype="F64"), "'pooler.bias' is .*'F64'.*, must be .*'F32'"),
    "rank 0": (tensor("pooler.bias", shape=[]), r"'pooler.bias' is .*\[\].*, must be .*\[20\]"),
    "rank 99": (tensor("pooler.bias", shape=[1] * 98 + [20]), r"'pooler.bias' is .*\[(1, ){98}20\].*, must be"),
    "dimension 2^60": (tensor("pooler.bias", shape=[2**60]), r"'pooler.bias' is .*\[1152921504606846976\]"),
    "product beyond 2^64": (tensor("pooler.bits", shape=[2**33, 2**33]), r"'pooler.bits' is .*\[(8589934592,? ?){2}\]"),
    "transposed": (tensor("embeddings.position", shape=[20, 8]), r"position' is .*\[20, 8\].* must be .*\[8, 20\]"),
    "overlap": (shift("pooler.bias", -4, -4), r"'pooler.bias' is .*\[4036, 4116\].*, must be .*\[4040, 4120\]"),
    "hole": (shift("pooler.bias", 4, 4), r"'pooler.bias' is .*\[4044, 4124\]"),
    "offset below 0": (shift("pooler.bits", -(10**6), 0), r"'pooler.bits' is .*\[-998840, "),
    "offset beyond the file": (shift("pooler.bits", 0, 2**62), r"'pooler.bits' is .*, 4611686018427389224\]"),
    "no tokenizer": (table(lambda entries: entries.pop("tokenizer")), "'tokenizer' is None, must"),
    "empty tokenizer": (tensor("tokenizer", shape=[0]), r"'tokenizer' is .*\[0\].*, must"),
    "tokenizer of rank 2": (tensor("tokenizer", shape=[17, 1]), r"'tokenizer' is .*\[17, 1\].*, must"),
    # the data section
    "data cut": (lambda draft: draft.build()[:-1], r"\d+ bytes of \d+, 1 are missing"),
    "no data": (lambda draft: draft.data.clear(), r"\d+ bytes of \d+, 4305 are missing"),
    "bytes behind the end": (lambda draft: draft.build() + b"PK\x03\x04", r"\d+ bytes of \d+, 4 too many"),
    "one bit flipped": (
        lambda draft: draft.build()[:-1] + bytes([draft.data[-1] ^ 1]),
        "SHA-256 [0-9a-f]{64}, the header says (?!1212)",
    ),
    "NaN bias": (number("pooler.bias", 3, math.nan), "'pooler.bias': .*nan to nan, must be finite"),
    "infinite scale": (number("pooler.scale", 0, math.inf), "'pooler.scale': .* to inf, must be finite"),
    "infinite threshold": (number("layers.0.query.threshold", 19, -math.inf), "'layers.0.query.threshold': .*-inf to"),
    "negative scale": (number("layers.0.output.scale", 1, -0.5), "'layers.0.output.scale': holds -0.5"),
    "scale of minus 0": (number("embeddings.word.scale", 5, -0.0), "'embeddings.word.scale': holds -0.0"),
    "stray bit of a word": (number("embeddings.word.bits", 11, 2**63), "'embeddings.word.bits': a bit .* 20"),
    "stray bit of a layer": (number("layers.0.output.bits", 0, 2**33), "'layers.0.output.bits': a bit .* 33"),
    "score threshold too low": (number("layers.0.score_threshold", 1, -12), "score_threshold': .* -12 to .* -11 to 11"),
    "score threshold too high": (
        number("layers.0.score_threshold", 0, 2**31 - 1),
        "score_threshold': .* to 2147483647",
    ),
}


# Models that could leave the range for some text.
BEYOND = {
    "embeddings.word.scale": (4e4, r"'embeddings.norm': .* 178\d{3}, must stay below 32768"),
    "embeddings.position": (-4e5, r"'embeddings.norm': .* 4\d{5}, must"),
    "layers.0.attention_output.scale": (3e38, r"'layers.0.attention_norm': .* [\d.]+e\+39, must"),
    "layers.0.attention_norm.weight": (-1e4, r"'layers.0.output_norm': .* [\d.]{5,7}, must"),
    "layers.0.output.scale": (4e7, r"'layers.0.output_norm': .*e\+\d\d, must"),
    "classifier.weight": (3.4028234e38, "'classifier': a logit .* 3.40282e.38"),
}
KINDS |= {f"{name} of {value}": (number(name, 0, value), says) for name, (value, says) in BEYOND.items()}

# The same for a file of version 2.
LEVELS = {
    "version 1 with levels": (metadata(version="1"), """spelling .* b'1",.* must be b'2"""),
    "three bits": (config(activation_bits=3), r"config: .* are \(3, 4\), .* 2 or 4"),
    "bits true": (config(attention_bits=True), r"config: .* are \(2, True\), .* 2 or 4"),
    "one bit of attention": (config(attention_bits=1), r"config: .* are \(2, 1\), .* 2 or 4"),
    "half a dial": (
        config_text(lambda text: text.replace('"attention_bits":4,', "")),
        r"config: .*\['attention_bits'\]",
    ),
    "levels and thresholds": (config(thresholds=["query"]), r"config: .* \(\('query',\), .* activation_bits 2"),
    "levels and score thresholds": (config(score_thresholds=True), r"config: .* \(\(\), True, .* activation_bits 2"),
    "levels of ±1": (config(ffn_levels="sign"), r"config: .* \(\(\), False, 'sign'\) .* activation_bits 2"),
    "infinite edge": (number("pooler_input.edge", 1, math.inf), "'pooler_input.edge': .* to inf, must be finite"),
    "rate of 0": (number("pooler_input.rate", 0, 0.0), "'pooler_input.rate': holds 0.0, .* above 0"),
    "negative rate": (number("layers.0.query.rate", 0, -1.0), "'layers.0.query.rate': holds -1.0, .* above 0"),
    "epsilon of nearly 0": (config(norm_eps=5e-324), r"'layers.0.attention_norm': .* length inf, must"),
    "step of 0": (number("layers.0.value.step", 0, 0.0), "'layers.0.value.step': holds 0.0, .* above 0"),
    "negative limit": (number("layers.0.attention_threshold", 29, -1), "attention_threshold': .* -1 to .* rise"),
    "rising limit": (number("layers.0.attention_threshold", 17, 99), "attention_threshold': .* to 99, .* rise"),
}
ALL = KINDS | LEVELS


@pytest.fixture(scope="module")
def draft(make_model):
    return Draft(make_model())


@pytest.fixture(scope="module")
def draft_of_levels(make_levels):
    return Draft(make_levels())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of all bad files, which have the name of their kind."""
    return tmp_path_factory.mktemp("bad")


@pytest.fixture(scope="module")
def messages(draft, draft_of_levels, folder):
    """What `load` says of every kind, without the path it starts with."""
    found = {}
    for name, (change, _) in ALL.items():
        path = folder / name
        changed = copy.deepcopy(draft_of_levels if name in LEVELS else draft)
        content = change if isinstance(change, bytes) else change(changed)
        path.write_bytes(content if isinstance(content, bytes) else changed.build())
        with pytest.raises(ModelFileError) as refusal:
            load(path)
        assert str(refusal.value).startswith(f"{path}: ")
        found[name] = str(refusal.value).removeprefix(f"{path}: ")
    return found


def test_the_drafts_that_bad_files_are_made_of_are_themselves_good(draft, draft_of_levels, tmp_path):
    for good in (draft, draft_of_levels):
        save(good.model, tmp_path / "good.bibert")
        assert good.build() == (tmp_path / "good.bibert").read_bytes()


@pytest.mark.parametrize("name", ALL)
def test_each_bad_file_is_refused_with_its_own_short_message(name, messages):
    assert [other for other in ALL if re.search(ALL[name][1], messages[other])] == [name]
    assert messages[name].isprintable()
    assert len(messages[name]) < 700


def test_javascript_refuses_each_bad_file_with_the_same_message(messages, folder, check_in_javascript):
    check_in_javascript([], {folder / name: message for name, message in messages.items()})
