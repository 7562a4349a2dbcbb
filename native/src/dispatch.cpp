// Which kernels this CPU can run, and the choice between them.
#include "dispatch.h"

#include <cstdlib>

#include "model.h"

namespace bibert {
namespace {

// The builtins ask the operating system too (XCR0): registers that it does not save on a context switch are not used.
std::vector<const Kernels*> find_kernels() {
  std::vector<const Kernels*> found;
#if defined(BIBERT_HAS_AVX2) || defined(BIBERT_HAS_AVX512)
  __builtin_cpu_init();
#endif
#if defined(BIBERT_HAS_AVX512)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vpopcntdq") &&
      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("bmi2") &&
      __builtin_cpu_supports("popcnt")) {
    found.push_back(&kAvx512);
  }
#endif
#if defined(BIBERT_HAS_AVX2)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt")) {
    found.push_back(&kAvx2);
  }
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
