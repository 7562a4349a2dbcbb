"""docs/packed-format.md is correct and complete: its tables match the code, and a reader written from it agrees.

The reader and the forward pass below use nothing of the package; they are what a second implementer would write.
"""

import hashlib
import json
import math
import re
import struct
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bibert.errors import ModelFileError
from bibert.packed import file as packed_file
from bibert.packed import header, schema, tokenizer
from bibert.packed.bounds import norm_bounds
from bibert.packed.file import save
from bibert.packed.schema import DIAL, LIMITS, SITES, PackedConfig, tensor_specs
from bibert.packed.tokenizer import read_tokenizer
from bibert.runtime import reference

TEXT = (Path(__file__).parents[2] / "docs" / "packed-format.md").read_text(encoding="utf-8")
f32 = np.float32
TYPES = {"U64": "<u8", "F32": "<f4", "I32": "<i4", "U8": "u1"}


def read(path):
    """Sections 1, 2 and 4: the config, the labels and the tensors of a file."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    entries, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    metadata = entries.pop("__metadata__")
    unsigned = content.replace(metadata["sha256"].encode(), b"0" * 64, 1)
    assert hashlib.sha256(unsigned).hexdigest() == metadata["sha256"]
    tensors = {}
    for name, entry in entries.items():
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[begin:end], TYPES[entry["dtype"]]).reshape(entry["shape"])
    return json.loads(metadata["config"]), json.loads(metadata["labels"]), tensors


class Pass:
    """Section 5, one text, with bits and levels as plain integers."""

    def __init__(self, config, tensors):
        self.config, self.tensors = config, tensors

    def signs(self, name, row, channels):
        words = self.tensors[f"{name}.bits"][row].tolist()
        return np.array([1 if words[c // 64] >> (c % 64) & 1 else -1 for c in range(channels)])

    def read(self, site, values):
        """Bits as ±1, or the levels of version 2."""
        name = site.split(".")[-1]
        counts_from_0 = name == "ffn_hidden" and self.config["ffn_levels"] == "bool"
        if "activation_bits" not in self.config:
            least = self.tensors[f"{site}.threshold"] if name in self.config["thresholds"] else 0
            bits = (values >= least).astype(int)
            return bits if counts_from_0 else 2 * bits - 1
        kind = "attention_bits" if name in ("query", "key", "value") else "activation_bits"
        top = 2 ** self.config[kind] - 1
        position = f32(f32(values - self.tensors[f"{site}.edge"]) * self.tensors[f"{site}.rate"])
        index = np.clip(np.floor(position), 0, top).astype(int)
        return index if counts_from_0 else 2 * index - top

    def linear(self, name, inputs):
        scale, bias = self.tensors[f"{name}.scale"], self.tensors[f"{name}.bias"]
        weight = np.array([self.signs(name, row, inputs.shape[-1]) for row in range(len(scale))])
        dot = inputs @ weight.T
        return f32(f32(scale * f32(dot)) + bias)

    def norm(self, name, values):
        weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        rows = [self.norm_row(row.tolist(), weight.tolist(), bias.tolist()) for row in values]
        return np.array(rows, dtype=f32)

    def norm_row(self, row, weight, bias):
        grid, n = [round(value * 65536) for value in row], len(row)
        mean = sum(grid) / n
        variance = max(sum(q * q for q in grid) / n - mean * mean, 0)
        centre, inverse = mean / 65536, 1 / math.sqrt(variance / 2**32 + self.config["norm_eps"])
        return [((v - centre) * inverse) * w + b for v, w, b in zip(row, weight, bias, strict=True)]

    def context(self, at, query, key, value):
        size, heads = self.config["head_size"], self.config["heads"]
        least = self.tensors[f"{at}.score_threshold"] if self.config["score_thresholds"] else [0] * heads
        out = np.zeros(query.shape, dtype=int)
        for head in range(heads):
            own = slice(head * size, (head + 1) * size)
            scores = query[:, own] @ key[:, own].T
            out[:, own] = (scores >= least[head]) @ value[:, own]
        return out

    def context_of_levels(self, at, query, key, value):
        size, out = self.config["head_size"], np.zeros(query.shape, dtype=f32)
        for head, limits in enumerate(self.tensors[f"{at}.attention_threshold"]):
            own = slice(head * size, (head + 1) * size)
            scores = query[:, own] @ key[:, own].T
            distance = (scores.max(axis=1, keepdims=True) - scores) // 2
            weights = sum((distance <= limit).astype(int) for limit in limits)
            step = f32(self.tensors[f"{at}.value.step"] / f32(weights.sum(axis=1, keepdims=True)))
            out[:, own] = f32(f32(weights @ value[:, own]) * step)
        return out

    def layer(self, at, hidden):
        x = self.read(f"{at}.attention_input", hidden)
        heads = [self.read(f"{at}.{name}", self.linear(f"{at}.{name}", x)) for name in ("query", "key", "value")]
        attend = self.context_of_levels if "activation_bits" in self.config else self.context
        z = self.read(f"{at}.context", attend(at, *heads))
        hidden = self.norm(f"{at}.attention_norm", self.linear(f"{at}.attention_output", z) + hidden)
        x = self.read(f"{at}.ffn_input", hidden)
        u = self.read(f"{at}.ffn_hidden", self.linear(f"{at}.intermediate", x))
        return self.norm(f"{at}.output_norm", self.linear(f"{at}.output", u) + hidden)

    def logits(self, ids, types):
        scale, hidden = self.tensors["embeddings.word.scale"], self.config["hidden"]
        words = [f32(scale[i] * self.signs("embeddings.word", i, hidden)) for i in ids]
        total = f32(np.array(words) + self.tensors["embeddings.token_type"][types])
        hidden = self.norm("embeddings.norm", f32(total + self.tensors["embeddings.position"][: len(ids)]))
        for number in range(self.config["layers"]):
            hidden = self.layer(f"layers.{number}", hidden)
        x = self.read("pooler_input", hidden[:1])
        pooled = [f32(tanh(value)) for value in self.linear("pooler", x)[0].tolist()]
        weight, bias = self.tensors["classifier.weight"].tolist(), self.tensors["classifier.bias"].tolist()
        return [f32(ordered_sum(row, pooled) + b) for row, b in zip(weight, bias, strict=True)]


def tanh(x):
    y = min(max(x, -10.0), 10.0) / 32
    s = y * y
    t = y * (((s + 378) * s + 17325) * s + 135135) / (((28 * s + 3150) * s + 62370) * s + 135135)
    for _ in range(5):
        t = (t + t) / (t * t + 1)
    return t


def ordered_sum(row, pooled):
    total = 0.0
    for w, p in zip(row, pooled, strict=True):
        total += w * float(p)
    return total


def rows_of(section):
    """The cells of the tables of a section, without backticks."""
    body = TEXT.split(f"\n## {section}. ")[1].split("\n## ")[0]
    lines = [line for line in body.splitlines() if line.startswith("| `")]
    return [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines]


def listed_tensors(config, tokenizer_bytes):
    """The table of section 4 worked out for a config."""
    known = {"activation_bits": 1} | config.to_dict()
    known |= {"inner": config.heads * config.head_size, "words": lambda n: -(-n // 64)}
    found, pending = [], []
    for name, dtype, shape, condition in [*rows_of(4), ["", "", "", ""]]:
        if not name.startswith("layers.L.") and pending:  # a run of rows with L ends here
            for layer in range(config.layers):
                found += [(row.replace(".L.", f".{layer}."), *rest) for row, *rest in pending]
            pending = []
        if condition and not eval(re.sub(r"^(\w+) in", r"'\1' in", condition), {}, known):
            continue
        if name:
            sizes = (tokenizer_bytes,) if name == "tokenizer" else eval(f"({shape},)", {}, known)
            (pending if ".L." in name else found).append((name, dtype, sizes))
    return found


@pytest.fixture(scope="module")
def saved(make_model, tmp_path_factory):
    model = make_model(layers=2, thresholds=SITES)
    save(model, tmp_path_factory.mktemp("document") / "a.bibert")
    return model, tmp_path_factory.getbasetemp() / "document0" / "a.bibert"


def test_a_reader_written_from_the_document_gets_the_same_tensors(saved):
    model, path = saved
    config, labels, tensors = read(path)
    assert PackedConfig.from_dict(config) == model.config
    assert tuple(labels) == model.labels
    assert list(tensors) == [spec.name for spec in model.specs]
    for name, tensor in tensors.items():
        assert tensor.dtype == model.tensor(name).dtype
        assert np.array_equal(tensor, model.tensor(name))


@settings(max_examples=60)
@given(data=st.data())
def test_the_table_of_tensors_is_the_schema(data, small_configs):
    config = data.draw(small_configs)
    assert listed_tensors(config, 9) == [spec[:3] for spec in tensor_specs(config, 9)]


@settings(max_examples=30)
@given(data=st.data())
def test_a_forward_pass_written_from_it_gives_the_same_bits(data, small_configs, make_model, tmp_path_factory):
    config, path = data.draw(small_configs), tmp_path_factory.getbasetemp() / "pass.bibert"
    model = make_model(config, seed=data.draw(st.integers(0, 99)))
    save(model, path)
    length = data.draw(st.integers(1, config.positions))
    ids = data.draw(st.lists(st.integers(0, config.vocabulary - 1), min_size=length, max_size=length))
    types = data.draw(st.lists(st.integers(0, config.token_types - 1), min_size=length, max_size=length))
    config, _, tensors = read(path)
    mine = np.array(Pass(config, tensors).logits(ids, types))
    assert np.array_equal(mine, reference.logits(model, [ids], None, [types])[0])


def test_the_fields_and_limits_of_the_document_are_those_of_the_code():
    ranges = {field: allowed for field, _, allowed in rows_of(3)}
    assert list(ranges) == [field.name for field in fields(PackedConfig)]
    assert ranges["activation_bits"] == ranges["attention_bits"] == ", ".join(map(str, DIAL))
    assert {field: ranges[field] for field in LIMITS} == {field: f"1 to {most}" for field, most in LIMITS.items()}
    assert ranges["thresholds"] == ", ".join(SITES)
    assert [key for key, _ in rows_of(2)] == list(header.FIELDS)
    limits = re.findall(r"^\| [a-z][\w ]+ \| ([\d,]+) \|$", TEXT, flags=re.MULTILINE | re.IGNORECASE)
    named = (header.MOST_HEADER_BYTES, header.MOST_ABOUT_BYTES, header.MOST_DIGITS, header.MOST_NESTING)
    assert limits == [f"{most:,}" for most in (packed_file.MOST_FILE_BYTES, *named)]


def bounds_of(config, tensors):
    """Section 6: the length of the bounds at every LayerNorm."""
    size = {name: np.abs(value.astype(np.float64)) for name, value in tensors.items() if value.dtype == "<f4"}
    top, eps = 2 ** config.get("activation_bits", 1) - 1, config["norm_eps"]

    def residual(norm, least):
        gain = math.sqrt((config["hidden"] - 1) * max(1, 2**-50 * least**2 / eps)) + 2**-17 / math.sqrt(eps)
        return size[f"{norm}.weight"] * gain + size[f"{norm}.bias"]

    r, before = 1 + 2**-20, "embeddings.norm"
    tables = size["embeddings.token_type"].max(0) + size["embeddings.position"].max(0)
    b = (size["embeddings.word.scale"].max() + tables) * r
    yield np.sqrt((b * b).sum())
    for layer in range(config["layers"]):
        for linear, norm in (("attention_output", "attention_norm"), ("output", "output_norm")):
            name = f"layers.{layer}.{linear}"
            n = config["heads"] * config["head_size"] if linear == "attention_output" else config["intermediate"]
            ones = np.array([sum(word.bit_count() for word in row) for row in tensors[f"{name}.bits"].tolist()])
            is_bool = linear == "output" and config["ffn_levels"] == "bool"
            most = top * np.maximum(ones, n - ones) if is_bool else top * n
            b = (size[f"{name}.scale"] * most + size[f"{name}.bias"] + residual(before, b.min())) * r
            before = f"layers.{layer}.{norm}"
            yield np.sqrt((b * b).sum())


@settings(max_examples=30)
@given(data=st.data())
def test_bounds_written_from_it_are_those_of_the_code(data, small_configs, make_model, tmp_path_factory):
    config, path = data.draw(small_configs), tmp_path_factory.getbasetemp() / "bounds.bibert"
    model = make_model(config)
    save(model, path)
    mine, _, tensors = read(path)
    assert list(bounds_of(mine, tensors)) == pytest.approx([norm.length for norm in norm_bounds(config, model.tensor)])


def test_the_table_of_the_tokenizer_has_the_keys_and_bounds_of_the_code():
    keys = [key for row in rows_of(7) for key in re.findall(r"\w+", row[0])]
    with pytest.raises(ModelFileError) as refusal:
        read_tokenizer(b"{}", 9)
    assert set(keys) == set(re.search(r"the keys ([\w, ]+);", str(refusal.value))[1].split(", "))
    section = TEXT.split("## 7.")[1]
    for most in (schema.SPARE_BYTES, schema.BYTES_PER_TOKEN, tokenizer.MOST_ADDED, tokenizer.LONGEST_WORD):
        assert f" {most:,}" in section
    assert f"1 to {tokenizer.LONGEST_NAME} characters" in section
