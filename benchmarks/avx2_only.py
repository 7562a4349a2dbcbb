"""Run a benchmark as on a CPU without AVX-512: `bibert` and ONNX Runtime both see AVX2 only.

ONNX Runtime asks the `cpuid` instruction and has no switch. So this script copies the package, replaces every `cpuid`
in the copy by an instruction that traps, and answers the traps in a preloaded library: the real answer without the bits
of AVX-512, VNNI, bfloat16 and AMX. `bibert` has a switch, BIBERT_ISA. Needs Linux, gcc and objdump.

    python benchmarks/avx2_only.py python benchmarks/engine.py --rival onnx-int8 --output results.json
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "onnxruntime"
CPUID, TRAP = b"\x0f\xa2", b"\x0f\x0b"
# Bits of cpuid's answers to (leaf, subleaf): AVX512F, DQ, IFMA, PF, ER, CD, BW, VL | VBMI, VBMI2, VNNI, BITALG,
# VPOPCNTDQ | 4VNNIW, 4FMAPS, VP2INTERSECT, AMX, FP16 | AVX-VNNI, BF16, AMX-FP16, AVX-IFMA.
ANSWERS = r"""
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>

static void answer(int signal_number, siginfo_t* info, void* context) {
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  const unsigned char* instruction = (const unsigned char*)registers[REG_RIP];
  if (instruction[0] != 0x0f || instruction[1] != 0x0b) abort();
  unsigned leaf = registers[REG_RAX], part = registers[REG_RCX], a, b, c, d;
  __cpuid_count(leaf, part, a, b, c, d);
  if (leaf == 7 && part == 0) {
    b &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31);
    c &= ~(1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14);
    d &= ~(1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25);
  }
  if (leaf == 7 && part == 1) a &= ~(1u << 4 | 1u << 5 | 1u << 21 | 1u << 23);
  registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
  registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void install(void) {
  struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGILL, &action, NULL);
}
"""


def replace_cpuid(library: Path) -> int:
    """Make every cpuid instruction of a library trap; return their number."""
    code = subprocess.run(["objdump", "-d", str(library)], capture_output=True, text=True, check=True).stdout
    addresses = [int(at, 16) for at in re.findall(r"^\s*([0-9a-f]+):\s+0f a2\s+cpuid", code, re.MULTILINE)]
    headers = subprocess.run(["objdump", "-h", str(library)], capture_output=True, text=True, check=True).stdout
    [(size, start, offset)] = re.findall(r" \.text\s+(\w+)\s+(\w+)\s+\w+\s+(\w+)", headers)
    data = bytearray(library.read_bytes())
    for address in addresses:
        assert int(start, 16) <= address < int(start, 16) + int(size, 16), "cpuid outside of .text"
        at = address - int(start, 16) + int(offset, 16)
        assert data[at : at + 2] == CPUID
        data[at : at + 2] = TRAP
    library.write_bytes(data)
    return len(addresses)


def main() -> None:
    """Make the copy and the library, and run the command with them."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise SystemExit(f"{PACKAGE} is not installed; pip install 'bibert[bench]'")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(Path(found.origin).parent, Path(folder) / PACKAGE))
        replaced = sum(map(replace_cpuid, copy.glob("capi/onnxruntime_pybind11_state*.so")))
        assert replaced, f"{PACKAGE} has no cpuid instruction"
        shim = Path(folder) / "answers.so"
        compiler = ["gcc", "-shared", "-fPIC", "-x", "c", "-o", str(shim), "-"]
        subprocess.run(compiler, input=ANSWERS, text=True, check=True)
        changes = {"PYTHONPATH": folder, "LD_PRELOAD": str(shim), "BIBERT_ISA": "avx2"}
        raise SystemExit(subprocess.run(sys.argv[1:], env={**os.environ, **changes}, check=False).returncode)


if __name__ == "__main__":
    main()
