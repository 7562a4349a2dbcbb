// AVX2 kernels for 2 and 4 bits. lookup.h describes the product. Here a table has the sums of four inputs in 16 bytes,
// and `pshufb` selects one for each of 32 channels; a byte of weights has the bits of two tables. On Zen 4 this gives
// 100 to 125 products per cycle with either. Bit planes were not built: at the rate of avx2.cpp, 215 to 230, they would
// give at most 57 and 115.
#include "lookup.h"
#include "x86_attention.h"

namespace bibert {
namespace {

__m256i load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
void store(void* to, __m256i value) { _mm256_storeu_si256(static_cast<__m256i*>(to), value); }

constexpr size_t kPanel = 32;  // output channels in a register

struct Avx2 {
  static constexpr size_t kStepInputs = 8;
  static constexpr size_t kStepBytes = 32;
  static constexpr size_t kSliceSteps = 128;  // so that the tables take 16 KB of the first-level cache
  static constexpr size_t kRows = 4;
  static constexpr size_t kBlocks = 1;

  // Splitting a register into even and odd bytes keeps its 32 channels in order.
  static size_t place(size_t channel) {
    const size_t in_panel = channel % kPanel;
    return channel - in_panel + (in_panel < kPanel / 2 ? 2 * in_panel : 2 * in_panel - kPanel + 1);
  }

  // Entry j of the table of four inputs is the sum of subset j: for each input, `pshufb` copies it to the entries that
  // have it, and 0 to the others. The two halves are the two tables of a step.
  static void make_tables(const uint8_t* indices, size_t, size_t steps, uint8_t* tables) {
    __m256i places[4];
    for (size_t i = 0; i < 4; ++i) {
      alignas(32) uint8_t bytes[kStepBytes];
      for (size_t j = 0; j < kStepBytes; ++j)
        bytes[j] = static_cast<uint8_t>((j >> i & 1) != 0 ? i + j / 16 * 4 : 0x80);
      places[i] = load(bytes);
    }
    for (size_t step = 0; step < steps; ++step, indices += kStepInputs, tables += kStepBytes) {
      int64_t eight;
      std::memcpy(&eight, indices, sizeof(eight));
      const __m256i inputs = _mm256_set1_epi64x(eight);
      const __m256i low =
          _mm256_add_epi8(_mm256_shuffle_epi8(inputs, places[0]), _mm256_shuffle_epi8(inputs, places[1]));
      const __m256i high =
          _mm256_add_epi8(_mm256_shuffle_epi8(inputs, places[2]), _mm256_shuffle_epi8(inputs, places[3]));
      store(tables, _mm256_add_epi8(low, high));
    }
  }

  static int32_t sum_of_row(const uint8_t* indices, size_t inputs) {
    __m256i sum = _mm256_setzero_si256();
    for (size_t c = 0; c < inputs; c += 32)
      sum = _mm256_add_epi64(sum, _mm256_sad_epu8(load(indices + c), _mm256_setzero_si256()));
    const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    return static_cast<int32_t>(_mm_cvtsi128_si64(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two))));
  }

  static void compute_tile(const Tile& tile, size_t rows, size_t blocks, uint8_t top);
};

inline __m256i load_table(const uint8_t* from) {
  return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
}

// The sums of a few rows and 32 channels. kRun steps fit into a byte: 2 · 8 · 15 or 10 · 8 · 3. 16-bit lanes of
// `whole` add even + 256 · odd bytes, modulo 2^16. The empty assembly only keeps the order of the rows: without it GCC
// 12 spills sums, which makes 4 bits 8 % slower on Zen 4. Two rows and two panels, which share loads, are 15 % slower.
template <size_t kRows, size_t kRun>
[[gnu::noinline]] void sum_panel(const Tile& tile, size_t panel) {
  const __m256i low = _mm256_set1_epi8(15);
  const uint8_t* weights = tile.weights + panel * kPanel;
  const uint8_t* tables = tile.tables;
  __m256i whole[kRows] = {}, odd[kRows] = {};
  for (size_t step = 0; step < tile.steps;) {
    const size_t count = kRun == 2 ? kRun : lesser(tile.steps - step, kRun);  // the number of steps is even
    __m256i bytes[kRows] = {};
#pragma GCC unroll 2
    for (size_t i = 0; i < count; ++i, ++step, weights += kBlock, tables += Avx2::kStepBytes) {
      const __m256i both = load(weights);
      const __m256i first = _mm256_and_si256(both, low);
      const __m256i second = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
#pragma GCC unroll 4
      for (size_t r = 0; r < kRows; ++r) {
        const uint8_t* const table = tables + r * Avx2::kSliceSteps * Avx2::kStepBytes;
        bytes[r] = _mm256_add_epi8(bytes[r], _mm256_shuffle_epi8(load_table(table), first));
        bytes[r] = _mm256_add_epi8(bytes[r], _mm256_shuffle_epi8(load_table(table + 16), second));
        __asm__ volatile("" : "+x"(bytes[r]));
      }
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) {
      whole[r] = _mm256_add_epi16(whole[r], bytes[r]);
      odd[r] = _mm256_add_epi16(odd[r], _mm256_srli_epi16(bytes[r], 8));
    }
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < kRows; ++r) {
    uint16_t* const out = tile.sums + r * kBlock + panel * kPanel;
    store(out, _mm256_sub_epi16(whole[r], _mm256_slli_epi16(odd[r], 8)));
    store(out + kPanel / 2, odd[r]);
  }
}

