"""Bad files made by hand, one for every way a file can be wrong: each is refused with a message of its own."""

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
            "version": "1",
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


def flipped(place):
    """One bit of a good file changed."""

    def make(draft):
        content = bytearray(draft.build())
        content[place] ^= 1
        return bytes(content)

    return make


def raw(content):
    return lambda _: content


def length(value):
    return lambda draft: value.to_bytes(8, "little") + draft.build()[8:]


def without(name):
    return lambda draft: draft.metadata.pop(name)


def config_text(change):
    return lambda draft: draft.metadata.update(config=change(draft.metadata["config"]))


def shift(name, begin, end):
    """Move the offsets of a tensor."""

    def change(entries):
        offsets = entries[name]["data_offsets"]
        entries[name]["data_offsets"] = [offsets[0] + begin, offsets[1] + end]

    return table(change)


# Each way to be bad: the change, and what matches the message for it and for no other.
KINDS = {
    # not a packed file at all
    "empty": (raw(b""), "is empty, 0 bytes"),
    "seven bytes": (raw(b"\x10" + b"\x00" * 6), "has 7 bytes, the length of its header alone takes 8"),
    "torch checkpoint": (
        raw(b"PK\x03\x04" + bytes(100)),
        r"is a zip archive, perhaps a torch checkpoint \(.bin, .pt\)",
    ),
    "pickle": (raw(b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x02os"), "is a Python pickle, which could run"),
    "git lfs pointer": (raw(b"version https://git-lfs.github.com/spec/v1\n"), "is a Git LFS pointer, not the file"),
    "gguf": (raw(b"GGUF\x03\x00\x00\x00" + bytes(100)), "is a GGUF model"),
    "web page": (raw(b"<!DOCTYPE html><html></html>"), "is a web page or XML, not a model; check the address"),
    "config.json": (raw(b'{"architectures": []}'), "is plain JSON, perhaps a config.json"),
    "text": (
        raw(b"text\tlabel\ngood\t1\n"),
        "is not a file made by bibert pack: its header would have 7089066076322424180 bytes",
    ),
    "hugging face checkpoint": (metadata(format="pt"), "is a safetensors file of format 'pt', not 'bibert'"),
    "bare safetensors": (
        whole_header('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'),
        "file without __metadata__, not a packed",
    ),
    # the length of the header
    "no header": (length(0), "its header has 0 bytes, must be a multiple of 8 above 0"),
    "odd header": (length(7), "its header has 7 bytes, must be a multiple of 8 above 0"),
    "header of a megabyte and more": (length(2**20 + 8), "its header would have 1048584 bytes, at most 1048576"),
    "header of 2^63": (length(2**63), "its header would have 9223372036854775808 bytes"),
    "header of 2^64 - 8": (length(2**64 - 8), "its header would have 18446744073709551608 bytes"),
    "cut in the header": (lambda draft: draft.build()[:1000], "is cut in its header: 1000 bytes of at least"),
    # its text
    "not UTF-8": (header("label 1", "label \udcff"), "the header is not UTF-8 at its byte"),
    "not JSON": (header('{"__metadata__"', '{__metadata__"'), "the header: is not JSON: Expecting property name"),
    "no object": (whole_header('["__metadata__"]'), r"the header: is \['__metadata__'\], must be an object"),
    "text behind the JSON": (rewritten(lambda text: text + "{}"), "the header: is not JSON: Extra data"),
    "deep header": (whole_header('{"a":' + DEEP), "the header: is nested 17 deep or more, at most 16"),
    "tensor twice": (header('"pooler.bias"', '"pooler.scale"'), "the header: the key 'pooler.scale' is there 2 times"),
    "metadata twice": (header('{"format"', '{"format":"a","format"'), "the header: the key 'format' is there 2 times"),
    "NaN in the header": (header('"shape":[12,1]', '"shape":[NaN,1]'), "the header: the number NaN is not finite"),
    "infinite number": (header('"shape":[12,1]', '"shape":[1e999,1]'), "the header: the number 1e999 is not finite"),
    "endless number": (header('"shape":[12,1]', f'"shape":[{"9" * 5000},1]'), "a number has 5000 digits, at most 32"),
    # one spelling
    "space": (
        header('a__":{"format"', 'a__": {"format"'),
        r"""another spelling .* it is b' \{"forma', must""",
    ),
    "tab as padding": (rewritten(lambda text: text + "\t"), r"another spelling .* it is b'\\t *', must"),
    "too much padding": (rewritten(lambda text: text + " " * 16), "another spelling .* must be b''"),
    "needless escape": (header('"bibert"', '"b\\u0069bert"'), r"another spelling .* it is b'\\\\u0069be', must"),
    "true for 1": (header('"shape":[12,1]', '"shape":[12,true]'), "another spelling .* it is b'true]"),
    "another order of keys": (header('"dtype":"U8","shape":[17]', '"shape":[17],"dtype":"U8"'), "it is b'shape\":\\["),
    "about with a space": (metadata(about='{"seed": 0}'), r'another spelling .* it is b\' 0}","'),
    # format and version
    "metadata is a list": (
        lambda draft: setattr(draft, "metadata", ["0" * 64]),
        "__metadata__ is a list",
    ),
    "no format": (without("format"), "is a safetensors file of format None, not 'bibert'"),
    "version 0": (metadata(version="0"), "metadata: version is 0, the first is 1"),
    "version of the future": (
        metadata(version="2"),
        "made by a newer bibert: the file has version 2, this bibert reads up to 1; pip",
    ),
    "version in words": (metadata(version="one"), "metadata: version is 'one', must be a string of digits"),
    "version as a number": (metadata(version=1), "metadata: version is 1, must be a string of digits"),
    "version missing": (without("version"), "metadata: version is None, must be a string of digits"),
    # fields of the metadata
    "unknown field": (metadata(label="a"), "metadata: there is no field 'label'; did you mean 'labels'"),
    "missing field": (without("labels"), "metadata: the field 'labels' is missing"),
    "field that is no string": (metadata(max_length=8), "metadata: max_length is 8, must be a string"),
    "digest in capitals": (metadata(sha256="A" * 64), "metadata: sha256 is 'A+', must be 64 digits"),
    "digest too short": (metadata(sha256="abc"), "metadata: sha256 is 'abc', must be 64 digits"),
    "digest of something else": (
        metadata(sha256="12" * 32),
        "contents have SHA-256 [0-9a-f]{64}, the header says (12){32};",
    ),
    # config
    "config too long": (metadata(config=f'"{LONG}"'), "config: has 100002 bytes, at most 65536"),
    "config not JSON": (metadata(config="{"), "config: is not JSON"),
    "config deep": (metadata(config="[" * 10**4), "config: is nested 17 deep"),
    "config a list": (metadata(config="[]"), r"config: is \[\], must be an object"),
    "config key twice": (config_text(lambda text: text.replace('"heads"', '"layers"')), "config: the key 'layers' is"),
    "config unknown field": (config(hiden=20), "config: there is no field 'hiden'; did you mean 'hidden'"),
    "config field missing": (config_text(lambda text: text.replace('"heads":2,', "")), "config: the field 'heads' is"),
    "config with a long name": (config(**{"y" * 50_000: 1}), r"config: there is no field 'y{200,300} \.\.\. "),
    "no layers": (config(layers=0), "config: layers is 0, must be a whole number from 1 to 48"),
    "too many layers": (config(layers=49), "config: layers is 49, must be a whole number from 1 to 48"),
    "hidden of 2^60": (config(hidden=2**60), "config: hidden is 1152921504606846976, must be .* 1 to 4096"),
    "half a head": (config(heads=2.5), "config: heads is 2.5, must be a whole number"),
    "negative vocabulary": (config(vocabulary=-1), "config: vocabulary is -1, must be a whole number"),
    "positions true": (config(positions=True), "config: positions is True, must be a whole number"),
    "token types in a list": (config(token_types=[2]), r"config: token_types is \[2\], must be a whole number"),
    "heads too wide": (
        config(heads=256, head_size=64),
        "config: 256 heads of 64 make 16384 channels, at most 4096 fit",
    ),
    "norm_eps zero": (config(norm_eps=0.0), "config: norm_eps is 0.0, must be a number above 0"),
    "norm_eps without a point": (config(norm_eps=1), "config: norm_eps is 1, must be a number above 0"),
    "norm_eps NaN": (config(norm_eps=float("nan")), "config: the number NaN is not finite"),
    "thresholds no list": (config(thresholds="query"), "config: thresholds is 'query', must be a list of names"),
    "threshold nowhere": (config(thresholds=["queries"]), r"config: thresholds is \['queries'\], must list some of"),
    "score thresholds a number": (config(score_thresholds=1), "config: score_thresholds is 1, must be true or false"),
    "three levels": (config(ffn_levels="ternary"), "config: ffn_levels is 'ternary', must be one of"),
    # labels, max_length, about
    "labels not JSON": (metadata(labels="a,b"), "labels: is not JSON"),
    "labels no list": (metadata(labels='{"0":"a"}'), r"labels is \{'0': 'a'\}, must be a list of names"),
    "a label too many": (metadata(labels='["a","b","c"]'), "labels has 3 names, the classifier has 2 outputs"),
    "label empty": (metadata(labels='["a",""]'), "labels: number 1 is '', must be a name"),
    "label a number": (metadata(labels="[0,1]"), "labels: number 0 is 0, must be a name"),
    "label twice": (metadata(labels='["a","a"]'), "labels: 'a' is there 2 times, names must differ"),
    "half a character": (metadata(labels='["a","\\ud800"]'), "labels: cannot be written as JSON: .*surrogates"),
    "max_length 0": (metadata(max_length="0"), "max_length is 0, must be 1 to 8, the positions"),
    "max_length beyond": (metadata(max_length="9"), "max_length is 9, must be 1 to 8, the positions"),
    "max_length negative": (metadata(max_length="-1"), "max_length is '-1', must be a string of digits"),
    "max_length with a zero": (metadata(max_length="08"), "max_length is '08', must be a string of digits"),
    "about no object": (metadata(about='"me"'), "about: is 'me', must be an object"),
    "about too long": (metadata(about=dump({"a": "x" * 2**16})), "about: has 65544 bytes, at most 65536"),
    "about deep": (metadata(about='{"a":' * 17 + "1" + "}" * 17), "about: is nested 17 deep"),
    "about half a character": (metadata(about='{"a":"\\udfff"}'), "about: cannot be written as JSON: .*surrogates"),
    # the table of tensors
    "tensor missing": (table(lambda entries: entries.pop("pooler.bits")), "tensor 'pooler.bits' is missing"),
    "tensor too many": (table(lambda entries: entries.update(x=entry("U8", [0], 0, 0))), "tensor 'x': a model of this"),
    "tensors in another order": (
        table(lambda entries: entries.update({"pooler.bias": entries.pop("pooler.bias")})),
        "tensor 'classifier.weight' is number 34, where 'pooler.bias' belongs",
    ),
    "entry no object": (
        table(lambda entries: entries.update({"pooler.scale": 1})),
        "tensor 'pooler.scale': its entry must",
    ),
    "entry with more": (tensor("pooler.bias", strides=[4]), "tensor 'pooler.bias': its entry must have exactly dtype"),
    "wrong dtype": (tensor("pooler.bias", dtype="F64"), "tensor 'pooler.bias': dtype is 'F64', must be 'F32'"),
    "unknown dtype": (tensor("pooler.bias", dtype="B1"), "tensor 'pooler.bias': dtype is 'B1', must be 'F32'"),
    "rank 0": (tensor("pooler.bias", shape=[]), r"tensor 'pooler.bias': shape is \[\], must be \[20\]"),
    "rank 99": (
        tensor("pooler.bias", shape=[1] * 98 + [20]),
        r"'pooler.bias': shape is \[(1, ){98}20\], must be \[20\]",
    ),
    "dimension 0": (tensor("pooler.bias", shape=[0]), r"tensor 'pooler.bias': shape is \[0\], must be \[20\]"),
    "dimension 2^60": (tensor("pooler.bias", shape=[2**60]), r"shape is \[1152921504606846976\], must be \[20\]"),
    "negative dimension": (tensor("pooler.bias", shape=[-20]), r"tensor 'pooler.bias': shape is \[-20\], must be"),
    "product beyond 2^64": (
        tensor("pooler.bits", shape=[2**33, 2**33]),
        r"shape is \[8589934592, 8589934592\], must be",
    ),
    "transposed": (tensor("embeddings.position", shape=[20, 8]), r"position': shape is \[20, 8\], must be \[8, 20\]"),
    "shape in words": (tensor("pooler.bias", shape="20"), r"tensor 'pooler.bias': shape is '20', must be \[20\]"),
    "overlap": (shift("pooler.bias", -4, -4), r"tensor 'pooler.bias': data_offsets is \[4036, 4116\], must be"),
    "hole": (shift("pooler.bias", 4, 4), r"tensor 'pooler.bias': data_offsets is \[4044, 4124\], must be"),
    "offset below 0": (shift("pooler.bits", -(10**6), 0), r"tensor 'pooler.bits': data_offsets is \[-9"),
    "offset beyond the file": (shift("pooler.bits", 0, 2**62), r"tensor 'pooler.bits': data_offsets is \[.*, 46116"),
    "no tokenizer": (table(lambda entries: entries.pop("tokenizer")), "tensor 'tokenizer': its shape is None, must be"),
    "empty tokenizer": (tensor("tokenizer", shape=[0]), r"tensor 'tokenizer': its shape is \[0\], must be its size"),
    "tokenizer below 0": (tensor("tokenizer", shape=[-17]), r"tensor 'tokenizer': its shape is \[-17\], must be"),
    "tokenizer of rank 2": (tensor("tokenizer", shape=[17, 1]), r"tensor 'tokenizer': its shape is \[17, 1\], must be"),
    # the data section
    "data cut": (lambda draft: draft.build()[:-1], r"is cut: \d+ bytes of \d+, 1 are missing"),
    "no data": (lambda draft: draft.data.clear(), r"is cut: \d+ bytes of \d+, 4305 are missing"),
    "bytes behind the end": (lambda draft: draft.build() + b"PK\x03\x04", "has 4 bytes behind its end"),
    "one bit flipped": (flipped(-1), "contents have SHA-256 [0-9a-f]{64}, the header says (?!1212)"),
    "NaN bias": (
        number("pooler.bias", 3, math.nan),
        "tensor 'pooler.bias': holds values from nan to nan, must be finite",
    ),
    "infinite scale": (
        number("pooler.scale", 0, math.inf),
        "tensor 'pooler.scale': holds values from .* to inf, must be",
    ),
    "minus infinite threshold": (
        number("layers.0.query.threshold", 19, -math.inf),
        "tensor 'layers.0.query.threshold': holds values from -inf to",
    ),
    "negative scale": (
        number("layers.0.output.scale", 1, -0.5),
        "'layers.0.output.scale': holds -0.5, a scale has no minus",
    ),
    "scale of minus 0": (
        number("embeddings.word.scale", 5, -0.0),
        "word.scale': holds -0.0, a scale has no minus sign",
    ),
    "stray bit of a word": (
        number("embeddings.word.bits", 11, 2**63),
        "'embeddings.word.bits': a bit is set behind the 20",
    ),
    "stray bit of a layer": (
        number("layers.0.output.bits", 0, 2**33),
        "'layers.0.output.bits': a bit is set behind the 33",
    ),
    "score threshold too low": (
        number("layers.0.score_threshold", 1, -12),
        "score_threshold': holds -12 to .* from -11 to 11",
    ),
    "score threshold too high": (
        number("layers.0.score_threshold", 0, 2**31 - 1),
        "score_threshold': holds .* to 2147483647, mu",
    ),
}


@pytest.fixture(scope="module")
def draft(make_model):
    return Draft(make_model())


@pytest.fixture(scope="module")
def messages(draft, tmp_path_factory):
    """What `load` says of every kind, without the path it starts with."""
    path, found = tmp_path_factory.mktemp("bad") / "bad.bibert", {}
    for name, (change, _) in KINDS.items():
        changed = copy.deepcopy(draft)
        content = change(changed)
        path.write_bytes(content if isinstance(content, bytes) else changed.build())
        with pytest.raises(ModelFileError) as refusal:
            load(path)
        assert str(refusal.value).startswith(f"{path}: ")
        found[name] = str(refusal.value).removeprefix(f"{path}: ")
    return found


def test_the_draft_that_bad_files_are_made_of_is_itself_good(draft, tmp_path):
    save(draft.model, tmp_path / "good.bibert")
    assert draft.build() == (tmp_path / "good.bibert").read_bytes()


def test_there_are_enough_kinds():
    assert len(KINDS) >= 60


@pytest.mark.parametrize("name", KINDS)
def test_a_bad_file_is_refused_with_a_message_of_its_own(name, messages):
    assert re.search(KINDS[name][1], messages[name])
    others = [other for other in KINDS if other != name and re.search(KINDS[name][1], messages[other])]
    assert others == []


@pytest.mark.parametrize("name", KINDS)
def test_a_message_is_one_short_line_that_can_be_printed(name, messages):
    assert messages[name].isprintable()
    assert len(messages[name]) < 700
    assert not messages[name].endswith((".", ";", " "))
