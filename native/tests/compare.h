// Shared by the tests of the kernels: random inputs, outputs between guard bytes, comparison with the reference, and a
// main program that tests every table of kernels that this CPU can run.
#ifndef BIBERT_TESTS_COMPARE_H
#define BIBERT_TESTS_COMPARE_H

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <vector>

#include "dispatch.h"
#include "harness.h"
#include "kernels.h"

namespace compare {

using bibert::kAlignment;
using bibert::Kernels;
using bibert::kReference;
using bibert::kWordBits;
using bibert::padded;
using bibert::words_for;

class Random : public harness::Random {
 public:
  using harness::Random::Random;

  size_t up_to(size_t most) { return word() % (most + 1); }
  size_t between(size_t least, size_t most) { return least + up_to(most - least); }
  bool chance(size_t one_in) { return up_to(one_in - 1) == 0; }
  // In [-limit, limit).
  float real(float limit) { return (static_cast<float>(word() >> 40) / 8388608.0F - 1.0F) * limit; }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[up_to(list.size() - 1)];
  }
};

// `count` entries between guard bytes, `skip` entries after the start of a cache line, with every byte set to `fill`.
template <class T>
class Guarded {
 public:
  explicit Guarded(size_t count, unsigned char fill = 0, size_t skip = 0)
      : count_(count), begin_(kAlignment + skip * sizeof(T)), memory_(bytes() + 3 * kAlignment) {
    std::memset(memory_.data(), kGuard, memory_.size());
    std::memset(memory_.data() + begin_, fill, bytes());
  }

  T* data() { return reinterpret_cast<T*>(memory_.data() + begin_); }
  T& operator[](size_t index) { return data()[index]; }
  size_t size() const { return count_; }
  size_t bytes() const { return count_ * sizeof(T); }

  void fill_from(Guarded& other) { std::memcpy(data(), other.data(), bytes()); }

  bool intact() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      if ((i < begin_ || i >= begin_ + bytes()) && memory_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr unsigned char kGuard = 0xA5;
  size_t count_;
  size_t begin_;
  bibert::Buffer<unsigned char> memory_;
};

// The test that is running, for messages, and its failures.
struct Context {
  const Kernels* kernels = nullptr;
  const char* function = "";
  char shape[160] = "";
  size_t comparisons = 0;
  size_t failures = 0;

  void fail(const char* what) {
    constexpr size_t kMostMessages = 20;
    if (++failures <= kMostMessages) std::printf("%s %s (%s): %s\n", kernels->name, function, shape, what);
  }
};

template <class T>
void expect_same(Context& context, Guarded<T>& found, Guarded<T>& wanted) {
  ++context.comparisons;
  if (!found.intact()) context.fail("wrote outside of its output");
  if (std::memcmp(found.data(), wanted.data(), wanted.bytes()) == 0) return;
  size_t at = 0;
  while (std::memcmp(&found[at], &wanted[at], sizeof(T)) == 0) ++at;
  char what[160];
  uint64_t bits[2] = {};
  std::memcpy(&bits[0], &found[at], sizeof(T));
  std::memcpy(&bits[1], &wanted[at], sizeof(T));
  std::snprintf(what, sizeof what, "entry %zu is 0x%llx (%g), the reference has 0x%llx (%g)", at,
                static_cast<unsigned long long>(bits[0]), static_cast<double>(found[at]),
                static_cast<unsigned long long>(bits[1]), static_cast<double>(wanted[at]));
  context.fail(what);
}

// Rows of bits with zero padding, aligned only to words, as callers of kernels may do.
inline Guarded<uint64_t> random_rows(Random& random, size_t rows, size_t channels) {
  const size_t words = words_for(channels);
  Guarded<uint64_t> bits(rows * words, 0, random.up_to(7));
  const uint64_t last = ~uint64_t{0} >> (words * kWordBits - channels);
  const uint64_t constant = random.one_of<uint64_t>({0, ~uint64_t{0}});
  const bool is_constant = random.chance(8);
  for (size_t i = 0; i < bits.size(); ++i)
    bits[i] = (is_constant ? constant : random.word()) & ((i + 1) % words == 0 ? last : ~uint64_t{0});
  return bits;
}

inline float random_parameter(Random& random) {
  if (!random.chance(8)) return random.real(random.one_of({1.0F, 0.01F}));
  return random.one_of({0.0F, -0.0F, 1.0F, -1.0F, 1e-40F, -1e-40F, 3e30F, 1e-20F});
}

inline Guarded<float> random_parameters(Random& random, size_t channels) {
  Guarded<float> parameters(padded(channels));
  for (size_t n = 0; n < channels; ++n) parameters[n] = random_parameter(random);
  return parameters;
}

// Runs fixed(context, random) once and rounds(context, random) for each round, on every table. Returns an exit code.
template <class Fixed, class Round>
int run(const char* name, unsigned long rounds, const Fixed& fixed, const Round& round) {
  static constexpr const Kernels* kBuilt[] = {
#if defined(BIBERT_HAS_AVX512)
    &bibert::kAvx512,
#endif
#if defined(BIBERT_HAS_AVX2)
    &bibert::kAvx2,
#endif
#if defined(BIBERT_HAS_NEON)
    &bibert::kNeon,
#endif
#if defined(BIBERT_HAS_SIMD128)
    &bibert::kSimd128,
#endif
    &kReference
  };
  bool same = true;
  const std::vector<const Kernels*>& available = bibert::available_kernels();
  for (const Kernels* kernels : kBuilt) {
    if (std::find(available.begin(), available.end(), kernels) == available.end())
      std::printf("%s: built, but this CPU cannot run it; not tested\n", kernels->name);
  }
  for (const Kernels* kernels : available) {
    if (kernels == &kReference) continue;
    Context context;
    context.kernels = kernels;
    Random start(0);
    fixed(context, start);
    for (unsigned long i = 1; i <= rounds; ++i) {
      Random random(i);
      round(context, random);
    }
    std::printf("%s: %zu comparisons in %lu rounds, %zu failures\n", kernels->name, context.comparisons, rounds,
                context.failures);
    same = same && context.failures == 0;
  }
  std::printf("%s: %zu of %zu tables run, %s\n", name, available.size(), std::size(kBuilt),
              same ? "0 failures" : "with failures");
  return same ? 0 : 1;
}

}  // namespace compare

#endif
