// AVX-512 kernels (F, BW, VL, DQ, VPOPCNTDQ). A product of bits is a carry-save adder over pairs of 32-bit words. Both
// weights and activations store a pair, the two halves of a 64-bit word, as (first, first ^ second). `ones` holds the
// lowest bits of 512 running counts. If u and v are the mismatches of the two words, u ^ v is the xor of the two
// entries `first ^ second`, so
//
//   sum   = ones ^ (u ^ v)            one vpternlogd
//   u     = xor of the two `first`    one vpxord
//   carry = sum == ones ? u : ones    one vpternlogd; it is the majority of ones, u and v
//
// vpopcntd and vpaddd then count the carry: 5 instructions for 1,024 products of bits; xor, popcount and add take 6.
// At the end mismatches = 2 · count + popcount(ones).
//
// Floats are computed in 256 bits: multiplications in 512 bits lower the clock, also for the products of bits.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 warns about its own header (PR 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <cstring>

#include "levels.h"

namespace bibert {
namespace {

constexpr size_t kLanes = 16;                // output channels in a register, 32 bits each
constexpr size_t kPanels = 2;                // registers of output channels in a tile
constexpr size_t kGroup = kPanels * kLanes;  // output channels in a tile; divides padded(outputs)
constexpr size_t kTileRows = 4;              // 4 x 2 counts, ones and sums take 24 of the 32 registers
constexpr size_t kStep = 2 * kGroup;         // 32-bit entries of a group per 64-bit word of the inputs
constexpr size_t kLineEntries = kAlignment / sizeof(uint32_t);

size_t panel_bytes(size_t outputs, size_t inputs) { return padded(outputs) * words_for(inputs) * sizeof(uint64_t); }

// [group of channels][word][panel][first, first ^ second][lane], so that a tile reads one stream.
void pack_panels(const uint64_t* bits, size_t outputs, size_t inputs, void* panels) {
  const size_t words = words_for(inputs);
  for (size_t channel = 0; channel < padded(outputs); ++channel) {
    const size_t panel = channel % kGroup / kLanes;
    uint32_t* entry = static_cast<uint32_t*>(panels) + channel / kGroup * words * kStep;
    entry += panel * 2 * kLanes + channel % kLanes;
    for (size_t word = 0; word < words; ++word, entry += kStep) {
      const uint64_t weight = channel < outputs ? bits[channel * words + word] : 0;
      entry[0] = static_cast<uint32_t>(weight);
      entry[kLanes] = static_cast<uint32_t>(weight ^ weight >> 32);
    }
  }
}

size_t tile_bytes(size_t rows, size_t inputs) { return rows * words_for(inputs) * sizeof(uint64_t); }

// [row][word][first, first ^ second]
void pack_tiles(const uint64_t* bits, size_t rows, size_t inputs, void* tiles) {
  uint64_t* const out = static_cast<uint64_t*>(tiles);
  const size_t words = rows * words_for(inputs);
  for (size_t word = 0; word < words; word += 8) {
    const __mmask8 present = static_cast<__mmask8>(words - word < 8 ? (1U << (words - word)) - 1 : 0xFF);
    const __m512i plain = _mm512_maskz_loadu_epi64(present, bits + word);
    _mm512_mask_storeu_epi64(out + word, present, _mm512_xor_si512(plain, _mm512_slli_epi64(plain, 32)));
  }
}

// The weights of a group for one word of the inputs.
struct Weights {
  __m512i first[kPanels];
  __m512i both[kPanels];  // first ^ second
};

[[gnu::always_inline]] inline Weights load_weights(const uint32_t* entries) {
  return {{_mm512_loadu_si512(entries), _mm512_loadu_si512(entries + 2 * kLanes)},
          {_mm512_loadu_si512(entries + kLanes), _mm512_loadu_si512(entries + 3 * kLanes)}};
}

// Adds one word of one row and a group. In assembly, because compilers schedule the same instructions worse: on Zen 4,
// with 16 rows or more and 768 inputs or more, linear_bits is 4 % (GCC 12, which spills) and 5 to 7 % (clang 14 and 19)
// faster than with intrinsics; a single row is 2 % and 14 % slower. vpternlogd overwrites an operand, so each panel
// broadcasts `both` again: loads have ports of their own.
[[gnu::always_inline]] inline void add_word(const uint32_t* activation, const Weights& weights,
                                            const __m512i (&ones)[kPanels], __m512i (&sum)[kPanels],
                                            __m512i (&count)[kPanels]) {
  __m512i carry0, carry1;
  __asm__ volatile(
      "vpbroadcastd %[both], %[sum0]\n\t"
      "vpbroadcastd %[both], %[sum1]\n\t"
      "vpternlogd $0x96, %[ones0], %[both0], %[sum0]\n\t"  // xor of all three
      "vpternlogd $0x96, %[ones1], %[both1], %[sum1]\n\t"
      "vpxord %[first]%{1to16%}, %[first0], %[carry0]\n\t"
      "vpxord %[first]%{1to16%}, %[first1], %[carry1]\n\t"
      "vpternlogd $0xD4, %[sum0], %[ones0], %[carry0]\n\t"  // sum == ones ? carry : ones
      "vpternlogd $0xD4, %[sum1], %[ones1], %[carry1]\n\t"
      "vpopcntd %[carry0], %[carry0]\n\t"
      "vpopcntd %[carry1], %[carry1]\n\t"
      "vpaddd %[carry0], %[count0], %[count0]\n\t"
      "vpaddd %[carry1], %[count1], %[count1]"
      : [sum0] "=&v"(sum[0]), [sum1] "=&v"(sum[1]), [carry0] "=&v"(carry0), [carry1] "=&v"(carry1),
        [count0] "+v"(count[0]), [count1] "+v"(count[1])
      : [first] "m"(activation[0]), [both] "m"(activation[1]), [ones0] "v"(ones[0]), [ones1] "v"(ones[1]),
        [first0] "v"(weights.first[0]), [first1] "v"(weights.first[1]), [both0] "v"(weights.both[0]),
        [both1] "v"(weights.both[1]));
}

// The same for the first word, when ones and counts are still 0.
[[gnu::always_inline]] inline void start_word(const uint32_t* activation, const Weights& weights,
                                              __m512i (&sum)[kPanels], __m512i (&count)[kPanels]) {
  const __m512i first = _mm512_set1_epi32(static_cast<int32_t>(activation[0]));
  const __m512i both = _mm512_set1_epi32(static_cast<int32_t>(activation[1]));
#pragma GCC unroll 2
  for (size_t panel = 0; panel < kPanels; ++panel) {
    sum[panel] = _mm512_xor_si512(both, weights.both[panel]);
    const __m512i mismatches = _mm512_xor_si512(first, weights.first[panel]);
    count[panel] = _mm512_popcnt_epi32(_mm512_andnot_si512(sum[panel], mismatches));
  }
}

// A few rows of activations and one group of channels.
struct Tile {
  const uint32_t* activations;
  const uint32_t* weights;
  size_t words;
  size_t row;
  size_t channel;
};

template <size_t kRows>
using Registers = __m512i[kRows][kPanels];

template <size_t kRows>
[[gnu::always_inline]] inline void start_rows(const Tile& tile, Registers<kRows>& sums, Registers<kRows>& counts) {
  const Weights weights = load_weights(tile.weights);
#pragma GCC unroll 4
  for (size_t r = 0; r < kRows; ++r) start_word(tile.activations + r * 2 * tile.words, weights, sums[r], counts[r]);
}

template <size_t kRows>
[[gnu::always_inline]] inline void add_rows(const Tile& tile, size_t word, const Registers<kRows>& ones,
                                            Registers<kRows>& sums, Registers<kRows>& counts) {
  const Weights weights = load_weights(tile.weights + word * kStep);
  const uint32_t* const activations = tile.activations + word * 2;
#pragma GCC unroll 4
  for (size_t r = 0; r < kRows; ++r) add_word(activations + r * 2 * tile.words, weights, ones[r], sums[r], counts[r]);
}

// Not inlined: in a larger function GCC 12 spills the counts. Two words per step, so that the lowest bits move from
// `ones` to `sums` and back without a copy.
template <size_t kRows, class Output>
[[gnu::noinline]] void compute_tile(const Tile& tile, const Output& output) {
  Registers<kRows> counts, ones, sums;
  size_t word = 2 - tile.words % 2;
  if (word == 1) {
    start_rows<kRows>(tile, ones, counts);
  } else {
    start_rows<kRows>(tile, sums, counts);
    add_rows<kRows>(tile, 1, sums, ones, counts);
  }
  for (; word < tile.words; word += 2) {
    add_rows<kRows>(tile, word, ones, sums, counts);
    add_rows<kRows>(tile, word + 1, sums, ones, counts);
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t panel = 0; panel < kPanels; ++panel) {
      const __m512i carries = _mm512_add_epi32(counts[r][panel], counts[r][panel]);
      counts[r][panel] = _mm512_add_epi32(carries, _mm512_popcnt_epi32(ones[r][panel]));
    }
    output.store(tile.row + r, tile.channel, counts[r]);
  }
}

// Fetches a part of the next group of weights. The hardware does not predict it, since every tile reads the same group.
void prefetch(const uint32_t* group, size_t first_line, size_t end_line) {
  for (size_t line = first_line; line < end_line; ++line)
    _mm_prefetch(reinterpret_cast<const char*>(group + line * kLineEntries), _MM_HINT_T0);
}

template <class Output>
void multiply(const Product& product, const Output& output) {
  static constexpr void (*kComputeTile[kTileRows])(const Tile&, const Output&) = {
      compute_tile<1, Output>, compute_tile<2, Output>, compute_tile<3, Output>, compute_tile<4, Output>};
  if (product.rows == 0) return;
  const size_t words = words_for(product.inputs);
  const size_t lines = words * kStep / kLineEntries;
  const size_t lines_per_row = (lines + product.rows - 1) / product.rows;
  const uint32_t* const activations = static_cast<const uint32_t*>(product.tiles);
  const uint32_t* group = static_cast<const uint32_t*>(product.panels);
  size_t channel = 0;
  for (; channel < product.outputs; channel += kGroup, group += words * kStep) {
    const size_t next_lines = channel + kGroup < product.outputs ? lines : 0;
    for (size_t row = 0; row < product.rows; row += kTileRows) {
      const size_t rows = lesser(kTileRows, product.rows - row);
      prefetch(group + words * kStep, row * lines_per_row, lesser(next_lines, (row + rows) * lines_per_row));
      kComputeTile[rows - 1]({activations + row * 2 * words, group, words, row, channel}, output);
    }
  }
  // A group without channels becomes padding, whatever its mismatches are.
  constexpr __m512i kAny[kPanels] = {};
  for (; channel < padded(product.outputs); channel += kGroup)
    for (size_t row = 0; row < product.rows; ++row) output.store(row, channel, kAny);
}

struct BitRows {
  const int32_t* most_mismatches;
  uint64_t* bits;
  size_t row_words;

