"""The library file: its exports, its dependencies, and that only kernels use instructions of newer CPUs."""

import platform
import re
import subprocess
from pathlib import Path

import pytest

from bibert.runtime.native import library

ROOT = Path(__file__).parents[2]
HEADER = ROOT / "native" / "include" / "bibert.h"
SYSTEM = re.compile(r"(libc|libm|libpthread|ld-linux-[\w-]+)\.so\.\d+")
ISA_FILES = ("avx2.cpp.o", "avx2_levels.cpp.o", "avx512.cpp.o", "avx512_levels.cpp.o")
# VEX and EVEX instructions begin with a v, as few others do; then those that compilers choose on their own.
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
    assert all(used[name] for name in ISA_FILES)  # so the pattern works
    assert {name: lines for name, lines in used.items() if lines and name not in ISA_FILES} == {}


@pytest.mark.parametrize("compiler", ["c++", "clang++", "aarch64-linux-gnu-g++"])
def test_files_of_an_instruction_set_export_only_their_table(compiler, build, tool):
    """Of an inline function in several files the linker keeps one copy, which might be the one for the newer CPU.

    A debug build shows all of them: with optimization most are inlined, but not always all.
    """
    nm, path = tool("nm"), tool(compiler)
    arm = "aarch64" in compiler or platform.machine() in ("aarch64", "arm64")
    isas = {"neon": "kNeon"} if arm else {"avx2": "kAvx2", "avx512": "kAvx512"}
    tables = isas | {f"{name}_levels": f"{table}Levels" for name, table in isas.items()}
    objects = {name: f"CMakeFiles/bibert_objects.dir/native/src/kernels/{name}.cpp.o" for name in tables}
    cross = "-DCMAKE_TOOLCHAIN_FILE=native/cmake/aarch64.cmake"
    choice = cross if "aarch64" in compiler else f"-DCMAKE_CXX_COMPILER={path}"
    folder = build(f"debug-{compiler}", choice, "-DCMAKE_BUILD_TYPE=Debug", targets=tuple(objects.values()))
    for name, table in tables.items():
        lines = output(nm, "-gC", "--defined-only", folder / objects[name]).splitlines()
        assert [line.split(maxsplit=2)[2] for line in lines] == [f"bibert::{table}"]


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
