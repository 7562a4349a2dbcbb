"""Packed models: built from tensors, saved completely, loaded equal, and independent of the file afterwards."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from bibert.errors import ModelFileError
from bibert.packed import file as packed_file
from bibert.packed.file import PackedModel, load, save
from bibert.packed.schema import DTYPES, PackedConfig

FULL = Path("/dev/full")  # where every write finds the disk full


@pytest.fixture
def parts(make_model, tensors_of):
    """What a model is made of, as the arguments of `from_tensors`."""
    model = make_model()
    return {
        "config": model.config,
        "labels": model.labels,
        "max_length": model.max_length,
        "tensors": tensors_of(model.config),
        "tokenizer": model.tokenizer,
        "about": {"seed": 0},
    }


def test_a_model_holds_the_tensors_it_was_made_of(parts):
    model = PackedModel.from_tensors(**parts)
    assert [spec.name for spec in model.specs] == [*parts["tensors"], "tokenizer"]
    for spec in model.specs[:-1]:
        found = model.tensor(spec.name)
        assert found.dtype == DTYPES[spec.dtype]
        assert np.array_equal(found, parts["tensors"][spec.name])
    assert model.tokenizer == parts["tokenizer"] == model.tensor("tokenizer").tobytes()
    assert model.weights_bytes == sum(spec.nbytes for spec in model.specs[:-1])


def test_a_model_is_private_and_read_only(parts):
    model = PackedModel.from_tensors(**parts)
    before = model.data.tobytes()
    for tensor in parts["tensors"].values():
        tensor[...] = 0
    assert model.data.tobytes() == before
    for array in (model.data, model.tensor("classifier.bias"), model.tensor("tokenizer")):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(KeyError):
        model.tensor("classifier.bits")


@settings(max_examples=int(os.environ.get("BIBERT_ROUNDS", "100")))
@given(data=st.data())
def test_any_model_comes_back_equal_and_is_saved_as_the_same_bytes(data, small_configs, make_model, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    facts = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.floats(0, 1) | st.text("a"))
    tokenizer, about = data.draw(st.binary(min_size=1)), data.draw(facts)
    model = make_model(data.draw(small_configs), tokenizer=tokenizer, about=about)
    if model.config.labels > 1:
        model = replace(model, temperature=data.draw(st.floats(0.05, 20)))
    save(model, folder / "first.bibert")
    back = load(folder / "first.bibert")
    save(back, folder / "second.bibert")
    assert (folder / "first.bibert").read_bytes() == (folder / "second.bibert").read_bytes()
    for field in ("config", "labels", "max_length", "temperature", "about", "digest"):
        assert getattr(back, field) == getattr(model, field)
    assert np.array_equal(back.data, model.data)


def test_the_safetensors_library_reads_the_same_tensors(make_model, tmp_path):
    model = make_model(labels=3, about={"name": "größer"})
    save(model, tmp_path / "a.bibert")
    with safe_open(tmp_path / "a.bibert", framework="numpy") as other:
        assert set(other.keys()) == {spec.name for spec in model.specs}
        for spec in model.specs:
            theirs = other.get_tensor(spec.name)
            assert theirs.dtype == DTYPES[spec.dtype]
            assert np.array_equal(theirs, model.tensor(spec.name))
        assert other.metadata()["sha256"] == model.digest
        assert other.metadata()["about"] == '{"name":"größer"}'


def test_a_temperature_of_one_leaves_no_trace_in_the_file(make_model, tmp_path):
    for temperature, written in ((1.0, None), (1.5, "1.5")):
        save(replace(make_model(), temperature=temperature), tmp_path / "a.bibert")
        with safe_open(tmp_path / "a.bibert", framework="numpy") as other:
            assert other.metadata().get("temperature") == written


@pytest.mark.parametrize(
    ("labels", "value", "range_"), [(2, 0.04, "0.05 to 20"), (2, 1, "0.05"), (2, np.nan, "20"), (1, 1.5, "1.0 to 1.0")]
)
def test_a_temperature_out_of_range_is_refused(make_model, labels, value, range_):
    with pytest.raises(ModelFileError, match=f"temperature is {value}, must .*{range_}.* {labels} labels"):
        replace(make_model(labels=labels), temperature=value)


def test_labels_and_about_keep_any_language(parts, tmp_path):
    parts |= {"labels": ['schlecht "\\', "très bon 👍"], "about": {"данные": ("a", 1.5, None), "b": {"x": []}}}
    save(PackedModel.from_tensors(**parts), tmp_path / "a.bibert")
    back = load(tmp_path / "a.bibert")
    assert back.labels == ('schlecht "\\', "très bon 👍")
    assert back.about == {"данные": ["a", 1.5, None], "b": {"x": []}}


def test_the_digest_depends_on_every_part_and_on_nothing_else(make_model):
    digests = [make_model(**kind).digest for kind in ({}, {"seed": 1}, {"tokenizer": b"b"}, {"about": {"a": 1}})]
    assert len(set(digests)) == 4
    assert make_model().digest == digests[0]


def test_fifty_thousand_labels_are_saved_and_loaded(make_model, tmp_path):
    model = make_model(PackedConfig(1, 1, 1, 1, 1, 1, 1, 1, 50_000))
    save(model, tmp_path / "a.bibert")
    assert load(tmp_path / "a.bibert").labels == model.labels


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("pooler.bits"), "'pooler.bits' is missing"),
        (lambda t: t.update(extra=np.zeros(1)), "'extra'"),
        (lambda t: t.update({"classifier.bias": np.zeros(2)}), r"'classifier.bias' is float64\[2\].* float32\[2\]"),
        (lambda t: t.update({"pooler.bias": np.zeros((20, 1), np.float32)}), r"float32\[20, 1\].* float32\[20\]"),
        (lambda t: t["pooler.bias"].__setitem__(0, np.nan), "'pooler.bias': .*nan.* finite"),
        (lambda t: t["pooler.scale"].__setitem__(0, -1), "'pooler.scale': holds -1.0"),
        (lambda t: t["pooler.bits"].__setitem__((3, 0), 2**20), "'pooler.bits': a bit .* 20"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(parts, change, message):
    change(parts["tensors"])
    with pytest.raises(ModelFileError, match=message):
        PackedModel.from_tensors(**parts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": ["one"]}, "^labels has 1 .* 2 outputs"),
        ({"labels": ["one", "\x1b[31mtwo"]}, r"^labels: number 1 is '\\x1b\[31mtwo'.* control"),
        ({"labels": ["one", "b" * 2**20]}, "^the header has 1[0-9]{6} bytes, at most 1048576 .* shorten"),
        ({"max_length": 0}, "^max_length is 0, must be 1 to 8"),
        ({"max_length": 8.0}, "^max_length is 8.0"),
        ({"max_length": True}, "^max_length is True"),
        ({"tokenizer": b""}, "^data is uint8.* more than [0-9]+ bytes.* tokenizer"),
        ({"about": {"a": float("nan")}}, "^about: .*JSON"),
    ],
)
def test_invalid_descriptions_are_refused(parts, change, message):
    with pytest.raises(ModelFileError, match=message):
        PackedModel.from_tensors(**parts | change)


def test_a_model_that_no_reader_accepts_is_refused_before_memory_is_allocated():
    config = PackedConfig(1, 4096, 64, 64, 1, 2**20, 8192, 64, 65536)
    with pytest.raises(ModelFileError, match=r"[0-9]{10} bytes.* 1000000000"):
        PackedModel.from_tensors(config, list(map(str, range(65536))), 1, {}, b"a", {})


def test_a_full_disk_is_noticed_before_anything_is_written(make_model, tmp_path, monkeypatch):
    path, old = tmp_path / "a.bibert", make_model(seed=1)
    save(old, path)
    monkeypatch.setattr(packed_file.shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(ModelFileError, match=rf"^{path}: needs \d+ bytes, {tmp_path} has 100 free"):
        save(make_model(), path)
    assert load(path).digest == old.digest
    assert [file.name for file in tmp_path.iterdir()] == ["a.bibert"]


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_a_disk_that_fills_up_while_writing_keeps_the_old_file(make_model, tmp_path, monkeypatch):
    path, old = tmp_path / "a.bibert", make_model(seed=1)
    save(old, path)
    monkeypatch.setattr("bibert.files._open_new", lambda temporary, mode: temporary.touch() or FULL.open(mode))
    with pytest.raises(ModelFileError, match=rf"^{path}: .*No space left on device"):
        save(make_model(), path)
    assert load(path).digest == old.digest
    assert [file.name for file in tmp_path.iterdir()] == ["a.bibert"]


@pytest.mark.parametrize("cut", [0, 100])
def test_a_loaded_model_does_not_change_when_its_file_does(make_model, tmp_path, cut):
    path = tmp_path / "a.bibert"
    save(make_model(), path)
    model = load(path)
    digest = model.digest
    os.truncate(path, cut)
    path.write_bytes(b"\xff" * 10_000)
    path.unlink()
    assert PackedModel(model.config, model.labels, model.max_length, model.about, model.data).digest == digest


def test_loading_takes_little_more_memory_than_the_file(make_model, tmp_path):
    size, path = 30_000_000, tmp_path / "a.bibert"
    save(make_model(vocabulary=1_000_000, tokenizer=bytes(size)), path)
    code = f"""