  [[gnu::always_inline]] void store(size_t row, size_t channel, const __m512i (&mismatches)[kPanels]) const {
    const int32_t* const most = most_mismatches + channel;
    const __mmask16 low = _mm512_cmple_epi32_mask(mismatches[0], _mm512_loadu_si512(most));
    const __mmask16 high = _mm512_cmple_epi32_mask(mismatches[1], _mm512_loadu_si512(most + kLanes));
    const uint32_t group = _mm512_kunpackw(high, low);
    std::memcpy(reinterpret_cast<char*>(bits + row * row_words) + channel / 8, &group, sizeof group);
  }
};

void linear_bits(const Product& product, const int32_t* most_mismatches, uint64_t* bits) {
  multiply(product, BitRows{most_mismatches, bits, words_for(product.outputs)});
}

struct FloatRows {
  const Affine& affine;
  __mmask16 doubled;  // all lanes if affine.step is 2, none if it is 1
  float* values;
  size_t stride;

  [[gnu::always_inline]] void store(size_t row, size_t channel, const __m512i (&mismatches)[kPanels]) const {
    for (size_t panel = 0; panel < kPanels; ++panel, channel += kLanes) {
      const __m512i lost = _mm512_mask_add_epi32(mismatches[panel], doubled, mismatches[panel], mismatches[panel]);
      const __m512i dot = _mm512_sub_epi32(_mm512_loadu_si512(affine.base + channel), lost);
      store_half(row, channel, _mm512_castsi512_si256(dot));
      store_half(row, channel + kLanes / 2, _mm512_extracti64x4_epi64(dot, 1));
    }
  }

