"""The library as a file: what it exports, what it needs, and that only the kernels use instructions of newer CPUs."""

import platform
import re
import subprocess
from pathlib import Path

import pytest

from bibert.runtime.native import library

ROOT = Path(__file__).parents[2]
HEADER = ROOT / "native" / "include" / "bibert.h"
SYSTEM = re.compile(r"(libc|libm|libpthread|ld-linux-[\w-]+)\.so\.\d+")
ISA_FILES = ("avx2.cpp.o", "avx512.cpp.o")
# VEX and EVEX instructions begin with a v, and few others do; of the rest, what compilers like to choose by themselves.
NEWER = re.compile(
    r"\t(?:v(?!er[rw]\b)\w+|popcnt|lzcnt|andn|bextr|bls\w+|bzhi|mulx|pdep|pext|rorx|s[ahr]lx|shrx|sarx|movbe|crc32\w)\b"
    r"|%[yz]mm\d|%k[0-7]"
)

x86_only = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="looks at x86-64 instructions")


def output(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout


def newer_instructions(objdump, path):
    return [line for line in output(objdump, "-d", "--no-show-raw-insn", path).splitlines() if NEWER.search(line)]


@pytest.fixture(scope="module")
def objects(native_build):
    found = sorted((native_build / "CMakeFiles" / "bibert_objects.dir").rglob("*.o"))
    assert {*ISA_FILES, "api.cpp.o", "dispatch.cpp.o", "reference.cpp.o"} <= {path.name for path in found}
    return found


def test_the_library_exports_the_functions_of_its_header_and_nothing_else(tool):
    lines = output(tool("nm"), "-D", "--defined-only", library()._name).splitlines()
    declared = re.findall(r"^BIBERT_API .*?\b(bibert_\w+)\(", HEADER.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(declared) > 5
    assert sorted(line.split()[-1] for line in lines) == sorted(declared)


def test_the_library_needs_nothing_but_the_c_library(tool):
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output(tool("readelf"), "-d", library()._name))
    assert needed
    assert [name for name in needed if not SYSTEM.fullmatch(name)] == []


@x86_only
def test_only_the_files_of_an_instruction_set_use_its_instructions(objects, tool):
    used = {path.name: newer_instructions(tool("objdump"), path) for path in objects}
    assert all(used[name] for name in ISA_FILES)  # so the pattern finds what it looks for
    assert {name: lines for name, lines in used.items() if lines and name not in ISA_FILES} == {}


@x86_only
def test_files_of_an_instruction_set_share_nothing_but_their_table(objects, tool):
    """An inline function that two files compile exists once in the library: it might be the one for the newer CPU."""
    shared = {}
    for path in objects:
        if path.name in ISA_FILES:
            lines = output(tool("nm"), "-C", "--defined-only", path).splitlines()
            shared[path.name] = [line.split(maxsplit=2)[2] for line in lines if not line.split()[1].islower()]
    assert shared == {"avx2.cpp.o": ["bibert::kAvx2"], "avx512.cpp.o": ["bibert::kAvx512"]}


@x86_only
def test_what_is_linked_into_the_library_brings_no_newer_instructions(native_build, objects, tool):
    objdump = tool("objdump")
    of_kernels = sum(len(newer_instructions(objdump, path)) for path in objects if path.name in ISA_FILES)
    assert len(newer_instructions(objdump, native_build / "libbibert.so")) == of_kernels


@x86_only
@pytest.mark.parametrize("cpu", ["core2duo", "Nehalem", "Haswell"])
def test_the_library_runs_on_an_old_cpu(cpu, classify, model_file, tool):
    here = output(classify, model_file, 2, 45, 7, 3)
    assert output(tool("qemu-x86_64"), "-cpu", cpu, classify, model_file, 2, 45, 7, 3) == here