import resource
from bibert.packed.file import load
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
load({str(path)!r})
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""
    grown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(grown) < path.stat().st_size + 5_000_000


def test_too_little_memory_is_an_error_of_the_file(make_model, tmp_path, monkeypatch):
    save(make_model(), tmp_path / "a.bibert")
    monkeypatch.setattr("bibert.packed.bounds.check", lambda *_: bytearray(2**62))
    with pytest.raises(ModelFileError, match=r"a\.bibert: too little memory"):
        load(tmp_path / "a.bibert")


def test_loading_needs_nothing_but_numpy_and_the_standard_library():
    code = "import sys, bibert.packed.file; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"numpy", "bibert"} <= set(loaded)
    assert {"torch", "transformers", "safetensors", "tokenizers"}.isdisjoint(loaded)


NO_FILES = {"": "folder.*bibert pack", "no": "no such file", "a\0b": "no such file", "a" * 5000: "File name too long"}


@pytest.mark.parametrize(("name", "message"), NO_FILES.items(), ids=["folder", "missing", "NUL", "long"])
def test_a_folder_or_a_missing_file_is_refused(tmp_path, name, message):
    with pytest.raises(ModelFileError, match=rf"^{re.escape(str(tmp_path / name))}: .*{message}"):
        load(tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
@pytest.mark.timeout(10)
def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match=r"pipe: .*regular file"):
        load(tmp_path / "pipe")


def test_a_file_above_a_gigabyte_is_refused_unread(tmp_path):
    path = tmp_path / "large.bibert"
    path.touch()
    os.truncate(path, 10**9 + 1)  # a hole, which takes no room
    with pytest.raises(ModelFileError, match=r"1000000001 bytes.* 1000000000"):
        load(path)


def test_a_pickle_is_not_run(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(f"cos\nsystem\n(S'touch {tmp_path}/run'\ntR.".encode())
    with pytest.raises(ModelFileError, match="not a file made by bibert pack"):
        load(path)
    assert list(tmp_path.iterdir()) == [path]
