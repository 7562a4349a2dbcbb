// AVX-512 kernels (F, BW, VL, DQ, VPOPCNTDQ, VNNI). A product of bits is a carry-save adder over pairs of 32-bit words.
// Both weights and activations store a pair, the two halves of a 64-bit word, as (first, first ^ second). `ones` holds
// the lowest bits of 512 running counts. If u and v are the mismatches of the two words, u ^ v is the xor of the two
// entries `first ^ second`, so
//
//   sum   = ones ^ (u ^ v)            one vpternlogd
//   u     = xor of the two `first`    one vpxord
//   carry = sum == ones ? u : ones    one vpternlogd; it is the majority of ones, u and v
//
// vpopcntd and vpaddd then count the carry: 5 instructions for 1,024 products of bits; xor, popcount and add take 6.
// At the end mismatches = 2 · count + popcount(ones).
//
// The outputs of products are computed in 512 bits: on Zen 4, linear_floats is 2 to 14 % faster than with 256 bits.
// LayerNorm is computed in 256 bits: many multiplications in 512 bits lower the clock of some CPUs, also for the
// products of bits, and gain 1 % of its time on Zen 4, 10 % with levels.
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

#include "avx512_tile.h"
#include "levels.h"
#include "plain.h"

namespace bibert {
namespace {

constexpr size_t kLanes = 16;                // output channels in a register, 32 bits each
constexpr size_t kPanels = 2;                // registers of output channels in a tile
constexpr size_t kGroup = kPanels * kLanes;  // output channels in a tile; divides padded(outputs)
constexpr size_t kStep = 2 * kGroup;         // 32-bit entries of a group per 64-bit word of the inputs
constexpr size_t kLineEntries = kAlignment / sizeof(uint32_t);

size_t panel_bytes(size_t outputs, size_t inputs) { return padded(outputs) * words_for(inputs) * sizeof(uint64_t); }

// Word `word` of 8 rows, 0 for those that are not there.
__m512i load_column(const uint64_t* bits, size_t rows, size_t words, size_t word, size_t first) {
  const __mmask8 present = static_cast<__mmask8>(first < rows ? (1U << lesser(rows - first, 8)) - 1 : 0);
  const uint64_t* const from = bits + first * words + word;
  if (words == 1) return _mm512_maskz_loadu_epi64(present, from);
  const __m512i rows8 = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
  const __m512i at = _mm512_mullo_epi64(rows8, _mm512_set1_epi64(static_cast<int64_t>(words)));
  return _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), present, at, from, sizeof(uint64_t));
}

