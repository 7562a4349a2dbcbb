// Which kernels this CPU can run, and the choice between them.
#include "dispatch.h"

#if defined(BIBERT_HAS_AVX512)  // a build has it and AVX2, or neither
#include <cpuid.h>
#endif

#include <cstdlib>

#include "model.h"

namespace bibert {
namespace {

#if defined(BIBERT_HAS_AVX512)
// What the CPU has, without registers that the operating system does not save on a context switch (XCR0). Compilers
// have builtins for this, but zig's run-time library lacks what they call.
struct Cpu {
  Cpu() {
    unsigned eax = 0, edx = 0, ecx1 = 0, ebx7 = 0, ecx7 = 0, saved = 0;
    if (__get_cpuid(1, &eax, &ebx7, &ecx1, &edx) == 0 || !has(ecx1, bit_OSXSAVE | bit_POPCNT)) return;
    if (__get_cpuid_count(7, 0, &eax, &ebx7, &ecx7, &edx) == 0) return;
    __asm__("xgetbv" : "=a"(saved), "=d"(edx) : "c"(0));
    avx2 = has(saved, 0x6) && has(ebx7, bit_AVX2 | bit_BMI2);  // 0x6: XMM and YMM; 0xE0: masks and ZMM
    avx512 = avx2 && has(saved, 0xE0) &&
             has(ebx7, bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ) &&
             has(ecx7, bit_AVX512VPOPCNTDQ | bit_AVX512VBMI | bit_AVX512VNNI);
  }

  static bool has(unsigned bits, unsigned wanted) { return (bits & wanted) == wanted; }

  bool avx2 = false;
  bool avx512 = false;
};
#endif

std::vector<const Kernels*> find_kernels() {
  std::vector<const Kernels*> found;
#if defined(BIBERT_HAS_AVX512)
  const Cpu cpu;
  if (cpu.avx512) found.push_back(&kAvx512);
  if (cpu.avx2) found.push_back(&kAvx2);
#endif
#if defined(BIBERT_HAS_NEON)
  found.push_back(&kNeon);  // every 64-bit ARM CPU has it
#endif
#if defined(BIBERT_HAS_SIMD128)
  found.push_back(&kSimd128);  // a browser without it refuses the module
#endif
  found.push_back(&kReference);
  return found;
}

}  // namespace

// Cached: in a virtual machine cpuid traps, which takes longer than loading a small model.
const std::vector<const Kernels*>& available_kernels() {
  static const std::vector<const Kernels*> available = find_kernels();
  return available;
}

const Kernels& choose_kernels(const char* isa) {
  const char* named = isa != nullptr ? isa : std::getenv("BIBERT_ISA");
  const std::string wanted = named != nullptr ? named : "";
  if (isa == nullptr && wanted.empty()) return *available_kernels().front();
  for (const Kernels* kernels : available_kernels()) {
    if (kernels->name == wanted) return *kernels;
  }
  throw Error(BIBERT_NO_ISA, (isa != nullptr ? "isa is '" : "BIBERT_ISA is '") + wanted +
                                 "', this CPU and this build have: " + available_names());
}

std::string available_names() {
  std::string names;
  for (const Kernels* kernels : available_kernels()) names += (names.empty() ? "" : " ") + std::string(kernels->name);
  return names;
}

}  // namespace bibert
