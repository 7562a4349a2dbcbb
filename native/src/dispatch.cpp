// Asks the CPU what it can run. The operating system has a say too: a register file that it does not save on a
// context switch must not be used, which is what XCR0 tells.
#include "dispatch.h"

#include <cstdlib>

#include "model.h"

#if defined(BIBERT_HAS_AVX2) || defined(BIBERT_HAS_AVX512)
#include <cpuid.h>
#endif

namespace bibert {
namespace {

#if defined(BIBERT_HAS_AVX2) || defined(BIBERT_HAS_AVX512)

constexpr uint64_t kXcr0Avx = 0x06;     // SSE and AVX state
constexpr uint64_t kXcr0Avx512 = 0xE6;  // the same, and mask registers and both halves of the zmm registers

struct Cpuid {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Cpuid cpuid(unsigned leaf, unsigned subleaf) {
  Cpuid r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);  // leaves zeros where the leaf does not exist
  return r;
}

bool has(unsigned flags, unsigned wanted) { return (flags & wanted) == wanted; }

// The instruction is written as bytes: the compiler knows its name only when it may use AVX everywhere.
uint64_t xcr0() {
  if (!has(cpuid(1, 0).ecx, bit_OSXSAVE)) return 0;
  unsigned low = 0;
  unsigned high = 0;
  __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

[[maybe_unused]] bool can_run_avx2() {
  return (xcr0() & kXcr0Avx) == kXcr0Avx && has(cpuid(1, 0).ecx, bit_AVX | bit_POPCNT) &&
         has(cpuid(7, 0).ebx, bit_AVX2 | bit_BMI2);
}

[[maybe_unused]] bool can_run_avx512() {
  const Cpuid extended = cpuid(7, 0);
  return (xcr0() & kXcr0Avx512) == kXcr0Avx512 &&
         has(extended.ebx, bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ | bit_BMI2) &&
         has(extended.ecx, bit_AVX512VPOPCNTDQ);
}

#endif

std::vector<const Kernels*> find_kernels() {
  std::vector<const Kernels*> found;
#if defined(BIBERT_HAS_AVX512)
  if (can_run_avx512()) found.push_back(&kAvx512);
#endif
#if defined(BIBERT_HAS_AVX2)
  if (can_run_avx2()) found.push_back(&kAvx2);
#endif
#if defined(BIBERT_HAS_NEON)
  found.push_back(&kNeon);  // every 64-bit ARM has it
#endif
  found.push_back(&kReference);
  return found;
}

}  // namespace

// Asked once: in a virtual machine every cpuid leaves the machine, which takes longer than loading a small model.
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