template <size_t kRun>
constexpr void (*kSumPanel[Avx2::kRows])(const Tile&, size_t) = {sum_panel<1, kRun>, sum_panel<2, kRun>,
                                                                 sum_panel<3, kRun>, sum_panel<4, kRun>};

void Avx2::compute_tile(const Tile& tile, size_t rows, size_t /*blocks*/, uint8_t top) {
  for (size_t panel = 0; panel < kBlock / kPanel; ++panel)
    (top == 3 ? kSumPanel<10> : kSumPanel<2>)[rows - 1](tile, panel);
}

// Eight dot products of a row.
template <bool kHasBefore>
[[gnu::always_inline]] inline __m256 dots_of(const BlockSums& block, size_t r, size_t i) {
  const uint16_t* const from = block.sums + r * block.sums_stride + i;
  __m256i sum = _mm256_cvtepu16_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
  if (kHasBefore) sum = _mm256_add_epi32(sum, load(block.before + r * block.before_stride + i));
  const __m256i scaled = _mm256_sll_epi32(sum, _mm_cvtsi32_si128(block.shift));
  const __m256i offset = _mm256_add_epi32(load(block.offsets + i), _mm256_set1_epi32(block.of_rows[r]));
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(scaled, offset));
}

struct FloatOutput {
  const LevelAffine& affine;
  float* values;
  size_t stride;

  template <bool kHasBefore>
  [[gnu::noinline]] void store(const BlockSums& block) const {
    for (size_t i = 0; i < kBlock; i += 8) {
      const __m256 scale = _mm256_loadu_ps(affine.scale + block.channel + i);
      const __m256 bias = _mm256_loadu_ps(affine.bias + block.channel + i);
      for (size_t r = 0; r < block.rows; ++r) {
        const size_t at = (block.row + r) * stride + block.channel + i;
        __m256 value = _mm256_add_ps(_mm256_mul_ps(scale, dots_of<kHasBefore>(block, r, i)), bias);
        if (affine.residual != nullptr) value = _mm256_add_ps(value, _mm256_loadu_ps(affine.residual + at));
        _mm256_storeu_ps(values + at, value);
      }
    }
  }
};

struct IndexOutput {
  const LevelAffine& affine;
  const IndexRows& out;

  // The parameters of 16 channels stay in registers for all rows. Truncation equals floor, except below 0, where the
  // index is 0 anyway and the unsigned pack sets it.
  template <bool kHasBefore>
  [[gnu::noinline]] void store(const BlockSums& block) const {
    const __m256 top = _mm256_set1_ps(out.levels.top);
    for (size_t i = 0; i < kBlock; i += 16) {
      __m256 scale[2], bias[2], edge[2], rate[2];
#pragma GCC unroll 2
      for (size_t part = 0; part < 2; ++part) {
        const size_t channel = block.channel + i + 8 * part;
        scale[part] = _mm256_loadu_ps(affine.scale + channel);
        bias[part] = _mm256_loadu_ps(affine.bias + channel);
        edge[part] = _mm256_loadu_ps(out.levels.edge + channel);
        rate[part] = _mm256_loadu_ps(out.levels.rate + channel);
      }
      uint8_t* to = out.indices + block.row * out.stride + block.channel + i;
      for (size_t r = 0; r < block.rows; ++r, to += out.stride) {
        __m256i index[2];
#pragma GCC unroll 2
        for (size_t part = 0; part < 2; ++part) {
          const __m256 scaled = _mm256_mul_ps(scale[part], dots_of<kHasBefore>(block, r, i + 8 * part));
          const __m256 above_edge = _mm256_sub_ps(_mm256_add_ps(scaled, bias[part]), edge[part]);
          index[part] = _mm256_cvttps_epi32(_mm256_min_ps(_mm256_mul_ps(above_edge, rate[part]), top));
        }
        // Packs work on each half of 128 bits.
        const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(index[0], index[1]), 0xD8);
        const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
      }
    }
  }
};

void linear_indices(const LevelProduct& product, const LevelAffine& affine, const IndexRows& out) {
  Multiplication<Avx2, IndexOutput>(product, {affine, out}).run();
}

void linear_floats(const LevelProduct& product, const LevelAffine& affine, float* values) {
  Multiplication<Avx2, FloatOutput>(product, {affine, values, padded(product.outputs)}).run();
}

}  // namespace

const LevelKernels kAvx2Levels = {Lookup<Avx2>::panel_bytes,
                                  Lookup<Avx2>::pack_panels,
                                  Lookup<Avx2>::scratch_bytes,
                                  linear_indices,
                                  linear_floats,
                                  head_bytes,
                                  attend};

}  // namespace bibert