// [group of channels][word][panel][first, first ^ second][lane], so that a tile reads one stream.
void pack_panels(const uint64_t* bits, size_t outputs, size_t inputs, void* panels) {
  const size_t words = words_for(inputs);
  const __m512i low_halves = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i high_halves = _mm512_add_epi32(low_halves, _mm512_set1_epi32(1));
  for (size_t channel = 0; channel < padded(outputs); channel += kLanes) {
    uint32_t* entry = static_cast<uint32_t*>(panels) + channel / kGroup * words * kStep;
    entry += channel % kGroup / kLanes * 2 * kLanes;
    for (size_t word = 0; word < words; ++word, entry += kStep) {
      const __m512i low = load_column(bits, outputs, words, word, channel);
      const __m512i high = load_column(bits, outputs, words, word, channel + kLanes / 2);
      const __m512i first = _mm512_permutex2var_epi32(low, low_halves, high);
      const __m512i second = _mm512_permutex2var_epi32(low, high_halves, high);
      _mm512_storeu_si512(entry, first);
      _mm512_storeu_si512(entry + kLanes, _mm512_xor_si512(first, second));
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

// The counts of one row and 16 channels.
struct Unit {
  __m512i ones;
  __m512i count;

  void start(const uint32_t* activation, const uint32_t* weights) {
    ones = _mm512_xor_si512(_mm512_set1_epi32(static_cast<int32_t>(activation[1])), second_of(weights));
    count = _mm512_popcnt_epi32(_mm512_andnot_si512(ones, mismatches_of(activation, weights)));
  }

  void add(const uint32_t* activation, const uint32_t* weights) {
    const __m512i before = ones;
    const __m512i both = _mm512_set1_epi32(static_cast<int32_t>(activation[1]));
    ones = _mm512_ternarylogic_epi32(ones, both, second_of(weights), 0x96);
    const __m512i carry = _mm512_ternarylogic_epi32(before, mismatches_of(activation, weights), ones, 0xD4);
    count = _mm512_add_epi32(count, _mm512_popcnt_epi32(carry));
  }

  __m512i mismatches() const { return _mm512_add_epi32(_mm512_add_epi32(count, count), _mm512_popcnt_epi32(ones)); }

  static __m512i mismatches_of(const uint32_t* activation, const uint32_t* weights) {
    return _mm512_xor_si512(_mm512_set1_epi32(static_cast<int32_t>(activation[0])), _mm512_loadu_si512(weights));
  }
  static __m512i second_of(const uint32_t* weights) { return _mm512_loadu_si512(weights + kLanes); }
};

// Fewer rows than avx512_tile.h has.
template <size_t kRows>
void count_mismatches(const Tile& tile, Counts<kRows>& counts) {
  Unit units[kRows][kPanels];
  const auto for_units = [&](const auto& function) {
#pragma GCC unroll 3
    for (size_t r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (size_t panel = 0; panel < kPanels; ++panel) function(r, panel);
  };
  for_units([&](size_t r, size_t panel) {
    units[r][panel].start(tile.activations + r * 2 * tile.words, tile.weights + panel * 2 * kLanes);
  });
  for (size_t word = 1; word < tile.words; ++word) {
    for_units([&](size_t r, size_t panel) {
      units[r][panel].add(tile.activations + (r * tile.words + word) * 2,
                          tile.weights + word * kStep + panel * 2 * kLanes);
    });
  }
  for_units([&](size_t r, size_t panel) { counts[r][panel] = units[r][panel].mismatches(); });
}

// Fetches a part of the next group of weights. The hardware does not predict it, since every tile reads the same group.
void prefetch(const uint32_t* group, size_t first_line, size_t end_line) {
  for (size_t line = first_line; line < end_line; ++line)
    _mm_prefetch(reinterpret_cast<const char*>(group + line * kLineEntries), _MM_HINT_T0);
}

// As many tiles of 5 rows as possible, the others of 4; fewer only where that does not work out.
size_t rows_of_tile(size_t left) {
  const size_t fours = (5 - left % 5) % 5;
  if (left < 4 * fours) return lesser(left, 4);
  return fours == 0 ? 5 : 4;
}

template <size_t kRows, class Channels>
[[gnu::always_inline]] inline void compute_tile(const Tile& tile, size_t row, const Channels& channels) {
  Counts<kRows> counts;
  count_mismatches(tile, counts);
#pragma GCC unroll 5
  for (size_t r = 0; r < kRows; ++r) channels.store(row + r, counts[r]);
}

// `Output` has a struct Channels for the parameters of a group of channels, which stay in registers for all rows.
template <class Output>
void multiply(const Product& product, const Output& output) {
  if (product.rows == 0) return;
  const size_t words = words_for(product.inputs);
  const size_t lines = words * kStep / kLineEntries;
  const size_t lines_per_row = (lines + product.rows - 1) / product.rows;
  const uint32_t* const activations = static_cast<const uint32_t*>(product.tiles);
  const uint32_t* group = static_cast<const uint32_t*>(product.panels);
  size_t channel = 0;
  for (; channel < product.outputs; channel += kGroup, group += words * kStep) {
    const size_t next_lines = channel + kGroup < product.outputs ? lines : 0;
    const typename Output::Channels channels(output, channel);
    for (size_t row = 0, rows = 0; row < product.rows; row += rows) {
      rows = rows_of_tile(product.rows - row);
      prefetch(group + words * kStep, row * lines_per_row, lesser(next_lines, (row + rows) * lines_per_row));
      const Tile tile{activations + row * 2 * words, group, words};
      switch (rows) {
        case 1:
          compute_tile<1>(tile, row, channels);
          break;
        case 2:
          compute_tile<2>(tile, row, channels);
          break;
        case 3:
          compute_tile<3>(tile, row, channels);
          break;
        case 4:
          compute_tile<4>(tile, row, channels);
          break;
        default:
          compute_tile<5>(tile, row, channels);
      }
    }
  }
  // A group without channels becomes padding, whatever its mismatches are.
  constexpr __m512i kAny[kPanels] = {};
  for (; channel < padded(product.outputs); channel += kGroup)
    for (size_t row = 0; row < product.rows; ++row) typename Output::Channels(output, channel).store(row, kAny);
}

struct BitRows {
  const int32_t* most_mismatches;
  uint64_t* bits;
  size_t row_words;

  struct Channels {
    Channels(const BitRows& rows, size_t channel)
        : low(_mm512_loadu_si512(rows.most_mismatches + channel)),
          high(_mm512_loadu_si512(rows.most_mismatches + channel + kLanes)),
          first(reinterpret_cast<char*>(rows.bits) + channel / 8),
          stride(rows.row_words * sizeof(uint64_t)) {}

    [[gnu::always_inline]] void store(size_t row, const __m512i (&mismatches)[kPanels]) const {
      const uint32_t group =
          _mm512_kunpackw(_mm512_cmple_epi32_mask(mismatches[1], high), _mm512_cmple_epi32_mask(mismatches[0], low));
      std::memcpy(first + row * stride, &group, sizeof group);
    }

    __m512i low, high;  // the most mismatches
    char* first;        // the bits of row 0
    size_t stride;
  };
};

void linear_bits(const Product& product, const int32_t* most_mismatches, uint64_t* bits) {
  multiply(product, BitRows{most_mismatches, bits, words_for(product.outputs)});
}

template <int32_t kMismatch, bool kHasResidual>
struct FloatRows {
  const Affine& affine;
  float* values;
  size_t stride;

  struct Channels {
    Channels(const FloatRows& rows, size_t channel) : rows(rows), channel(channel) {}

    [[gnu::always_inline]] void store(size_t row, const __m512i (&mismatches)[kPanels]) const {
#pragma GCC unroll 2
      for (size_t panel = 0; panel < kPanels; ++panel) {
        const size_t at = channel + panel * kLanes;
        const __m512i base = _mm512_loadu_si512(rows.affine.base + at);
        const __m512i once = _mm512_sub_epi32(base, mismatches[panel]);
        const __m512i dot = kMismatch == 2 ? _mm512_sub_epi32(once, mismatches[panel]) : once;
        const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(rows.affine.scale + at), _mm512_cvtepi32_ps(dot));
        __m512 value = _mm512_add_ps(scaled, _mm512_loadu_ps(rows.affine.bias + at));
        const size_t to = row * rows.stride + at;
        if (kHasResidual) value = _mm512_add_ps(value, _mm512_loadu_ps(rows.affine.residual + to));
        _mm512_storeu_ps(rows.values + to, value);
      }
    }

    const FloatRows& rows;
    size_t channel;
  };
};

template <int32_t kMismatch>
void linear_floats(const Product& product, const Affine& affine, float* values) {
  const size_t stride = padded(product.outputs);
  if (affine.residual == nullptr) {
    multiply(product, FloatRows<kMismatch, false>{affine, values, stride});
  } else {
    multiply(product, FloatRows<kMismatch, true>{affine, values, stride});
  }
}

void linear_floats(const Product& product, const Affine& affine, float* values) {
  (affine.step == 2 ? linear_floats<2> : linear_floats<1>)(product, affine, values);
}

// Added in a vector, because the squares may wrap around (kernels.h).
int64_t sum_of_lanes(__m256i lanes) {
  const __m128i pair = _mm_add_epi64(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  return _mm_cvtsi128_si64(_mm_add_epi64(pair, _mm_unpackhi_epi64(pair, pair)));
}

struct Moments {
  bool in_range;
  int64_t sum;
  int64_t sum_of_squares;
};

// The padding adds 0. Magnitudes of floats compare like integers, with infinity and NaN above all numbers.
Moments moments_of(const float* input, size_t channels) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  const __m256 grid = _mm256_set1_ps(static_cast<float>(kGrid));
  __m256i largest = _mm256_setzero_si256();
  __m256i sum = _mm256_setzero_si256();
  __m256i squares = _mm256_setzero_si256();
  for (size_t c = 0; c < channels; c += kWordBits) {
#pragma GCC unroll 8
    for (size_t i = 0; i < kWordBits; i += 8) {
      const __m256 x = _mm256_loadu_ps(input + c + i);
      largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(x), magnitude));
      // The product is exact, the rounding half to even.
      const __m256i both = _mm256_cvtps_epi32(_mm256_mul_ps(x, grid));
      const __m256i odd = _mm256_srai_epi64(both, 32);
      const __m256i even = _mm256_srai_epi64(_mm256_slli_epi64(both, 32), 32);
      sum = _mm256_add_epi64(sum, _mm256_add_epi64(even, odd));
      squares = _mm256_add_epi64(squares, _mm256_mul_epi32(even, even));
      squares = _mm256_add_epi64(squares, _mm256_mul_epi32(odd, odd));
    }
  }
  const __m256i limit = _mm256_castps_si256(_mm256_set1_ps(kLayerNormLimit));
  return {_mm256_cmpge_epu32_mask(largest, limit) == 0, sum_of_lanes(sum), sum_of_lanes(squares)};
}

// Rows that share the conversion of weight and bias to float64, and the divisions of standard_of.
constexpr size_t kNormRows = 4;

struct Standards {
  alignas(32) double centre[kNormRows];
  alignas(32) double inverse[kNormRows];
};

// standard_of for four rows: the same operations, each rounded once.
Standards standards_of(const int64_t (&sums)[kNormRows], const int64_t (&sums_of_squares)[kNormRows], size_t channels,
                       double eps) {
  const auto doubles = [](const int64_t* from) {
    return _mm256_cvtepi64_pd(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  };
  const __m256d count = _mm256_set1_pd(static_cast<double>(channels));
  const __m256d mean = _mm256_div_pd(doubles(sums), count);
  const __m256d difference = _mm256_sub_pd(_mm256_div_pd(doubles(sums_of_squares), count), _mm256_mul_pd(mean, mean));
  const __m256d variance = _mm256_max_pd(difference, _mm256_setzero_pd());
  const __m256d scaled = _mm256_div_pd(variance, _mm256_set1_pd(kGrid * kGrid));
  const __m256d deviation = _mm256_sqrt_pd(_mm256_add_pd(scaled, _mm256_set1_pd(eps)));
  Standards standards;
  _mm256_store_pd(standards.centre, _mm256_div_pd(mean, _mm256_set1_pd(kGrid)));
  _mm256_store_pd(standards.inverse, _mm256_div_pd(_mm256_set1_pd(1.0), deviation));
  return standards;
}

[[gnu::always_inline]] inline __m128 normalize(const float* input, const Standards& standards, size_t row,
                                               __m256d weight, __m256d bias) {
  const __m256d centred = _mm256_sub_pd(_mm256_cvtps_pd(_mm_loadu_ps(input)), _mm256_set1_pd(standards.centre[row]));
  const __m256d normed = _mm256_mul_pd(centred, _mm256_set1_pd(standards.inverse[row]));
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
  int64_t sums[kNormRows] = {}, sums_of_squares[kNormRows] = {};
  for (size_t r = 0; r < kRows; ++r) {
    const Moments moments = moments_of(norm.input + (first + r) * stride, norm.channels);
    if (!moments.in_range) return false;
    sums[r] = moments.sum;
    sums_of_squares[r] = moments.sum_of_squares;
  }
  const Standards standards = standards_of(sums, sums_of_squares, norm.channels, norm.eps);
  for (size_t c = 0; c < stride; c += 8) {
    const __m256d weight[2] = {_mm256_cvtps_pd(_mm_loadu_ps(norm.weight + c)),
                               _mm256_cvtps_pd(_mm_loadu_ps(norm.weight + c + 4))};
    const __m256d bias[2] = {_mm256_cvtps_pd(_mm_loadu_ps(norm.bias + c)),
                             _mm256_cvtps_pd(_mm_loadu_ps(norm.bias + c + 4))};
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) {
      const size_t at = (first + r) * stride + c;
      const __m128 low = normalize(norm.input + at, standards, r, weight[0], bias[0]);
      const __m256 values = _mm256_set_m128(normalize(norm.input + at + 4, standards, r, weight[1], bias[1]), low);
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

const Kernels kAvx512 = {"avx512",    &kAvx512Levels, panel_bytes, pack_panels, tile_bytes, pack_tiles,
                         linear_bits, linear_floats,  layer_norm,  embed,       transpose};

}  // namespace bibert
