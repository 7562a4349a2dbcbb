// AVX-512 kernels for 2 and 4 bits (F, BW, VL, DQ, VBMI, VNNI). lookup.h describes the product. Here a table has the
// sums of six inputs in the 64 bytes of a register, and `vpermb` selects one for each of 64 channels: one look-up and
// one addition of bytes compute 384 products. On Zen 4, with tables and outputs, linear_indices computes 145 to 170
// products per cycle with 4 bits and 165 to 200 with 2 bits; in the inner loop alone, by a profile, about 240 and 290.
// Bit planes were not built: at the rate of avx512.cpp, 350 to 387, they would give at most 97 and 194. Tables of seven
// inputs in two registers (`vpermi2b`, as fast as `vpermb`) were mostly slower, by up to 15 %: loads
// become the bottleneck.
//
// Unlike in avx512.cpp, floats are computed in 512 bits, which is 5 % faster on Zen 4. Other CPUs were not measured.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 warns about its own header (PR 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include "x86_attention.h"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include "lookup.h"

namespace bibert {
namespace {

struct Bytes64 {
  alignas(64) uint8_t at[64];

  __m512i load() const { return _mm512_load_si512(at); }
};

template <class Function>
constexpr Bytes64 make_bytes(Function function) {
  Bytes64 bytes{};
  for (unsigned i = 0; i < 64; ++i) bytes.at[i] = static_cast<uint8_t>(function(i));
  return bytes;
}

// Tables of three inputs first: byte 8t + j has the sum of subset j of inputs 3t, 3t + 1, 3t + 2.
constexpr Bytes64 kFirstInput = make_bytes([](unsigned i) { return i / 8 * 3; });
constexpr Bytes64 kSecondInput = make_bytes([](unsigned i) { return i / 8 * 3 + 1; });
constexpr Bytes64 kThirdInput = make_bytes([](unsigned i) { return i / 8 * 3 + 2; });
constexpr uint64_t kHasFirst = 0xAAAAAAAAAAAAAAAA;
constexpr uint64_t kHasSecond = 0xCCCCCCCCCCCCCCCC;
constexpr uint64_t kHasThird = 0xF0F0F0F0F0F0F0F0;
// Entry j of a table of six is the sum of entry j % 8 of its first three inputs and entry j / 8 of the others.
constexpr Bytes64 kSecondHalf = make_bytes([](unsigned i) { return 8 + i / 8; });

struct Avx512 {
  static constexpr size_t kStepInputs = 6;
  static constexpr size_t kStepBytes = 64;
  static constexpr size_t kSliceSteps = 64;  // so that the tables take 16 KB of the first-level cache
  static constexpr size_t kRows = 4;
  static constexpr size_t kBlocks = 2;
  static constexpr size_t kTogether = 4;  // steps whose tables are made together

  // Splitting a register into even and odd bytes keeps the channels in order.
  static size_t place(size_t channel) { return channel < kBlock / 2 ? 2 * channel : 2 * channel - kBlock + 1; }

  // Nothing past the end of the row: the next one may belong to another thread.
  [[gnu::always_inline]] static __m256i load_inputs(const uint8_t* indices, size_t available) {
    if (available >= 32) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(indices));
    return _mm256_maskz_loadu_epi8((1U << available) - 1, indices);
  }

  // The tables of `steps` steps, and a few more to a multiple of four.
  static void make_tables(const uint8_t* indices, size_t available, size_t steps, uint8_t* tables) {
    const __m512i first = kFirstInput.load();
    const __m512i second = kSecondInput.load();
    const __m512i third = kThirdInput.load();
    __m512i halves[kTogether];
#pragma GCC unroll 4
    for (size_t i = 0; i < kTogether; ++i)
      halves[i] = _mm512_add_epi8(kSecondHalf.load(), _mm512_set1_epi8(static_cast<char>(16 * i)));
    for (size_t step = 0; step < steps; step += kTogether) {
      const __m512i inputs = _mm512_castsi256_si512(load_inputs(indices, available));
      indices += kTogether * kStepInputs;
      available -= kTogether * kStepInputs;
      const __m512i three = _mm512_add_epi8(_mm512_add_epi8(_mm512_maskz_permutexvar_epi8(kHasFirst, first, inputs),
                                                            _mm512_maskz_permutexvar_epi8(kHasSecond, second, inputs)),
                                            _mm512_maskz_permutexvar_epi8(kHasThird, third, inputs));
#pragma GCC unroll 4
      for (size_t i = 0; i < kTogether; ++i, tables += kStepBytes) {
        const __m512i low = _mm512_permutexvar_epi64(_mm512_set1_epi64(static_cast<int64_t>(2 * i)), three);
        const __m512i high = _mm512_permutexvar_epi8(halves[i], three);
        _mm512_store_si512(tables, _mm512_add_epi8(low, high));
      }
    }
  }

