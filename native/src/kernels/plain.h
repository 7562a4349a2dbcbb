// Small parts of a forward pass in plain C++, of which each instruction set compiles its own copy: compilers vectorize
// them well, but not for the CPUs that the rest of the library must run on. Everything is static.
#ifndef BIBERT_PLAIN_H
#define BIBERT_PLAIN_H

#include <cstring>

#include "kernels.h"

namespace bibert {
namespace {

void embed(const Embedding& from, float* __restrict row) {
  uint32_t scale_bits;
  std::memcpy(&scale_bits, &from.scale, sizeof(scale_bits));
  constexpr size_t kHalf = kWordBits / 2;
  for (size_t c = 0; c < padded(from.channels); c += kHalf) {
    const uint32_t minus = static_cast<uint32_t>(~from.bits[c / kWordBits] >> c % kWordBits);
    for (size_t i = 0; i < kHalf; ++i) {
      const uint32_t word_bits = scale_bits | (minus << (kHalf - 1 - i) & 0x80000000);  // +scale and -scale differ so
      float word;
      std::memcpy(&word, &word_bits, sizeof(word));
      row[c + i] = (word + from.token_type[c + i]) + from.position[c + i];
    }
  }
  for (size_t c = from.channels; c < padded(from.channels); ++c) row[c] = 0.0F;
}

// Swaps the two off-diagonal quarters of each square of 2 · kSize.
template <size_t kSize>
[[gnu::always_inline]] inline void swap_quarters(uint64_t* words, uint64_t low) {
  for (size_t start = 0; start < kWordBits; start += 2 * kSize) {
    for (size_t i = start; i < start + kSize; ++i) {
      const uint64_t swapped = (words[i] >> kSize ^ words[i + kSize]) & low;
      words[i] ^= swapped << kSize;
      words[i + kSize] ^= swapped;
    }
  }
}

void transpose(uint64_t* words, int32_t* ones) {
  swap_quarters<32>(words, 0x00000000FFFFFFFF);
  swap_quarters<16>(words, 0x0000FFFF0000FFFF);
  swap_quarters<8>(words, 0x00FF00FF00FF00FF);
  swap_quarters<4>(words, 0x0F0F0F0F0F0F0F0F);
  swap_quarters<2>(words, 0x3333333333333333);
  swap_quarters<1>(words, 0x5555555555555555);
  for (size_t i = 0; i < kWordBits; ++i) ones[i] += __builtin_popcountll(words[i]);
}

}  // namespace
}  // namespace bibert

#endif
