// NEON kernels. A product of bits is a table look-up: for five bits of an activation, `tbl` finds in a table of two
// registers how many of them differ from five bits of each of 16 weights. One table serves two rows of activations,
// whose counts share a byte, and three look-ups fill its nibbles exactly (3 · 5 = 15) before the rows are split.
//
// Why not eor + cnt: that takes 3 vector instructions for 128 products. Here 3 tbl, 3 add and 1 usra compute 480
// products, so 1.87 instructions 128. On cores with two vector pipes (Cortex-A76, Neoverse N1) these instructions are
// the bottleneck: 137 products per cycle instead of 85. Both pipes run tbl, add, eor and cnt; one runs usra, a shift.
// These are calculated, not measured: so far these kernels have run in an emulator only.
#include <arm_neon.h>

#include <utility>

#include "levels.h"
#include "plain.h"

namespace bibert {
namespace {

constexpr size_t kLanes = 16;         // output channels in one register, a byte each
constexpr size_t kPanels = 4;         // registers of channels that share the tables of a pair of rows
constexpr size_t kBlock = 64;         // output channels of all of them, one word of output bits
constexpr size_t kGroupBits = 5;      // inputs of one look-up
constexpr size_t kWordGroups = 13;    // look-ups of a word of 64 inputs
constexpr size_t kPairs = 8;          // pairs of rows whose tiles lie together
constexpr size_t kChunkTriples = 17;  // 17 · 15 mismatches fit into a byte
constexpr size_t kTableBytes = 32;
static_assert(kBlock == kPanels * kLanes && kBlock == kWordBits);

// bytes[a | b << 5][w] has popcount(a ^ w) in its low nibble, popcount(b ^ w) in its high one. The table takes half of
// a first-level cache of 64 KB.
struct Tables {
  alignas(64) uint8_t bytes[1024][kTableBytes];
};

constexpr unsigned popcount5(unsigned bits) {
  return (bits & 1) + (bits >> 1 & 1) + (bits >> 2 & 1) + (bits >> 3 & 1) + (bits >> 4 & 1);
}

constexpr Tables make_tables() {
  Tables tables{};
  for (unsigned pair = 0; pair < 1024; ++pair) {
    for (unsigned weight = 0; weight < kTableBytes; ++weight) {
      tables.bytes[pair][weight] =
          static_cast<uint8_t>(popcount5((pair & 31) ^ weight) | popcount5((pair >> 5) ^ weight) << 4);
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

// Turns 64 masks of a byte each into bits.
uint64_t bits_of_masks(const uint8x16_t masks[4]) {
  constexpr uint8_t kPlaces[kLanes] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const uint8x16_t places = vld1q_u8(kPlaces);
  const uint8x16_t low = vpaddq_u8(vandq_u8(masks[0], places), vandq_u8(masks[1], places));
  const uint8x16_t high = vpaddq_u8(vandq_u8(masks[2], places), vandq_u8(masks[3], places));
  const uint8x16_t quads = vpaddq_u8(low, high);
  return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(quads, quads)), 0);
}

uint8x16_t narrow(uint16x8_t low, uint16x8_t high) {
  return vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
}

uint16x8_t narrow(uint32x4_t low, uint32x4_t high) {
  return vuzp1q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high));
}

// Eight thresholds in 16 bits. They saturate above any count.
int16x8_t narrow_thresholds(const int32_t* from) {
  return vqmovn_high_s32(vqmovn_s32(vld1q_s32(from)), vld1q_s32(from + 4));
}

// ---- layouts

// Group i of a word has its bits 5 · i to 5 · i + 4; the last group of a whole word has one bit less.
size_t groups_for(size_t inputs) {
  return inputs / kWordBits * kWordGroups + (inputs % kWordBits + kGroupBits - 1) / kGroupBits;
}

size_t triples_for(size_t inputs) { return (groups_for(inputs) + 2) / 3; }

// Transposes one word of each of 16 rows into eight vectors: vector j holds byte j of every row. Each of three steps
// separates even bytes from odd ones.
void turn_words(const uint64_t* const rows[kLanes], size_t word, uint8x16_t vectors[8]) {
  for (size_t i = 0; i < 8; ++i) {
    const uint64x2_t two = vcombine_u64(vld1_u64(rows[2 * i] + word), vld1_u64(rows[2 * i + 1] + word));
    vectors[i] = vreinterpretq_u8_u64(two);
  }
  for (size_t step = 0; step < 3; ++step) {
    uint8x16_t split[8];
    for (size_t i = 0; i < 4; ++i) {
      split[i] = vuzp1q_u8(vectors[2 * i], vectors[2 * i + 1]);
      split[i + 4] = vuzp2q_u8(vectors[2 * i], vectors[2 * i + 1]);
    }
    for (size_t i = 0; i < 8; ++i) vectors[i] = split[i];
  }
}

// Cuts a group out of the byte it starts in and, if it continues there, the next.
template <size_t Group>
uint8x16_t cut_group(const uint8x16_t bytes[8]) {
  constexpr size_t kByte = Group * kGroupBits / 8;
  constexpr int kShift = Group * kGroupBits % 8;
  uint8x16_t group = bytes[kByte];
  if constexpr (kShift > 0) group = vshrq_n_u8(group, kShift);
  if constexpr (kShift > 3 && kByte < 7) group = vsliq_n_u8(group, bytes[kByte + 1], 8 - kShift);
  return vandq_u8(group, vdupq_n_u8(31));
}

template <class Use, size_t... Group>
void use_groups(const uint8x16_t bytes[8], size_t count, const Use& use, std::index_sequence<Group...> /*all*/) {
  ((Group < count ? use(Group, cut_group<Group>(bytes)) : void()), ...);
}

// Calls use(i, vector) for every group of the inputs, filled up with zeros to whole triples: the vector holds group i
// of the 16 rows from `first` on. Rows that are not there repeat the last: as channels they have neutral parameters, as
// activations no output.
template <class Use>
void for_groups(const uint64_t* bits, size_t first, size_t rows, size_t inputs, const Use& use) {
  const size_t words = words_for(inputs);
  const size_t groups = 3 * triples_for(inputs);
  const uint64_t* places[kLanes];
  for (size_t i = 0; i < kLanes; ++i) places[i] = bits + lesser(first + i, rows - 1) * words;
  for (size_t word = 0; word < words; ++word) {
    const size_t start = word * kWordGroups;
    uint8x16_t bytes[8];
    turn_words(places, word, bytes);
    use_groups(
        bytes, groups - start, [&](size_t i, uint8x16_t vector) { use(start + i, vector); },
        std::make_index_sequence<kWordGroups>());
  }
  for (size_t i = words * kWordGroups; i < groups; ++i) use(i, vdupq_n_u8(0));
}

size_t panel_bytes(size_t outputs, size_t inputs) { return padded(outputs) * 3 * triples_for(inputs); }

// [64 channels][group of the inputs][channel]: a byte per channel. That is 13 bytes per word of 8, but saves the
// product from cutting groups.
void pack_panels(const uint64_t* bits, size_t outputs, size_t inputs, void* panels) {
  for (size_t first = 0; first < padded(outputs); first += kLanes) {
    uint8_t* out = static_cast<uint8_t*>(panels) + first / kBlock * kBlock * 3 * triples_for(inputs) + first % kBlock;
    for_groups(bits, first, outputs, inputs, [&](size_t i, uint8x16_t vector) { vst1q_u8(out + i * kBlock, vector); });
  }
}

size_t tile_bytes(size_t rows, size_t inputs) {
  return (rows + kLanes - 1) / kLanes * kLanes * 3 * triples_for(inputs);
}

// [16 rows][group of the inputs][pair of rows]: the offset of the table of the pair.
void pack_tiles(const uint64_t* bits, size_t rows, size_t inputs, void* tiles) {
  const uint16x8_t low = vdupq_n_u16(32 * kTableBytes - 1);
  for (size_t first = 0; first < rows; first += kLanes) {
    uint16_t* out = static_cast<uint16_t*>(tiles) + first / 2 * 3 * triples_for(inputs);
    for_groups(bits, first, rows, inputs, [&](size_t i, uint8x16_t vector) {
      const uint16x8_t pairs = vreinterpretq_u16_u8(vector);  // the first row in the low byte, the second in the high
      const uint16x8_t offsets = vbslq_u16(low, vshlq_n_u16(pairs, 5), vshlq_n_u16(pairs, 2));  // (a | b << 5) · 32
      vst1q_u16(out + i * kPairs, offsets);
    });
  }
}

// ---- the product

// The mismatches of a block: of[row][channel].
struct Counts {
  alignas(64) uint16_t of[kMaxRows][kBlock];
};

// The sums of one panel over a chunk, for a pair of rows: of whole bytes modulo 256, and of their high nibbles, which
// belong to the second row. The sum of the first row is whole - 16 · second.
struct Sums {
  uint8x16_t whole;
  uint8x16_t second;
};

uint8x16x2_t load_table(uint16_t offset) { return vld1q_u8_x2(kTables.bytes[0] + offset); }

inline __attribute__((always_inline)) void add_triple(const uint8x16x2_t tables[3], const uint8_t* weights,
                                                      Sums& sums) {
  uint8x16_t both = vqtbl2q_u8(tables[0], vld1q_u8(weights));
  both = vaddq_u8(both, vqtbl2q_u8(tables[1], vld1q_u8(weights + kBlock)));
  both = vaddq_u8(both, vqtbl2q_u8(tables[2], vld1q_u8(weights + 2 * kBlock)));
  sums.whole = vaddq_u8(sums.whole, both);
  sums.second = vsraq_n_u8(sums.second, both, 4);
}

// Not inlined, and with the panels unrolled by the template: both keep the sums in registers. The loop needs no inline
// assembly: GCC 12 compiles it without spills.
template <size_t... Panel>
__attribute__((noinline)) void sum_chunk(const uint16_t* offsets, const uint8_t* weights, size_t triples, Sums* out,
                                         std::index_sequence<Panel...> /*panels*/) {
  Sums sums[kPanels] = {};
  for (size_t triple = 0; triple < triples; ++triple) {
    const uint8x16x2_t tables[3] = {load_table(offsets[0]), load_table(offsets[kPairs]),
                                    load_table(offsets[2 * kPairs])};
    (add_triple(tables, weights + kLanes * Panel, sums[Panel]), ...);
    offsets += 3 * kPairs;
    weights += 3 * kBlock;
  }
  ((out[Panel] = sums[Panel]), ...);
}

void add_counts(uint8x16_t sums, bool is_first_chunk, uint16_t* counts) {
  const uint16x8_t zero = vdupq_n_u16(0);
  vst1q_u16(counts, vaddw_u8(is_first_chunk ? zero : vld1q_u16(counts), vget_low_u8(sums)));
  vst1q_u16(counts + 8, vaddw_high_u8(is_first_chunk ? zero : vld1q_u16(counts + 8), sums));
}

void count_mismatches(const Product& product, size_t first_output, Counts& counts) {
  const size_t triples = triples_for(product.inputs);
  const size_t chunks = (triples + kChunkTriples - 1) / kChunkTriples;
  const size_t share = (triples + chunks - 1) / chunks;
  const uint8_t* weights = static_cast<const uint8_t*>(product.panels) + first_output * 3 * triples;
  const uint16_t* tiles = static_cast<const uint16_t*>(product.tiles);
  for (size_t start = 0; start < triples; start += share) {
    const size_t size = lesser(share, triples - start);
    for (size_t row = 0; row < product.rows; row += 2) {
      Sums sums[kPanels];
      const uint16_t* block = tiles + row / kLanes * kPairs * 3 * triples;
      sum_chunk(block + start * 3 * kPairs + row % kLanes / 2, weights + start * 3 * kBlock, size, sums,
                std::make_index_sequence<kPanels>());
      for (size_t panel = 0; panel < kPanels; ++panel) {
        const uint8x16_t second = sums[panel].second;
        const uint8x16_t first = vsubq_u8(sums[panel].whole, vshlq_n_u8(second, 4));
        add_counts(first, start == 0, counts.of[row] + panel * kLanes);
        add_counts(second, start == 0, counts.of[row + 1] + panel * kLanes);
      }
    }
  }
}

// Calls use(first output, counts) for blocks of 64 outputs.
template <class Use>
void for_blocks(const Product& product, const Use& use) {
  Counts counts;
  for (size_t first = 0; first < product.outputs; first += kBlock) {
    count_mismatches(product, first, counts);
    use(first, counts);
  }
}

void linear_bits(const Product& product, const int32_t* most_mismatches, uint64_t* bits) {
  const size_t stride = words_for(product.outputs);
  for_blocks(product, [&](size_t first, const Counts& counts) {
    int16x8_t most[8];
    for (size_t i = 0; i < 8; ++i) most[i] = narrow_thresholds(most_mismatches + first + 8 * i);
    for (size_t row = 0; row < product.rows; ++row) {
      const auto reached = [&](size_t i) {
        return vcleq_s16(vreinterpretq_s16_u16(vld1q_u16(counts.of[row] + 8 * i)), most[i]);
      };
      const uint8x16_t masks[4] = {narrow(reached(0), reached(1)), narrow(reached(2), reached(3)),
                                   narrow(reached(4), reached(5)), narrow(reached(6), reached(7))};
      bits[row * stride + first / kBlock] = bits_of_masks(masks);
    }
  });
}

template <bool HasResidual>
void scale_rows(const Product& product, const Affine& affine, float* values) {
  const size_t stride = padded(product.outputs);
  const int32x4_t step = vdupq_n_s32(affine.step);
  for_blocks(product, [&](size_t first, const Counts& counts) {
    for (size_t row = 0; row < product.rows; ++row) {
      float* out = values + row * stride + first;
      const float* residual = HasResidual ? affine.residual + row * stride + first : nullptr;
      for (size_t i = 0; i < kBlock; i += 4) {
        const int32x4_t count = vreinterpretq_s32_u32(vmovl_u16(vld1_u16(counts.of[row] + i)));
        const int32x4_t dot = vmlsq_s32(vld1q_s32(affine.base + first + i), count, step);
        float32x4_t value = vmulq_f32(vld1q_f32(affine.scale + first + i), vcvtq_f32_s32(dot));
        value = vaddq_f32(value, vld1q_f32(affine.bias + first + i));
        if (HasResidual) value = vaddq_f32(value, vld1q_f32(residual + i));
        vst1q_f32(out + i, value);
      }
    }
  });
}

void linear_floats(const Product& product, const Affine& affine, float* values) {
  (affine.residual != nullptr ? scale_rows<true> : scale_rows<false>)(product, affine, values);
}

// ---- LayerNorm

struct Statistics {
  int64_t sum;
  int64_t sum_of_squares;
  bool in_range;
};

// The padding is 0 and adds nothing. The product with 65536 is exact in float32.
Statistics statistics_of(const float* row, size_t channels) {
  const float32x4_t limit = vdupq_n_f32(kLayerNormLimit);
  uint32x4_t inside = vdupq_n_u32(~0U);
  int64x2_t sum = vdupq_n_s64(0);
  int64x2_t squares = vdupq_n_s64(0);
  for (size_t c = 0; c < padded(channels); c += 4) {
    const float32x4_t x = vld1q_f32(row + c);
    inside = vandq_u32(inside, vcaltq_f32(x, limit));  // false for NaN
    const int32x4_t grid = vcvtnq_s32_f32(vmulq_n_f32(x, static_cast<float>(kGrid)));
    sum = vpadalq_s32(sum, grid);
    squares = vmlal_s32(squares, vget_low_s32(grid), vget_low_s32(grid));
    squares = vmlal_high_s32(squares, grid, grid);
  }
  return {vaddvq_s64(sum), vaddvq_s64(squares), vminvq_u32(inside) != 0};
}

float64x2_t normalize(float64x2_t x, float64x2_t centre, float64x2_t inverse, float64x2_t weight, float64x2_t bias) {
  const float64x2_t normed = vmulq_f64(vsubq_f64(x, centre), inverse);
  return vaddq_f64(vmulq_f64(normed, weight), bias);
}

// The indices of four values. The conversion truncates, and gives 0 below 0 and the greatest integer above all.
uint32x4_t indices_of(const Levels& levels, size_t channel, float32x4_t values) {
  const float32x4_t above_edge = vsubq_f32(values, vld1q_f32(levels.edge + channel));
  const uint32x4_t index = vcvtq_u32_f32(vmulq_f32(above_edge, vld1q_f32(levels.rate + channel)));
  return vminq_u32(index, vdupq_n_u32(levels.top));
}

bool layer_norm_row(const LayerNorm& norm, size_t row) {
  const float* const input = norm.input + row * padded(norm.channels);
  float* const output = norm.output + row * padded(norm.channels);
  const Statistics found = statistics_of(input, norm.channels);
  if (!found.in_range) return false;
  const Standard standard = standard_of(found.sum, found.sum_of_squares, norm.channels, norm.eps);
  const float64x2_t centre = vdupq_n_f64(standard.centre);
  const float64x2_t inverse = vdupq_n_f64(standard.inverse);
  const auto normalize_four = [&](size_t c) {
    const float32x4_t x = vld1q_f32(input + c);
    const float32x4_t weight = vld1q_f32(norm.weight + c);
    const float32x4_t bias = vld1q_f32(norm.bias + c);
    const float64x2_t low = normalize(vcvt_f64_f32(vget_low_f32(x)), centre, inverse,
                                      vcvt_f64_f32(vget_low_f32(weight)), vcvt_f64_f32(vget_low_f32(bias)));
    const float64x2_t high =
        normalize(vcvt_high_f64_f32(x), centre, inverse, vcvt_high_f64_f32(weight), vcvt_high_f64_f32(bias));
    const float32x4_t y = vcvt_high_f32_f64(vcvt_f32_f64(low), high);
    vst1q_f32(output + c, y);
    // The index, or all ones if the minimum is reached.
    return norm.bits == nullptr ? indices_of(norm.levels, c, y) : vcgeq_f32(y, vld1q_f32(norm.minimum + c));
  };
  const size_t words = words_for(norm.channels);
  for (size_t word = 0; word < words; ++word) {
    uint8x16_t bytes[4];
    for (size_t i = 0; i < 4; ++i) {
      const size_t c = word * kWordBits + i * kLanes;
      bytes[i] = narrow(narrow(normalize_four(c), normalize_four(c + 4)),
                        narrow(normalize_four(c + 8), normalize_four(c + 12)));
      if (norm.bits == nullptr) vst1q_u8(norm.indices + row * words * kWordBits + c, bytes[i]);
    }
    if (norm.bits != nullptr) norm.bits[row * words + word] = bits_of_masks(bytes);
  }
  return true;
}

bool layer_norm(const LayerNorm& norm) {
  for (size_t row = 0; row < norm.rows; ++row) {
    if (!layer_norm_row(norm, row)) return false;
  }
  return true;
}

}  // namespace

const Kernels kNeon = {"neon",      &kNeonLevels,  panel_bytes, pack_panels, tile_bytes, pack_tiles,
                       linear_bits, linear_floats, layer_norm,  embed,       transpose};

}  // namespace bibert