  static int32_t sum_of_row(const uint8_t* indices, size_t inputs) {
    __m512i sum = _mm512_setzero_si512();
    for (size_t c = 0; c < inputs; c += kBlock)
      sum = _mm512_add_epi64(sum, _mm512_sad_epu8(_mm512_loadu_si512(indices + c), _mm512_setzero_si512()));
    return static_cast<int32_t>(_mm512_reduce_add_epi64(sum));
  }

  static void compute_tile(const Tile& tile, size_t rows, size_t blocks, uint8_t top);
};

// The sums of a row and a block: those of the even bytes are channels 0 to 31, those of the odd bytes the others.
struct Sums {
  __m512i whole;  // 16-bit lanes of even + 256 · odd, modulo 2^16
  __m512i odd;

  [[gnu::always_inline]] void add(__m512i bytes) {
    whole = _mm512_add_epi16(whole, bytes);
    odd = _mm512_add_epi16(odd, _mm512_srli_epi16(bytes, 8));
  }
  [[gnu::always_inline]] void store(uint16_t* out) const {
    _mm512_store_si512(out, _mm512_sub_epi16(whole, _mm512_slli_epi16(odd, 8)));
    _mm512_store_si512(out + kBlock / 2, odd);
  }
};

// Two steps. The empty assembly keeps the table in a register: without it GCC 12 loads it again for each block, and
// loads become the bottleneck.
template <size_t kRows, size_t kBlocks>
[[gnu::always_inline]] inline void add_pair(const Tile& tile, size_t step, __m512i (&bytes)[kRows][kBlocks]) {
#pragma GCC unroll 2
  for (size_t i = step; i < step + 2; ++i) {
    __m512i weights[kBlocks];
#pragma GCC unroll 2
    for (size_t b = 0; b < kBlocks; ++b)
      weights[b] = _mm512_loadu_si512(tile.weights + b * tile.block_stride + i * kBlock);
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) {
      __m512i table = _mm512_load_si512(tile.tables + (r * Avx512::kSliceSteps + i) * Avx512::kStepBytes);
      __asm__("" : "+v"(table));
#pragma GCC unroll 2
      for (size_t b = 0; b < kBlocks; ++b)
        bytes[r][b] = _mm512_add_epi8(bytes[r][b], _mm512_permutexvar_epi8(weights[b], table));
    }
  }
}