  [[gnu::always_inline]] void store_half(size_t row, size_t channel, __m256i dot) const {
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(affine.scale + channel), _mm256_cvtepi32_ps(dot));
    __m256 value = _mm256_add_ps(scaled, _mm256_loadu_ps(affine.bias + channel));
    const size_t at = row * stride + channel;
    if (affine.residual != nullptr) value = _mm256_add_ps(value, _mm256_loadu_ps(affine.residual + at));
    _mm256_storeu_ps(values + at, value);
  }
};

void linear_floats(const Product& product, const Affine& affine, float* values) {
  const __mmask16 doubled = affine.step == 2 ? 0xFFFF : 0;
  multiply(product, FloatRows{affine, doubled, values, padded(product.outputs)});
}

// Added in a vector, because the sums of a row that is out of range may overflow before the row is rejected.
int64_t sum_of_lanes(__m256i lanes) {
  const __m128i pair = _mm_add_epi64(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  return _mm_cvtsi128_si64(_mm_add_epi64(pair, _mm_unpackhi_epi64(pair, pair)));
}

struct Moments {
  bool in_range;
  int64_t sum;
  int64_t sum_of_squares;
};

// On the grid |q| < 2^25: the sum of 8 fits in 32 bits, that of 4,096 squares in 64. The padding adds 0. Magnitudes of
// floats compare like integers, with infinity and NaN above all numbers.
Moments moments_of(const float* input, size_t channels) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  const __m256 grid = _mm256_set1_ps(static_cast<float>(kGrid));
  __m256i largest = _mm256_setzero_si256();
  __m256i sum = _mm256_setzero_si256();
  __m256i squares = _mm256_setzero_si256();
  for (size_t c = 0; c < channels; c += kWordBits) {
    __m256i sum_of_word = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (size_t i = 0; i < kWordBits; i += 8) {
      const __m256 x = _mm256_loadu_ps(input + c + i);
      largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(x), magnitude));
      const __m256i even =
          _mm256_cvtps_epi32(_mm256_mul_ps(x, grid));  // the product is exact, the rounding half to even
      const __m256i odd = _mm256_srli_epi64(even, 32);
      sum_of_word = _mm256_add_epi32(sum_of_word, even);
      squares = _mm256_add_epi64(squares, _mm256_mul_epi32(even, even));
      squares = _mm256_add_epi64(squares, _mm256_mul_epi32(odd, odd));
    }
    sum = _mm256_add_epi64(sum, _mm256_cvtepi32_epi64(_mm256_castsi256_si128(sum_of_word)));
    sum = _mm256_add_epi64(sum, _mm256_cvtepi32_epi64(_mm256_extracti128_si256(sum_of_word, 1)));
  }
  const __m256i limit = _mm256_castps_si256(_mm256_set1_ps(kLayerNormLimit));
  return {_mm256_cmpge_epu32_mask(largest, limit) == 0, sum_of_lanes(sum), sum_of_lanes(squares)};
}

