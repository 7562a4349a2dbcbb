"""Cross-builds the wheels of every platform with zig and checks them; `make wheels` prints the table.

Every wheel must hold one library that imports nothing but the system. The example native/examples/classify.c is linked
with the library of each wheel and run where this machine can: natively, in qemu-user, in wine. Its logits must be
those of the numpy reference, bit for bit, for every instruction set and shipped model.
"""

import argparse
import functools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import macholib.MachO
import numpy as np
import pefile
import ziglang
from elftools.elf.elffile import ELFFile
from scikit_build_core.build import build_wheel

from bibert.machine import about
from bibert.models import shipped_file
from bibert.packed.file import load
from bibert.runtime import reference

ROOT = Path(__file__).parents[1]
ZIG = Path(ziglang.__path__[0]) / "zig"
IDS = (101, 1037, 9882, 1010, 25591, 2143, 102)  # [CLS] a gorgeous, witty film [SEP]
MODELS = ("sst2", "sentiment_2", "sentiment_4")  # 1, 2 and 4 bits
ISAS = {"x86_64": ("avx512", "avx2", "reference"), "aarch64": ("neon", "reference")}
HEADS = ("MB", "library KB", "newest glibc", "run here")
SYSTEM = re.compile(
    r"(lib(c|m|pthread|dl|rt)|ld-linux-[\w-]+)\.so(\.\d+)?"  # glibc and musl
    r"|/usr/lib/libSystem\.B\.dylib|(KERNEL32|ntdll|ADVAPI32|api-ms-win-crt-[\w-]+)\.dll",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Target:
    """What to build, for zig and for pip, and the command that runs its programs here."""

    zig: str
    tag: str
    emulator: tuple[str, ...] = ()
    loader: str = ""  # that the programs need beside the emulator

    @property
    def cpu(self) -> str:
        """The processor, as Python names it on Linux."""
        return self.zig.split("-")[0]

    @property
    def library(self) -> str:
        """The file name that `bibert.runtime.native` looks for."""
        return {"macos": "libbibert.dylib", "windows": "libbibert.dll"}.get(self.system, "libbibert.so")

    @property
    def system(self) -> str:
        """The operating system: linux, macos or windows."""
        return re.split("[-.]", self.zig)[1]


QEMU = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
TARGETS = (
    Target("x86_64-linux-gnu.2.17", "manylinux2014_x86_64"),
    Target("aarch64-linux-gnu.2.17", "manylinux2014_aarch64", QEMU, "/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1"),
    Target("x86_64-linux-musl", "musllinux_1_2_x86_64", (), "/lib/ld-musl-x86_64.so.1"),
    Target("aarch64-linux-musl", "musllinux_1_2_aarch64", ("qemu-aarch64",), "/lib/ld-musl-aarch64.so.1"),
    Target("x86_64-macos.10.15-none", "macosx_10_15_x86_64"),
    Target("aarch64-macos.11.0-none", "macosx_11_0_arm64"),
    Target("x86_64-windows-gnu", "win_amd64", ("wine",)),
)


def build(target: Target, folder: Path) -> Path:
    """Build the wheel with the package's own build, under zig's toolchain."""
    toolchain = ROOT / "native" / "cmake" / "zig.cmake"
    settings = {
        "cmake.args": [f"--toolchain={toolchain}", f"-DBIBERT_ZIG={ZIG}", f"-DBIBERT_TARGET={target.zig}"],
        "wheel.tags": [f"py3-none-{target.tag}"],
        "build-dir": str(ROOT / "build" / "wheels" / target.tag),
        "install.strip": "false",
    }
    return folder / build_wheel(str(folder), settings)


def imports(target: Target, library: Path) -> list[str]:
    """The libraries that it needs."""
    if target.system == "windows":
        return [entry.dll.decode() for entry in pefile.PE(str(library)).DIRECTORY_ENTRY_IMPORT]
    if target.system == "macos":
        return [name for header in macholib.MachO.MachO(str(library)).headers for *_, name in header.walkRelocatables()]
    with library.open("rb") as file:
        tags = ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        return [tag.needed for tag in tags]


def audit(target: Target, wheel: Path, library: Path) -> str:
    """Check what the wheel holds and needs; return the newest symbol of glibc."""
    files = [name for name in zipfile.ZipFile(wheel).namelist() if "/_native/" in name]
    expected = [f"bibert/runtime/_native/{name}" for name in ("include/bibert.h", target.library)]
    if sorted(files) != expected:
        raise SystemExit(f"{wheel.name}: holds {', '.join(files)}, must hold {', '.join(expected)}")
    foreign = [name for name in imports(target, library) if not SYSTEM.fullmatch(name)]
    if foreign:
        raise SystemExit(f"{wheel.name}: needs {', '.join(foreign)}; a wheel may need only libraries of the system")
    if "manylinux" in target.tag:  # auditwheel reads this machine's libc.so, so it cannot judge a library for musl
        shown = run(sys.executable, "-m", "auditwheel", "show", wheel)
        allowed = target.tag.replace("manylinux2014", "manylinux_2_17")
        if f'"{allowed}"' not in " ".join(shown.split()):
            raise SystemExit(f"{wheel.name}: auditwheel does not grant {allowed}:\n{shown}")
    versions = [tuple(map(int, found)) for found in re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())]
    if versions and "manylinux" not in target.tag:
        raise SystemExit(f"{wheel.name}: needs symbols of glibc")
    return ".".join(map(str, max(versions))) if versions else "none"