// kRun pairs of steps fit into a byte: 1 · 12 · 15 or 7 · 12 · 3.
template <size_t kRows, size_t kBlocks, size_t kRun>
[[gnu::noinline]] void sum_tile(const Tile& tile) {
  Sums sums[kRows][kBlocks] = {};
  for (size_t step = 0; step < tile.steps;) {
    __m512i bytes[kRows][kBlocks] = {};
    const size_t end = kRun == 1 ? step + 2 : lesser(tile.steps, step + 2 * kRun);
    do {
      add_pair(tile, step, bytes);
      step += 2;
    } while (step < end);
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (size_t b = 0; b < kBlocks; ++b) sums[r][b].add(bytes[r][b]);
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (size_t b = 0; b < kBlocks; ++b) sums[r][b].store(tile.sums + (r * Avx512::kBlocks + b) * kBlock);
}

template <size_t kRun>
constexpr void (*kSumTile[Avx512::kRows][Avx512::kBlocks])(const Tile&) = {
    {sum_tile<1, 1, kRun>, sum_tile<1, 2, kRun>},
    {sum_tile<2, 1, kRun>, sum_tile<2, 2, kRun>},
    {sum_tile<3, 1, kRun>, sum_tile<3, 2, kRun>},
    {sum_tile<4, 1, kRun>, sum_tile<4, 2, kRun>},
};

void Avx512::compute_tile(const Tile& tile, size_t rows, size_t blocks, uint8_t top) {
  (top == 3 ? kSumTile<7> : kSumTile<1>)[rows - 1][blocks - 1](tile);
}

// Sixteen dot products of a row; `offset` is that of the channels. All are integers below 2^24, so that floats, also
// those of the fused multiplication, are exact.
template <bool kHasBefore>
[[gnu::always_inline]] inline __m512 dots_of(const BlockSums& block, size_t r, size_t i, __m512 offset) {
  const uint16_t* const from = block.sums + r * block.sums_stride + i;
  __m512i sum = _mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
  if (kHasBefore) sum = _mm512_add_epi32(sum, _mm512_loadu_si512(block.before + r * block.before_stride + i));
  const __m512 factor = _mm512_set1_ps(static_cast<float>(1 << block.shift));
  const __m512 scaled = _mm512_fmsub_ps(_mm512_cvtepi32_ps(sum), factor, offset);
  return _mm512_sub_ps(scaled, _mm512_set1_ps(static_cast<float>(block.of_rows[r])));
}

[[gnu::always_inline]] inline __m512 offset_of(const BlockSums& block, size_t i) {
  return _mm512_cvtepi32_ps(_mm512_loadu_si512(block.offsets + i));
}

struct FloatOutput {
  const LevelAffine& affine;
  float* values;
  size_t stride;

  template <bool kHasBefore>
  [[gnu::noinline]] void store(const BlockSums& block) const {
    for (size_t i = 0; i < kBlock; i += 16) {
      const __m512 scale = _mm512_loadu_ps(affine.scale + block.channel + i);
      const __m512 bias = _mm512_loadu_ps(affine.bias + block.channel + i);
      const __m512 offset = offset_of(block, i);
      for (size_t r = 0; r < block.rows; ++r) {
        const size_t at = (block.row + r) * stride + block.channel + i;
        __m512 value = _mm512_add_ps(_mm512_mul_ps(scale, dots_of<kHasBefore>(block, r, i, offset)), bias);
        if (affine.residual != nullptr) value = _mm512_add_ps(value, _mm512_loadu_ps(affine.residual + at));
        _mm512_storeu_ps(values + at, value);
      }
    }
  }
};

struct IndexOutput {
  const LevelAffine& affine;
  const IndexRows& out;

  // The parameters of 64 channels stay in registers for all rows. Truncation equals floor, except below 0, where the
  // index is 0 anyway and the unsigned pack sets it.
  template <bool kHasBefore>
  [[gnu::noinline]] void store(const BlockSums& block) const {
    constexpr size_t kParts = 4;
    const __m512 top = _mm512_set1_ps(out.levels.top);
    // Packs work on each quarter of 128 bits.
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512 scale[kParts], bias[kParts], edge[kParts], rate[kParts], offset[kParts];
#pragma GCC unroll 4
    for (size_t part = 0; part < kParts; ++part) {
      const size_t channel = block.channel + 16 * part;
      scale[part] = _mm512_loadu_ps(affine.scale + channel);
      bias[part] = _mm512_loadu_ps(affine.bias + channel);
      edge[part] = _mm512_loadu_ps(out.levels.edge + channel);
      rate[part] = _mm512_loadu_ps(out.levels.rate + channel);
      offset[part] = offset_of(block, 16 * part);
    }
    uint8_t* to = out.indices + block.row * out.stride + block.channel;
    for (size_t r = 0; r < block.rows; ++r, to += out.stride) {
      __m512i index[kParts];
#pragma GCC unroll 4
      for (size_t part = 0; part < kParts; ++part) {
        const __m512 scaled = _mm512_mul_ps(scale[part], dots_of<kHasBefore>(block, r, 16 * part, offset[part]));
        const __m512 above_edge = _mm512_sub_ps(_mm512_add_ps(scaled, bias[part]), edge[part]);
        index[part] = _mm512_cvttps_epi32(_mm512_min_ps(_mm512_mul_ps(above_edge, rate[part]), top));
      }
      const __m512i bytes =
          _mm512_packus_epi16(_mm512_packs_epi32(index[0], index[1]), _mm512_packs_epi32(index[2], index[3]));
      _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, bytes));
    }
  }
};

void linear_indices(const LevelProduct& product, const LevelAffine& affine, const IndexRows& out) {
  Multiplication<Avx512, IndexOutput>(product, {affine, out}).run();
}

void linear_floats(const LevelProduct& product, const LevelAffine& affine, float* values) {
  Multiplication<Avx512, FloatOutput>(product, {affine, values, padded(product.outputs)}).run();
}

}  // namespace

const LevelKernels kAvx512Levels = {Lookup<Avx512>::panel_bytes,
                                    Lookup<Avx512>::pack_panels,
                                    Lookup<Avx512>::scratch_bytes,
                                    linear_indices,
                                    linear_floats,
                                    head_bytes,
                                    attend};

}  // namespace bibert
