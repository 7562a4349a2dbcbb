// The inner loop of avx512.cpp for 4 or 5 rows and 32 channels. It is in assembly, because the order of the
// instructions decides how near it comes to the limit of the execution units: 5 instructions for 1,024 products of
// bits, of which Zen 4 starts two in a cycle, are 410 products per cycle. With 48 words, Zen 4 computes 390 in this
// order, 366 with one row after the other, and 315 to 390 in several hundred other orders.
//
// A unit is one row and 16 channels. In the slot of a unit its carries are found, those of two units before are
// counted, and the count of three units before is added; at the end of a word this continues in the next one.
#ifndef BIBERT_AVX512_TILE_H
#define BIBERT_AVX512_TILE_H

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace bibert {
namespace {

// A few rows of activations and one group of channels; the layouts are described in avx512.cpp.
struct Tile {
  const uint32_t* activations;
  const uint32_t* weights;
  size_t words;  // at least 1
};

// Mismatches of rows and two registers of 16 channels.
template <size_t kRows>
using Counts = __m512i[kRows][2];

// clang-format off
// Addresses of the rows, without offset.
#define BIBERT_ROW0 "(%[activations])"
#define BIBERT_ROW1 "(%[activations],%[stride])"
#define BIBERT_ROW2 "(%[activations],%[stride],2)"
#define BIBERT_ROW3 "(%[activations],%[stride3])"
#define BIBERT_ROW4 "(%[activations],%[stride],4)"


#define BIBERT_LOAD_WEIGHTS \
  "vmovdqu64 (%[weights]), %%zmm26\n" \
  "vmovdqu64 64(%[weights]), %%zmm27\n" \
  "vmovdqu64 128(%[weights]), %%zmm28\n" \
  "vmovdqu64 192(%[weights]), %%zmm29\n"

// The first word of a row: the carry is u & ~(u ^ v), and there is no count to add it to.
#define BIBERT_START(row, ones0, ones1, count0, count1) \
  "vpxord 4" row "%{1to16%}, %%zmm27, %%" ones0 "\n" \
  "vpbroadcastd " row ", %[" count0 "]\n" \
  "vpternlogd $0x12, %%zmm26, %%" ones0 ", %[" count0 "]\n" \
  "vpopcntd %[" count0 "], %[" count0 "]\n" \
  "vpxord 4" row "%{1to16%}, %%zmm29, %%" ones1 "\n" \
  "vpbroadcastd " row ", %[" count1 "]\n" \
  "vpternlogd $0x12, %%zmm28, %%" ones1 ", %[" count1 "]\n" \
  "vpopcntd %[" count1 "], %[" count1 "]\n"

// `added` is the count of three units before and `sum` where it belongs, `counted` the carries of two units before. The
// move takes no execution unit.
#define BIBERT_UNIT(row, first, both, ones, carry, added, sum, counted) \
  "vpxord " row "%{1to16%}, %%" first ", %[mismatches]\n" \
  "vmovdqa64 %%" ones ", %[" carry "]\n" \
  "vpternlogd $0x96, 4" row "%{1to16%}, %%" both ", %%" ones "\n" \
  "vpternlogd $0xD4, %%" ones ", %[mismatches], %[" carry "]\n" \
  "vpaddd %[" added "], %[" sum "], %[" sum "]\n" \
  "vpopcntd %[" counted "], %[" counted "]\n"
#define BIBERT_LOW_UNIT(row, ones, carry, added, sum, counted) \
  BIBERT_UNIT(row, "zmm26", "zmm27", ones, carry, added, sum, counted)
#define BIBERT_HIGH_UNIT(row, ones, carry, added, sum, counted) \
  BIBERT_UNIT(row, "zmm28", "zmm29", ones, carry, added, sum, counted)

#define BIBERT_COUNT(carry) "vpopcntd %[" carry "], %[" carry "]\n"
#define BIBERT_ADD(carry, sum) "vpaddd %[" carry "], %[" sum "], %[" sum "]\n"

// The mismatches: twice the count of carries and the lowest bits. One vpdpwssd instead of two additions makes 6 words
// 2 % faster.
#define BIBERT_FINISH(ones0, ones1, count0, count1) \
  "vpopcntd %%" ones0 ", %%" ones0 "\n" \
  "vpopcntd %%" ones1 ", %%" ones1 "\n" \
  "vpdpwssd %[two], %[" count0 "], %%" ones0 "\n" \
  "vpdpwssd %[two], %[" count1 "], %%" ones1 "\n" \
  "vmovdqa64 %%" ones0 ", %[" count0 "]\n" \
  "vmovdqa64 %%" ones1 ", %[" count1 "]\n"

#define BIBERT_NEXT_WORD \
  "add $8, %[activations]\n" \
  "add $256, %[weights]\n"
#define BIBERT_ZERO(carry) "vpxord %[" carry "], %[" carry "], %[" carry "]\n"
// clang-format on

[[gnu::always_inline]] inline void count_mismatches(const Tile& tile, Counts<4>& counts) {
  const uint32_t* activations = tile.activations;
  const uint32_t* weights = tile.weights;
  size_t left = tile.words;
  const size_t stride = 2 * sizeof(uint32_t) * tile.words;
  __m512i mismatches, carry0, carry1, carry2, carry3;
  __asm__ volatile(
      BIBERT_LOAD_WEIGHTS
      BIBERT_START(BIBERT_ROW0, "zmm16", "zmm17", "count00", "count01")
      BIBERT_START(BIBERT_ROW1, "zmm18", "zmm19", "count10", "count11")
      BIBERT_START(BIBERT_ROW2, "zmm20", "zmm21", "count20", "count21")
      BIBERT_START(BIBERT_ROW3, "zmm22", "zmm23", "count30", "count31")
      BIBERT_ZERO("carry0") BIBERT_ZERO("carry1") BIBERT_ZERO("carry2") BIBERT_ZERO("carry3")
      "dec %[left]\n"
      "jz 2f\n"
      ".p2align 6\n"
      "1:\n"
      BIBERT_NEXT_WORD
      BIBERT_LOAD_WEIGHTS
      BIBERT_LOW_UNIT(BIBERT_ROW0, "zmm16", "carry0", "carry1", "count21", "carry2")
      BIBERT_HIGH_UNIT(BIBERT_ROW0, "zmm17", "carry1", "carry2", "count30", "carry3")
      BIBERT_LOW_UNIT(BIBERT_ROW1, "zmm18", "carry2", "carry3", "count31", "carry0")
      BIBERT_HIGH_UNIT(BIBERT_ROW1, "zmm19", "carry3", "carry0", "count00", "carry1")
      BIBERT_LOW_UNIT(BIBERT_ROW2, "zmm20", "carry0", "carry1", "count01", "carry2")
      BIBERT_HIGH_UNIT(BIBERT_ROW2, "zmm21", "carry1", "carry2", "count10", "carry3")
      BIBERT_LOW_UNIT(BIBERT_ROW3, "zmm22", "carry2", "carry3", "count11", "carry0")
      BIBERT_HIGH_UNIT(BIBERT_ROW3, "zmm23", "carry3", "carry0", "count20", "carry1")
      "dec %[left]\n"
      "jnz 1b\n"
      "2:\n"
      BIBERT_COUNT("carry2") BIBERT_COUNT("carry3")
      BIBERT_ADD("carry1", "count21") BIBERT_ADD("carry2", "count30") BIBERT_ADD("carry3", "count31")
      BIBERT_FINISH("zmm16", "zmm17", "count00", "count01")
      BIBERT_FINISH("zmm18", "zmm19", "count10", "count11")
      BIBERT_FINISH("zmm20", "zmm21", "count20", "count21")
      BIBERT_FINISH("zmm22", "zmm23", "count30", "count31")
      : [count00] "=&v"(counts[0][0]), [count01] "=&v"(counts[0][1]), [count10] "=&v"(counts[1][0]), [count11] "=&v"(counts[1][1]), [count20] "=&v"(counts[2][0]), [count21] "=&v"(counts[2][1]), [count30] "=&v"(counts[3][0]), [count31] "=&v"(counts[3][1]), [carry0] "=&v"(carry0), [carry1] "=&v"(carry1), [carry2] "=&v"(carry2), [carry3] "=&v"(carry3), [mismatches] "=&v"(mismatches), [activations] "+r"(activations), [weights] "+r"(weights), [left] "+r"(left)
      : [two] "v"(_mm512_set1_epi32(2)), [stride] "r"(stride), [stride3] "r"(3 * stride)
      : "cc", "memory", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29");
}

[[gnu::always_inline]] inline void count_mismatches(const Tile& tile, Counts<5>& counts) {
  const uint32_t* activations = tile.activations;
  const uint32_t* weights = tile.weights;
  size_t left = tile.words;
  const size_t stride = 2 * sizeof(uint32_t) * tile.words;
  __m512i mismatches, carry0, carry1, carry2, carry3, carry4;
  __asm__ volatile(
      BIBERT_LOAD_WEIGHTS
      BIBERT_START(BIBERT_ROW0, "zmm16", "zmm17", "count00", "count01")
      BIBERT_START(BIBERT_ROW1, "zmm18", "zmm19", "count10", "count11")
      BIBERT_START(BIBERT_ROW2, "zmm20", "zmm21", "count20", "count21")
      BIBERT_START(BIBERT_ROW3, "zmm22", "zmm23", "count30", "count31")
      BIBERT_START(BIBERT_ROW4, "zmm24", "zmm25", "count40", "count41")
      BIBERT_ZERO("carry0") BIBERT_ZERO("carry1") BIBERT_ZERO("carry2") BIBERT_ZERO("carry3") BIBERT_ZERO("carry4")
      "dec %[left]\n"
      "jz 2f\n"
      ".p2align 6\n"
      "1:\n"
      BIBERT_NEXT_WORD
      BIBERT_LOAD_WEIGHTS
      BIBERT_LOW_UNIT(BIBERT_ROW0, "zmm16", "carry0", "carry2", "count31", "carry3")
      BIBERT_HIGH_UNIT(BIBERT_ROW0, "zmm17", "carry1", "carry3", "count40", "carry4")
      BIBERT_LOW_UNIT(BIBERT_ROW1, "zmm18", "carry2", "carry4", "count41", "carry0")
      BIBERT_HIGH_UNIT(BIBERT_ROW1, "zmm19", "carry3", "carry0", "count00", "carry1")
      BIBERT_LOW_UNIT(BIBERT_ROW2, "zmm20", "carry4", "carry1", "count01", "carry2")
      BIBERT_HIGH_UNIT(BIBERT_ROW2, "zmm21", "carry0", "carry2", "count10", "carry3")
      BIBERT_LOW_UNIT(BIBERT_ROW3, "zmm22", "carry1", "carry3", "count11", "carry4")
      BIBERT_HIGH_UNIT(BIBERT_ROW3, "zmm23", "carry2", "carry4", "count20", "carry0")
      BIBERT_LOW_UNIT(BIBERT_ROW4, "zmm24", "carry3", "carry0", "count21", "carry1")
      BIBERT_HIGH_UNIT(BIBERT_ROW4, "zmm25", "carry4", "carry1", "count30", "carry2")
      "dec %[left]\n"
      "jnz 1b\n"
      "2:\n"
      BIBERT_COUNT("carry3") BIBERT_COUNT("carry4")
      BIBERT_ADD("carry2", "count31") BIBERT_ADD("carry3", "count40") BIBERT_ADD("carry4", "count41")
      BIBERT_FINISH("zmm16", "zmm17", "count00", "count01")
      BIBERT_FINISH("zmm18", "zmm19", "count10", "count11")
      BIBERT_FINISH("zmm20", "zmm21", "count20", "count21")
      BIBERT_FINISH("zmm22", "zmm23", "count30", "count31")
      BIBERT_FINISH("zmm24", "zmm25", "count40", "count41")
      : [count00] "=&v"(counts[0][0]), [count01] "=&v"(counts[0][1]), [count10] "=&v"(counts[1][0]), [count11] "=&v"(counts[1][1]), [count20] "=&v"(counts[2][0]), [count21] "=&v"(counts[2][1]), [count30] "=&v"(counts[3][0]), [count31] "=&v"(counts[3][1]), [count40] "=&v"(counts[4][0]), [count41] "=&v"(counts[4][1]), [carry0] "=&v"(carry0), [carry1] "=&v"(carry1), [carry2] "=&v"(carry2), [carry3] "=&v"(carry3), [carry4] "=&v"(carry4), [mismatches] "=&v"(mismatches), [activations] "+r"(activations), [weights] "+r"(weights), [left] "+r"(left)
      : [two] "v"(_mm512_set1_epi32(2)), [stride] "r"(stride), [stride3] "r"(3 * stride)
      : "cc", "memory", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29");
}

#undef BIBERT_ADD
#undef BIBERT_COUNT
#undef BIBERT_FINISH
#undef BIBERT_HIGH_UNIT
#undef BIBERT_LOAD_WEIGHTS
#undef BIBERT_LOW_UNIT
#undef BIBERT_NEXT_WORD
#undef BIBERT_ROW0
#undef BIBERT_ROW1
#undef BIBERT_ROW2
#undef BIBERT_ROW3
#undef BIBERT_ROW4
#undef BIBERT_START
#undef BIBERT_UNIT
#undef BIBERT_ZERO

}  // namespace
}  // namespace bibert

#endif
