// AVX2 kernels. A product of bits is a table look-up: for four bits of an activation, `pshufb` finds how many of them
// differ from four bits of each of 32 weights. One table serves two rows of activations, whose counts share a byte, so
// one look-up computes 256 products. Three look-ups fit into a nibble (3 · 4 < 16) before the two rows are split.
#include <immintrin.h>

#include <cstring>
#include <utility>

#include "levels.h"
#include "plain.h"

namespace bibert {
namespace {

constexpr size_t kPanel = 32;         // output channels in one register, a byte each
constexpr size_t kMostPanels = 4;     // panels that share the tables of a pair of rows
constexpr size_t kTripleBits = 12;    // inputs that three look-ups cover
constexpr size_t kChunkTriples = 20;  // 20 · 12 mismatches fit into a byte, 20 · 3276 into 16 bits (see add_chunk)
constexpr size_t kTableBytes = 16;

// A table of 16 bytes for every a | b << 4. Byte w has popcount(a ^ w) in its low nibble, popcount(b ^ w) in its high
// one.
struct Tables {
  alignas(64) uint8_t bytes[256 * kTableBytes];
};

constexpr unsigned popcount4(unsigned bits) { return (bits & 1) + (bits >> 1 & 1) + (bits >> 2 & 1) + (bits >> 3 & 1); }

constexpr Tables make_tables() {
  Tables tables{};
  for (unsigned pair = 0; pair < 256; ++pair) {
    for (unsigned weight = 0; weight < kTableBytes; ++weight) {
      tables.bytes[pair * kTableBytes + weight] =
          static_cast<uint8_t>(popcount4((pair & 15) ^ weight) | popcount4((pair >> 4) ^ weight) << 4);
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

__m256i load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
void store(void* to, __m256i value) { _mm256_storeu_si256(static_cast<__m256i*>(to), value); }

// ---- layouts

size_t triples_for(size_t inputs) { return (inputs + kTripleBits - 1) / kTripleBits; }

size_t nibble_pairs_for(size_t inputs) { return (3 * triples_for(inputs) + 1) / 2; }

// Even bytes hold the first half of the 32 channels of a panel, odd bytes the second half: splitting a register into
// even and odd bytes then keeps the channels in order.
size_t panel_bytes(size_t outputs, size_t inputs) { return padded(outputs) * nibble_pairs_for(inputs); }

// Transposes one word of each of 32 rows into eight vectors: vector j holds byte j of every row. First bytes of the two
// halves of the rows are paired, then blocks of 8 by 8 pairs are transposed in each half of the registers.
void turn_words(const uint64_t* const rows[kPanel], __m256i out[8]) {
  __m256i line[8];
  for (size_t i = 0; i < 8; ++i) {
    const auto couple = [&](size_t row) {
      return _mm_unpacklo_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(rows[row])),
                               _mm_loadl_epi64(reinterpret_cast<const __m128i*>(rows[row + kPanel / 2])));
    };
    line[i] = _mm256_set_m128i(couple(i + 8), couple(i));
  }
  __m256i two[8];
  __m256i four[8];
  for (size_t i = 0; i < 4; ++i) {
    two[i] = _mm256_unpacklo_epi16(line[2 * i], line[2 * i + 1]);
    two[i + 4] = _mm256_unpackhi_epi16(line[2 * i], line[2 * i + 1]);
  }
  for (size_t half = 0; half < 8; half += 4) {
    for (size_t i = 0; i < 2; ++i) {
      four[half + i] = _mm256_unpacklo_epi32(two[half + 2 * i], two[half + 2 * i + 1]);
      four[half + i + 2] = _mm256_unpackhi_epi32(two[half + 2 * i], two[half + 2 * i + 1]);
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    out[2 * i] = _mm256_unpacklo_epi64(four[2 * i], four[2 * i + 1]);
    out[2 * i + 1] = _mm256_unpackhi_epi64(four[2 * i], four[2 * i + 1]);
  }
}

// [panel][byte of the inputs, two nibbles][channel of the panel]
void pack_panels(const uint64_t* bits, size_t outputs, size_t inputs, void* panels) {
  static constexpr uint64_t kZero = 0;
  const size_t words = words_for(inputs);
  const size_t bytes = nibble_pairs_for(inputs);
  uint8_t* out = static_cast<uint8_t*>(panels);
  for (size_t first = 0; first < padded(outputs); first += kPanel, out += bytes * kPanel) {
    for (size_t word = 0; 8 * word < bytes; ++word) {
      const uint64_t* rows[kPanel];
      for (size_t i = 0; i < kPanel; ++i) {
        rows[i] = first + i < outputs && word < words ? bits + (first + i) * words + word : &kZero;
      }
      __m256i vectors[8];
      turn_words(rows, vectors);
      for (size_t j = 0; j < 8 && 8 * word + j < bytes; ++j) store(out + (8 * word + j) * kPanel, vectors[j]);
    }
  }
}

// With room for the last pair of rows, which is written in whole words of 16 nibbles too.
size_t tile_bytes(size_t rows, size_t inputs) {
  return ((rows + 1) / 2 * 3 * triples_for(inputs) + kWordBits / 4) * sizeof(uint16_t);
}

// [pair of rows][nibble of the inputs]: the offset of the table of the two nibbles. A word of each row at a time; what
// is written past the last nibble of a pair is overwritten by the next pair.
void pack_tiles(const uint64_t* bits, size_t rows, size_t inputs, void* tiles) {
  const size_t words = words_for(inputs);
  const size_t nibbles = 3 * triples_for(inputs);
  const __m128i low = _mm_set1_epi8(15);
  uint16_t* out = static_cast<uint16_t*>(tiles);
  for (size_t row = 0; row < rows; row += 2, out += nibbles) {
    const uint64_t* first = bits + row * words;
    const uint64_t* second = row + 1 < rows ? first + words : first;
    for (size_t word = 0; word < words; ++word) {
      const __m128i a = _mm_cvtsi64_si128(static_cast<int64_t>(first[word]));
      const __m128i b = _mm_cvtsi64_si128(static_cast<int64_t>(second[word]));
      const __m128i even = _mm_or_si128(_mm_and_si128(a, low), _mm_slli_epi16(_mm_and_si128(b, low), 4));
      const __m128i odd = _mm_or_si128(_mm_and_si128(_mm_srli_epi16(a, 4), low), _mm_andnot_si128(low, b));
      const __m256i pairs = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(even, odd));
      store(out + 16 * word, _mm256_slli_epi16(pairs, 4));  // a table has 16 bytes
    }
    for (size_t i = 16 * words; i < nibbles; ++i) out[i] = 0;
  }
}

// ---- the product

constexpr size_t kCountsStride = kMostPanels * kPanel;

// The mismatches of a block of rows and up to four panels.
struct Counts {
  alignas(64) uint16_t all[kMaxRows * kCountsStride];

  uint16_t* of(size_t row) { return all + row * kCountsStride; }
};

// The nibbles of a few panels and one chunk of the inputs, one per byte, in the order of the look-ups.
struct Chunk {
  alignas(64) uint8_t nibbles[kChunkTriples * kMostPanels * 3 * kPanel];
};

template <size_t Panels>
void unpack_chunk(const uint8_t* panels, size_t panel_stride, size_t triples, Chunk& chunk) {
  const __m256i low = _mm256_set1_epi8(15);
  for (size_t panel = 0; panel < Panels; ++panel) {
    for (size_t pair = 0; pair < (3 * triples + 1) / 2; ++pair) {
      const __m256i both = load(panels + panel * panel_stride + pair * kPanel);
      const auto place = [&](size_t nibble) {
        return chunk.nibbles + ((nibble / 3 * Panels + panel) * 3 + nibble % 3) * kPanel;
      };
      store(place(2 * pair), _mm256_and_si256(both, low));
      if (2 * pair + 1 < 3 * triples) store(place(2 * pair + 1), _mm256_and_si256(_mm256_srli_epi16(both, 4), low));
    }
  }
}

// The sums of one panel over a chunk, for a pair of rows. `first` has the sums of the first row in bytes. For the
// second row, whole 16-bit lanes are shifted down by a nibble and added without a mask, which saves an instruction per
// step: a lane is b0 + 16 · a1 + 256 · b1, and a1 is known from `first`.
struct Sums {
  __m256i first;
  __m256i lanes;
};

__m256i load_table(uint16_t offset) {
  const uint8_t* table = kTables.bytes + offset;
  return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
}

// The empty assembly statement only keeps the order of the panels: without it GCC 12 interleaves them and spills sums,
// which makes the products 7 % slower on Zen 4. It changes nothing with clang 14 and 19.
inline __attribute__((always_inline)) void add_triple(__m256i table0, __m256i table1, __m256i table2,
                                                      const uint8_t* weights, Sums& sums) {
  __m256i both = _mm256_shuffle_epi8(table0, load(weights));
  both = _mm256_add_epi8(both, _mm256_shuffle_epi8(table1, load(weights + kPanel)));
  both = _mm256_add_epi8(both, _mm256_shuffle_epi8(table2, load(weights + 2 * kPanel)));
  sums.first = _mm256_add_epi8(sums.first, _mm256_and_si256(both, _mm256_set1_epi8(15)));
  sums.lanes = _mm256_add_epi16(sums.lanes, _mm256_srli_epi16(both, 4));
  __asm__ volatile("" : "+x"(sums.first), "+x"(sums.lanes));
}

inline __attribute__((always_inline)) void add_to(uint16_t* counts, __m256i more, bool start) {
  store(counts, start ? more : _mm256_add_epi16(load(counts), more));
}

// Adds the sums of a chunk to the counts of 32 channels of both rows, or starts the counts with them.
inline __attribute__((always_inline)) void add_counts(const Sums& sums, bool start, uint16_t* first_row,
                                                      uint16_t* second_row) {
  const __m256i even = _mm256_set1_epi16(255);
  const __m256i odd_of_first = _mm256_srli_epi16(sums.first, 8);
  const __m256i second = _mm256_sub_epi16(sums.lanes, _mm256_slli_epi16(odd_of_first, 4));
  add_to(first_row, _mm256_and_si256(sums.first, even), start);
  add_to(first_row + kPanel / 2, odd_of_first, start);
  add_to(second_row, _mm256_and_si256(second, even), start);
  add_to(second_row + kPanel / 2, _mm256_srli_epi16(second, 8), start);
}

// The mismatches of a pair of rows and a few panels over one chunk of the inputs. Not inlined, and with the panels
// unrolled by the template: both keep the sums in registers.
template <size_t... Panel>
__attribute__((noinline)) void add_chunk(const uint16_t* tables, const uint8_t* weights, size_t triples, bool start,
                                         uint16_t* counts, std::index_sequence<Panel...> /*panels*/) {
  Sums sums[sizeof...(Panel)] = {};
  for (size_t triple = 0; triple < triples; ++triple) {
    const __m256i table0 = load_table(tables[0]);
    const __m256i table1 = load_table(tables[1]);
    const __m256i table2 = load_table(tables[2]);
    (add_triple(table0, table1, table2, weights + 3 * kPanel * Panel, sums[Panel]), ...);
    tables += 3;
    weights += 3 * kPanel * sizeof...(Panel);
  }
  (add_counts(sums[Panel], start, counts + kPanel * Panel, counts + kCountsStride + kPanel * Panel), ...);
}

template <size_t Panels>
void count_mismatches(const Product& product, size_t first_output, Counts& counts) {
  const size_t triples = triples_for(product.inputs);
  const size_t chunks = (triples + kChunkTriples - 1) / kChunkTriples;
  const size_t share = ((triples + chunks - 1) / chunks + 1) / 2 * 2;  // even, so that a chunk starts on a whole byte
  const size_t stride = kPanel * nibble_pairs_for(product.inputs);
  const uint8_t* panels = static_cast<const uint8_t*>(product.panels) + first_output / kPanel * stride;
  const uint16_t* tiles = static_cast<const uint16_t*>(product.tiles);
  Chunk chunk;
  for (size_t start = 0; start < triples; start += share) {
    const size_t size = lesser(share, triples - start);
    const uint16_t* tables = tiles + 3 * start;
    unpack_chunk<Panels>(panels + start * 3 / 2 * kPanel, stride, size, chunk);
    for (size_t row = 0; row < product.rows; row += 2, tables += 3 * triples) {
      add_chunk(tables, chunk.nibbles, size, start == 0, counts.of(row), std::make_index_sequence<Panels>());
    }
  }
}

// Calls use(first output, panels, counts) for groups of panels.
template <class Use>
void for_panels(const Product& product, const Use& use) {
  Counts counts;
  const size_t outputs = padded(product.outputs);
  size_t n = 0;
  for (; n + kMostPanels * kPanel <= outputs; n += kMostPanels * kPanel) {
    count_mismatches<kMostPanels>(product, n, counts);
    use(n, kMostPanels, counts);
  }
  if (n < outputs) {  // rows are padded to 64 channels, so two panels are left
    count_mismatches<2>(product, n, counts);
    use(n, size_t{2}, counts);
  }
}

__m256i thresholds16(const int32_t* from) {
  const __m256i packed = _mm256_packs_epi32(load(from), load(from + 8));
  return _mm256_permute4x64_epi64(packed, 0xD8);  // packs works on each half of 128 bits
}

void linear_bits(const Product& product, const int32_t* most_mismatches, uint64_t* bits) {
  const size_t stride = padded(product.outputs) / 8;
  uint8_t* out = reinterpret_cast<uint8_t*>(bits);
  for_panels(product, [&](size_t first, size_t panels, Counts& counts) {
    for (size_t j = 0; j < panels; ++j) {
      const __m256i most_low = thresholds16(most_mismatches + first + j * kPanel);
      const __m256i most_high = thresholds16(most_mismatches + first + j * kPanel + kPanel / 2);
      for (size_t row = 0; row < product.rows; ++row) {
        const uint16_t* at = counts.of(row) + j * kPanel;
        const __m256i above_low = _mm256_cmpgt_epi16(load(at), most_low);
        const __m256i above_high = _mm256_cmpgt_epi16(load(at + kPanel / 2), most_high);
        const __m256i above = _mm256_permute4x64_epi64(_mm256_packs_epi16(above_low, above_high), 0xD8);
        const uint32_t reached = ~static_cast<uint32_t>(_mm256_movemask_epi8(above));
        std::memcpy(out + row * stride + first / 8 + j * sizeof(reached), &reached, sizeof(reached));
      }
    }
  });
}

template <bool TwoPerMismatch, bool HasResidual>
void scale_rows(const Product& product, const Affine& affine, float* values) {
  const size_t stride = padded(product.outputs);
  for_panels(product, [&](size_t first, size_t panels, Counts& counts) {
    for (size_t row = 0; row < product.rows; ++row) {
      float* out = values + row * stride + first;
      const float* residual = HasResidual ? affine.residual + row * stride + first : nullptr;
      for (size_t i = 0; i < panels * kPanel; i += 8) {
        const __m128i count = _mm_load_si128(reinterpret_cast<const __m128i*>(counts.of(row) + i));
        const __m256i taken = _mm256_cvtepu16_epi32(TwoPerMismatch ? _mm_slli_epi16(count, 1) : count);
        const __m256i dot = _mm256_sub_epi32(load(affine.base + first + i), taken);
        __m256 value = _mm256_mul_ps(_mm256_loadu_ps(affine.scale + first + i), _mm256_cvtepi32_ps(dot));
        value = _mm256_add_ps(value, _mm256_loadu_ps(affine.bias + first + i));
        if (HasResidual) value = _mm256_add_ps(value, _mm256_loadu_ps(residual + i));
        _mm256_storeu_ps(out + i, value);
      }
    }
  });
}

void linear_floats(const Product& product, const Affine& affine, float* values) {
  const bool two = affine.step == 2;
  if (affine.residual != nullptr) {
    (two ? scale_rows<true, true> : scale_rows<false, true>)(product, affine, values);
  } else {
    (two ? scale_rows<true, false> : scale_rows<false, false>)(product, affine, values);
  }
}

// ---- LayerNorm

// Unsigned, because the squares may wrap around (kernels.h).
int64_t sum_lanes(__m256i lanes) {
  uint64_t values[4];
  store(values, lanes);
  return static_cast<int64_t>(values[0] + values[1] + values[2] + values[3]);
}

// False if a value is out of range. The padding is 0 and adds nothing. A product with 1 extends a lane to 64 bits.
bool standardize(const float* row, size_t channels, double eps, Standard& standard) {
  const __m256 limit = _mm256_set1_ps(kLayerNormLimit);
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  const __m256i one = _mm256_set1_epi32(1);
  __m256 inside = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
  __m256i sum = _mm256_setzero_si256();
  __m256i squares = _mm256_setzero_si256();
  for (size_t c = 0; c < padded(channels); c += 8) {
    const __m256 x = _mm256_loadu_ps(row + c);
    inside = _mm256_and_ps(inside, _mm256_cmp_ps(_mm256_and_ps(x, magnitude), limit, _CMP_LT_OQ));
    const __m256i grid = _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(static_cast<float>(kGrid))));
    const __m256i odd = _mm256_srli_epi64(grid, 32);
    sum = _mm256_add_epi64(sum, _mm256_add_epi64(_mm256_mul_epi32(grid, one), _mm256_mul_epi32(odd, one)));
    squares = _mm256_add_epi64(squares, _mm256_add_epi64(_mm256_mul_epi32(grid, grid), _mm256_mul_epi32(odd, odd)));
  }
  standard = standard_of(sum_lanes(sum), sum_lanes(squares), channels, eps);
  return _mm256_movemask_ps(inside) == 0xFF;
}

__m128 normalize(const float* x, const Standard& standard, __m256d weight, __m256d bias) {
  const __m256d centred = _mm256_sub_pd(_mm256_cvtps_pd(_mm_loadu_ps(x)), _mm256_set1_pd(standard.centre));
  const __m256d weighted = _mm256_mul_pd(_mm256_mul_pd(centred, _mm256_set1_pd(standard.inverse)), weight);
  return _mm256_cvtpd_ps(_mm256_add_pd(weighted, bias));
}

// Truncation equals floor, except below 0, where the index is 0 anyway and the unsigned pack sets it.
void store_indices(const Levels& levels, size_t channel, __m256 values, uint8_t* out) {
  const __m256 above_edge = _mm256_sub_ps(values, _mm256_loadu_ps(levels.edge + channel));
  const __m256 position = _mm256_mul_ps(above_edge, _mm256_loadu_ps(levels.rate + channel));
  const __m256i index = _mm256_cvttps_epi32(_mm256_min_ps(position, _mm256_set1_ps(levels.top)));
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(index), _mm256_extracti128_si256(index, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm_packus_epi16(words, words));
}

constexpr size_t kNormRows = 4;  // rows that share the conversion of weight and bias to float64

template <bool HasLevels>
bool layer_norm_rows(const LayerNorm& norm, size_t first, size_t rows) {
  const size_t stride = padded(norm.channels);
  Standard standard[kNormRows];
  for (size_t row = 0; row < rows; ++row) {
    if (!standardize(norm.input + (first + row) * stride, norm.channels, norm.eps, standard[row])) return false;
  }
  for (size_t c = 0; c < stride; c += 8) {
    const __m256d weight_low = _mm256_cvtps_pd(_mm_loadu_ps(norm.weight + c));
    const __m256d weight_high = _mm256_cvtps_pd(_mm_loadu_ps(norm.weight + c + 4));
    const __m256d bias_low = _mm256_cvtps_pd(_mm_loadu_ps(norm.bias + c));
    const __m256d bias_high = _mm256_cvtps_pd(_mm_loadu_ps(norm.bias + c + 4));
    for (size_t row = 0; row < rows; ++row) {
      const size_t at = (first + row) * stride + c;
      const __m128 low = normalize(norm.input + at, standard[row], weight_low, bias_low);
      const __m256 y = _mm256_set_m128(normalize(norm.input + at + 4, standard[row], weight_high, bias_high), low);
      _mm256_storeu_ps(norm.output + at, y);
      if (HasLevels) {
        store_indices(norm.levels, c, y, norm.indices + at);
      } else {
        const __m256 reached = _mm256_cmp_ps(y, _mm256_loadu_ps(norm.minimum + c), _CMP_GE_OQ);
        reinterpret_cast<uint8_t*>(norm.bits)[at / 8] = static_cast<uint8_t>(_mm256_movemask_ps(reached));
      }
    }
  }
  return true;
}

bool layer_norm(const LayerNorm& norm) {
  const auto normalize_rows = norm.bits == nullptr ? layer_norm_rows<true> : layer_norm_rows<false>;
  for (size_t row = 0; row < norm.rows; row += kNormRows) {
    if (!normalize_rows(norm, row, lesser(kNormRows, norm.rows - row))) return false;
  }
  return true;
}

}  // namespace

const Kernels kAvx2 = {"avx2",      &kAvx2Levels,  panel_bytes, pack_panels, tile_bytes, pack_tiles,
                       linear_bits, linear_floats, layer_norm,  embed,       transpose};

}  // namespace bibert
