"""The binding finds the library, refuses others, and has the same numbers as the C header."""

import ctypes
import ctypes.util
import re
from pathlib import Path

import pytest

import bibert.runtime
from bibert.errors import EngineError, ModelFileError
from bibert.packed import schema
from bibert.packed.schema import LIMITS, SITES
from bibert.runtime import native

NATIVE = Path(__file__).parents[2] / "native"
HEADER = NATIVE / "include" / "bibert.h"
LIBC = ctypes.util.find_library("c") or "libc.so.6"


@pytest.fixture
def fresh():
    """The library is looked for anew, before and after."""
    native.library.cache_clear()
    yield native.library
    native.library.cache_clear()


def test_a_missing_library_is_an_error_that_names_the_places_and_the_remedy(fresh, monkeypatch, tmp_path):
    monkeypatch.delenv(native.LIBRARY_VARIABLE, raising=False)
    monkeypatch.setattr(bibert.runtime, "__path__", [str(tmp_path / "one"), str(tmp_path / "two")])
    with pytest.raises(EngineError, match=r"one/_native/libbibert\.\w+ .*two/_native.*install"):
        fresh()


def test_the_library_is_found_in_any_place_of_the_package(fresh, monkeypatch, tmp_path):
    library = Path(fresh()._name)
    (tmp_path / "_native").mkdir()
    (tmp_path / "_native" / native.FILE_NAME).write_bytes(library.read_bytes())
    monkeypatch.delenv(native.LIBRARY_VARIABLE, raising=False)
    monkeypatch.setattr(bibert.runtime, "__path__", [str(tmp_path / "sources"), str(tmp_path)])
    fresh.cache_clear()
    assert Path(fresh()._name) == tmp_path / "_native" / native.FILE_NAME


@pytest.mark.parametrize(
    ("other", "message"), [(__file__, r"test_native\.py: .*install"), (LIBC, "bibert_abi_version")]
)
def test_a_file_that_is_not_this_library_is_refused(fresh, monkeypatch, other, message):
    monkeypatch.setenv(native.LIBRARY_VARIABLE, other)
    with pytest.raises(EngineError, match=message):
        fresh()


def test_a_library_of_another_version_is_refused_with_both_numbers(fresh, monkeypatch):
    monkeypatch.setattr(native, "ABI_VERSION", 99)
    with pytest.raises(EngineError, match=r"version \d+ .* 99"):
        fresh()


def test_the_isas_are_known_and_end_with_the_one_that_always_runs():
    isas = native.available_isas()
    assert isas[-1] == "reference"
    assert set(isas) <= {"avx512", "avx2", "neon", "reference"}


def test_weights_of_another_size_are_refused(new_packed):
    packed = new_packed()
    with pytest.raises(ModelFileError, match=rf"has {packed.weights_bytes - 1} bytes, .* {packed.weights_bytes}"):
        native.NativeModel(packed.config, packed.data[: packed.weights_bytes - 1].copy())


def test_the_c_header_has_the_same_numbers():
    header = HEADER.read_text("utf-8")
    fields = re.search(r"typedef struct bibert_config \{(.*?)\}", header, re.DOTALL)[1]
    names = re.findall(r"(?:uint32_t|double) (\w+);", fields)
    assert names == [name for name, *_ in native._Config._fields_]
    assert int(re.search(r"#define BIBERT_ABI_VERSION (\d+)", header)[1]) == native.ABI_VERSION
    sites = re.findall(r"BIBERT_THRESHOLD_(\w+) = 1 << (\d+)", header)
    assert [(site.upper(), str(bit)) for bit, site in enumerate(SITES)] == sites
    limits = dict(re.findall(r"uint32_t (\w+); +/\* 1 to (\d+)", fields))
    assert {name: int(most) for name, most in limits.items()} == dict(LIMITS)


def test_the_kernels_have_the_same_numbers():
    kernels = (NATIVE / "src" / "kernels.h").read_text("utf-8")
    found = {name: float(value) for name, value in re.findall(r"constexpr \w+ (k\w+) = ([\d.]+)F?;", kernels)}
    assert (found["kGrid"], found["kLayerNormLimit"]) == (schema.GRID, schema.LAYER_NORM_LIMIT)


def test_every_status_of_the_header_is_an_error():
    statuses = dict(re.findall(r"BIBERT_(\w+) = (\d+)[, ]", HEADER.read_text("utf-8").split("bibert_status;")[0]))
    numbers = {int(number) for name, number in statuses.items() if name != "OK"}
    assert numbers == set(native._ERRORS)


@pytest.mark.parametrize("site", SITES)
def test_the_size_of_the_weights_is_the_one_of_the_schema(new_packed, site):
    packed = new_packed(thresholds=(site,))
    size = native.library().bibert_data_size
    size.restype = ctypes.c_uint64
    assert size(ctypes.byref(native._as_struct(packed.config))) == packed.weights_bytes