// Rows that share the conversion of weight and bias to float64, which is 10 % faster than one row at a time on Zen 4.
constexpr size_t kNormRows = 4;

[[gnu::always_inline]] inline __m128 normalize(const float* input, const Standard& standard, __m256d weight,
                                               __m256d bias) {
  const __m256d centred = _mm256_sub_pd(_mm256_cvtps_pd(_mm_loadu_ps(input)), _mm256_set1_pd(standard.centre));
  const __m256d normed = _mm256_mul_pd(centred, _mm256_set1_pd(standard.inverse));
  return _mm256_cvtpd_ps(_mm256_add_pd(_mm256_mul_pd(normed, weight), bias));
}

// Stores the indices of eight values. `vcvttps2dq` truncates like floor, except below 0, where the index is 0 anyway.
[[gnu::always_inline]] inline void store_indices(const Levels& levels, size_t channel, __m256 values, uint8_t* out) {
  const __m256 above_edge = _mm256_sub_ps(values, _mm256_loadu_ps(levels.edge + channel));
  const __m256 position = _mm256_mul_ps(above_edge, _mm256_loadu_ps(levels.rate + channel));
  const __m256i index = _mm256_cvttps_epi32(_mm256_min_ps(position, _mm256_set1_ps(levels.top)));
  const __m128i bytes = _mm256_cvtepi32_epi8(_mm256_max_epi32(index, _mm256_setzero_si256()));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out), bytes);
}