def why_not(target: Target) -> str | None:
    """Why this machine cannot run programs of the target; None if it can."""
    if target.system == "macos":
        return "no emulator"
    if not target.emulator and target.cpu != platform.machine():
        return f"needs {target.cpu}"
    if target.emulator and shutil.which(target.emulator[0]) is None:
        return f"needs {target.emulator[0]}"
    return None if not target.loader or Path(target.loader).exists() else f"needs {target.loader}"


def test(target: Target, library: Path) -> str:
    """Run the example with the library; the logits of each model and instruction set must be the reference's."""
    if reason := why_not(target):
        return f"not run: {reason}"
    program = library.parent / ("classify.exe" if target.system == "windows" else "classify")
    source, include = ROOT / "native" / "examples" / "classify.c", ROOT / "native" / "include"
    run(ZIG, "cc", "-O2", "-target", target.zig, "-I", include, source, library, "-Wl,-rpath,$ORIGIN", "-o", program)
    ran = []
    for isa in ISAS[target.cpu]:
        environment = os.environ | {"BIBERT_ISA": isa, "WINEDEBUG": "-all"}
        for name in MODELS:
            model = shipped_file(name)
            command = [*target.emulator, str(program), str(model), *map(str, IDS)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if "this CPU and this build have" in done.stderr:
                break
            found = np.array(done.stdout.split(), dtype=np.float32)
            if found.tobytes() != expected(name):
                raise SystemExit(f"{library}: {name} on {isa} gives {done.stdout!r} {done.stderr!r}, not the reference")
        else:
            ran.append(isa)
    if len(ran) < 2:
        raise SystemExit(
            f"{library}: ran only {ran}; a wheel must have the plain kernels and those of an instruction set"
        )
    return f"{target.emulator[0] if target.emulator else 'native'}: {', '.join(ran)}"


@functools.cache
def expected(name: str) -> bytes:
    """The logits of a shipped model by the numpy reference."""
    return reference.logits(load(shipped_file(name)), [IDS])[0].tobytes()


def run(*command: object) -> str:
    """The output of a program; exits if it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Build and check the wheels whose tags contain one of the words given, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", default=[""], help="build only tags with one of these words")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder of the wheels")
    parser.add_argument("--results", type=Path, help="a JSON file; its rows of the wheels built now are replaced")
    options = parser.parse_args()
    options.output = options.output.resolve()
    options.results = options.results and options.results.resolve()
    options.output.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    rows = [("wheel", *HEADS)]
    for target in (target for target in TARGETS if any(word in target.tag for word in options.words)):
        wheel = build(target, options.output)
        folder = ROOT / "build" / "wheels" / target.tag / "checked"
        folder.mkdir(parents=True, exist_ok=True)
        library = folder / target.library
        library.write_bytes(zipfile.ZipFile(wheel).read(f"bibert/runtime/_native/{target.library}"))
        newest = audit(target, wheel, library)
        sizes = (f"{wheel.stat().st_size / 1e6:.1f}", f"{library.stat().st_size / 1e3:.0f}")
        rows.append((f"py3-none-{target.tag}", *sizes, newest, test(target, library)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if options.results is not None:
        keep(options.results, rows[1:])


def keep(file: Path, rows: list[tuple[str, ...]]) -> None:
    """Write the rows into a results file, with those of other wheels that it has."""
    known = json.loads(file.read_text("utf-8"))["wheels"] if file.exists() else {}
    machine = {key: value for key, value in about(["ziglang"]).items() if key != "python"}
    new = {tag: {"machine": machine, **dict(zip(HEADS, cells, strict=True))} for tag, *cells in rows}
    order = [f"py3-none-{target.tag}" for target in TARGETS]
    wheels = dict(sorted((known | new).items(), key=lambda pair: order.index(pair[0])))
    file.write_text(json.dumps({"command": "make wheels", "wheels": wheels}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