template <size_t kRows, bool kHasLevels>
bool layer_norm_rows(const LayerNorm& norm, size_t first) {
  const size_t stride = padded(norm.channels);
  Standard standard[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    const Moments moments = moments_of(norm.input + (first + r) * stride, norm.channels);
    if (!moments.in_range) return false;
    standard[r] = standard_of(moments.sum, moments.sum_of_squares, norm.channels, norm.eps);
  }
  for (size_t c = 0; c < stride; c += 8) {
    const __m256d weight[2] = {_mm256_cvtps_pd(_mm_loadu_ps(norm.weight + c)),
                               _mm256_cvtps_pd(_mm_loadu_ps(norm.weight + c + 4))};
    const __m256d bias[2] = {_mm256_cvtps_pd(_mm_loadu_ps(norm.bias + c)),
                             _mm256_cvtps_pd(_mm_loadu_ps(norm.bias + c + 4))};
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) {
      const size_t at = (first + r) * stride + c;
      const __m128 low = normalize(norm.input + at, standard[r], weight[0], bias[0]);
      const __m256 values = _mm256_set_m128(normalize(norm.input + at + 4, standard[r], weight[1], bias[1]), low);
      _mm256_storeu_ps(norm.output + at, values);
      if (kHasLevels) {
        store_indices(norm.levels, c, values, norm.indices + at);
      } else {
        const __mmask8 reached = _mm256_cmp_ps_mask(values, _mm256_loadu_ps(norm.minimum + c), _CMP_GE_OQ);
        reinterpret_cast<unsigned char*>(norm.bits)[at / 8] = reached;
      }
    }
  }
  return true;
}

template <bool kHasLevels>
bool layer_norm(const LayerNorm& norm) {
  size_t row = 0;
  for (; row + kNormRows <= norm.rows; row += kNormRows)
    if (!layer_norm_rows<kNormRows, kHasLevels>(norm, row)) return false;
  for (; row < norm.rows; ++row)
    if (!layer_norm_rows<1, kHasLevels>(norm, row)) return false;
  return true;
}

bool layer_norm(const LayerNorm& norm) {
  return norm.bits == nullptr ? layer_norm<true>(norm) : layer_norm<false>(norm);
}

}  // namespace

const Kernels kAvx512 = {"avx512",   &kAvx512Levels, panel_bytes,   pack_panels, tile_bytes,
                         pack_tiles, linear_bits,    linear_floats, layer_norm};

}  // namespace bibert
