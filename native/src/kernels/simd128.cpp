// WebAssembly kernels. A product of bits is a table look-up, as in avx2.cpp, with 16 channels in a register: for four
// bits of an activation, `i8x16.swizzle` finds how many of them differ from four bits of each of 16 weights. One table
// serves two rows of activations, whose counts share a byte, and three look-ups fit into a nibble (3 · 4 < 16).
#include "levels.h"
#include "plain.h"
#include "simd128_indices.h"

namespace bibert {
namespace {

constexpr size_t kLanes = 16;         // output channels in one register, a byte each
constexpr size_t kPanels = 4;         // registers of channels that share the tables of a pair of rows
constexpr size_t kBlock = 64;         // output channels of all of them, one word of output bits
constexpr size_t kTripleBits = 12;    // inputs that three look-ups cover
constexpr size_t kChunkTriples = 20;  // 20 · 12 mismatches fit into a byte, 20 · 3276 into 16 bits (see Sums)
constexpr size_t kTableBytes = 16;
constexpr uint64_t kLowNibbles = 0x0F0F0F0F0F0F0F0F;
static_assert(kBlock == kPanels * kLanes && kBlock == kWordBits);

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

// ---- layouts

size_t triples_for(size_t inputs) { return (inputs + kTripleBits - 1) / kTripleBits; }

size_t nibble_pairs_for(size_t inputs) { return (3 * triples_for(inputs) + 1) / 2; }

size_t panel_bytes(size_t outputs, size_t inputs) { return padded(outputs) * nibble_pairs_for(inputs); }

// [16 channels][byte of the inputs, two nibbles][channel]. Even bytes hold the first half of the channels, odd bytes
// the second half: splitting a register into even and odd bytes then keeps the channels in order.
void pack_panels(const uint64_t* bits, size_t outputs, size_t inputs, void* panels) {
  const size_t row_bytes = words_for(inputs) * sizeof(uint64_t);
  const size_t bytes = nibble_pairs_for(inputs);
  std::memset(panels, 0, panel_bytes(outputs, inputs));
  for (size_t channel = 0; channel < outputs; ++channel) {
    const size_t lane = channel % kLanes;
    const uint8_t* const row = reinterpret_cast<const uint8_t*>(bits) + channel * row_bytes;
    uint8_t* const out = static_cast<uint8_t*>(panels) + channel / kLanes * kLanes * bytes +
                         (lane < kLanes / 2 ? 2 * lane : 2 * lane - kLanes + 1);
    for (size_t i = 0; i < lesser(bytes, row_bytes); ++i) out[i * kLanes] = row[i];
  }
}

// With room for the last pair of rows, which is written in whole words of 16 nibbles too.
size_t tile_bytes(size_t rows, size_t inputs) {
  return ((rows + 1) / 2 * 3 * triples_for(inputs) + kWordBits / 4) * sizeof(uint16_t);
}

// [pair of rows][nibble of the inputs]: the offset of the table of the two nibbles. What is written past the last
// nibble of a pair is overwritten by the next pair.
void pack_tiles(const uint64_t* bits, size_t rows, size_t inputs, void* tiles) {
  const size_t words = words_for(inputs);
  const size_t nibbles = 3 * triples_for(inputs);
  uint16_t* out = static_cast<uint16_t*>(tiles);
  for (size_t row = 0; row < rows; row += 2, out += nibbles) {
    const uint64_t* first = bits + row * words;
    const uint64_t* second = row + 1 < rows ? first + words : first;
    for (size_t word = 0; word < words; ++word) {
      const uint64_t a = first[word];
      const uint64_t b = second[word];
      const v128_t even = wasm_u64x2_splat((a & kLowNibbles) | (b & kLowNibbles) << 4);
      const v128_t odd = wasm_u64x2_splat((a >> 4 & kLowNibbles) | (b & ~kLowNibbles));
      const v128_t pairs = wasm_i8x16_shuffle(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      wasm_v128_store(out + 16 * word, wasm_i16x8_shl(wasm_u16x8_extend_low_u8x16(pairs), 4));  // a table has 16 bytes
      wasm_v128_store(out + 16 * word + 8, wasm_i16x8_shl(wasm_u16x8_extend_high_u8x16(pairs), 4));
    }
    for (size_t i = 16 * words; i < nibbles; ++i) out[i] = 0;
  }
}

// ---- the product

// The mismatches of a block: of[row][channel].
struct Counts {
  alignas(64) uint16_t of[kMaxRows][kBlock];
};

// The nibbles of a block and one chunk of the inputs, one per byte, in the order of the look-ups.
struct Chunk {
  alignas(64) uint8_t nibbles[kChunkTriples * 3 * kBlock];
};

void unpack_chunk(const uint8_t* panels, size_t panel_stride, size_t triples, Chunk& chunk) {
  const v128_t low = wasm_i8x16_const_splat(15);
  for (size_t panel = 0; panel < kPanels; ++panel) {
    for (size_t pair = 0; pair < (3 * triples + 1) / 2; ++pair) {
      const v128_t both = wasm_v128_load(panels + panel * panel_stride + pair * kLanes);
      const auto place = [&](size_t nibble) {
        return chunk.nibbles + ((nibble / 3 * kPanels + panel) * 3 + nibble % 3) * kLanes;
      };
      wasm_v128_store(place(2 * pair), wasm_v128_and(both, low));
      if (2 * pair + 1 < 3 * triples) wasm_v128_store(place(2 * pair + 1), wasm_u8x16_shr(both, 4));
    }
  }
}

// The sums of one panel over a chunk, for a pair of rows. `first` has the sums of the first row in bytes. For the
// second row, whole 16-bit lanes are shifted down by a nibble and added without a mask, which saves an instruction per
// step: a lane is b0 + 16 · a1 + 256 · b1, and a1 is known from `first`.
struct Sums {
  v128_t first;
  v128_t lanes;
};

[[gnu::always_inline]] inline void add_triple(v128_t table0, v128_t table1, v128_t table2, const uint8_t* weights,
                                              Sums& sums) {
  v128_t both = wasm_i8x16_swizzle(table0, wasm_v128_load(weights));
  both = wasm_i8x16_add(both, wasm_i8x16_swizzle(table1, wasm_v128_load(weights + kLanes)));
  both = wasm_i8x16_add(both, wasm_i8x16_swizzle(table2, wasm_v128_load(weights + 2 * kLanes)));
  sums.first = wasm_i8x16_add(sums.first, wasm_v128_and(both, wasm_i8x16_const_splat(15)));
  sums.lanes = wasm_i16x8_add(sums.lanes, wasm_u16x8_shr(both, 4));
}

[[gnu::always_inline]] inline void add_to(uint16_t* counts, v128_t more, bool start) {
  wasm_v128_store(counts, start ? more : wasm_i16x8_add(wasm_v128_load(counts), more));
}

// Adds the sums of a chunk to the counts of 16 channels of both rows, or starts the counts with them.
[[gnu::always_inline]] inline void add_counts(const Sums& sums, bool start, uint16_t* first_row,
                                              uint16_t* second_row) {
  const v128_t even = wasm_i16x8_const_splat(255);
  const v128_t odd_of_first = wasm_u16x8_shr(sums.first, 8);
  const v128_t second = wasm_i16x8_sub(sums.lanes, wasm_i16x8_shl(odd_of_first, 4));
  add_to(first_row, wasm_v128_and(sums.first, even), start);
  add_to(first_row + kLanes / 2, odd_of_first, start);
  add_to(second_row, wasm_v128_and(second, even), start);
  add_to(second_row + kLanes / 2, wasm_u16x8_shr(second, 8), start);
}

v128_t load_table(uint16_t offset) { return wasm_v128_load(kTables.bytes + offset); }

// The mismatches of a pair of rows and a block over one chunk of the inputs.
[[gnu::noinline]] void add_chunk(const uint16_t* tables, const uint8_t* weights, size_t triples, bool start,
                                 uint16_t* first_row, uint16_t* second_row) {
  Sums sums[kPanels] = {};
  for (size_t triple = 0; triple < triples; ++triple, tables += 3, weights += 3 * kBlock) {
    const v128_t table0 = load_table(tables[0]);
    const v128_t table1 = load_table(tables[1]);
    const v128_t table2 = load_table(tables[2]);
#pragma GCC unroll 4
    for (size_t panel = 0; panel < kPanels; ++panel)
      add_triple(table0, table1, table2, weights + 3 * kLanes * panel, sums[panel]);
  }
#pragma GCC unroll 4
  for (size_t panel = 0; panel < kPanels; ++panel)
    add_counts(sums[panel], start, first_row + kLanes * panel, second_row + kLanes * panel);
}

void count_mismatches(const Product& product, size_t first_output, Counts& counts) {
  const size_t triples = triples_for(product.inputs);
  const size_t chunks = (triples + kChunkTriples - 1) / kChunkTriples;
  const size_t share = ((triples + chunks - 1) / chunks + 1) / 2 * 2;  // even, so that a chunk starts on a whole byte
  const size_t stride = kLanes * nibble_pairs_for(product.inputs);
  const uint8_t* panels = static_cast<const uint8_t*>(product.panels) + first_output / kLanes * stride;
  Chunk chunk;
  for (size_t start = 0; start < triples; start += share) {
    const size_t size = lesser(share, triples - start);
    const uint16_t* tables = static_cast<const uint16_t*>(product.tiles) + 3 * start;
    unpack_chunk(panels + start * 3 / 2 * kLanes, stride, size, chunk);
    for (size_t row = 0; row < product.rows; row += 2, tables += 3 * triples)
      add_chunk(tables, chunk.nibbles, size, start == 0, counts.of[row], counts.of[row + 1]);
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

// Turns 64 masks of 16 bits each into bits.
uint64_t bits_of_masks(const v128_t masks[8]) {
  uint64_t bits = 0;
  for (size_t i = 0; i < 4; ++i)
    bits |= uint64_t{wasm_i8x16_bitmask(wasm_i8x16_narrow_i16x8(masks[2 * i], masks[2 * i + 1]))} << 16 * i;
  return bits;
}

void linear_bits(const Product& product, const int32_t* most_mismatches, uint64_t* bits) {
  const size_t stride = words_for(product.outputs);
  for_blocks(product, [&](size_t first, const Counts& counts) {
    v128_t most[8];  // they saturate above any count
    for (size_t i = 0; i < 8; ++i) {
      const int32_t* from = most_mismatches + first + 8 * i;
      most[i] = wasm_i16x8_narrow_i32x4(wasm_v128_load(from), wasm_v128_load(from + 4));
    }
    for (size_t row = 0; row < product.rows; ++row) {
      v128_t reached[8];
      for (size_t i = 0; i < 8; ++i) reached[i] = wasm_i16x8_le(wasm_v128_load(counts.of[row] + 8 * i), most[i]);
      bits[row * stride + first / kBlock] = bits_of_masks(reached);
    }
  });
}

template <bool HasResidual>
void scale_rows(const Product& product, const Affine& affine, float* values) {
  const size_t stride = padded(product.outputs);
  const uint32_t doubling = affine.step == 2 ? 1 : 0;
  for_blocks(product, [&](size_t first, const Counts& counts) {
    for (size_t row = 0; row < product.rows; ++row) {
      float* out = values + row * stride + first;
      const float* residual = HasResidual ? affine.residual + row * stride + first : nullptr;
      for (size_t i = 0; i < kBlock; i += 4) {
        const v128_t count = wasm_i32x4_shl(wasm_u32x4_load16x4(counts.of[row] + i), doubling);
        const v128_t dot = wasm_i32x4_sub(wasm_v128_load(affine.base + first + i), count);
        v128_t value = wasm_f32x4_mul(wasm_v128_load(affine.scale + first + i), wasm_f32x4_convert_i32x4(dot));
        value = wasm_f32x4_add(value, wasm_v128_load(affine.bias + first + i));
        if (HasResidual) value = wasm_f32x4_add(value, wasm_v128_load(residual + i));
        wasm_v128_store(out + i, value);
      }
    }
  });
}

void linear_floats(const Product& product, const Affine& affine, float* values) {
  (affine.residual != nullptr ? scale_rows<true> : scale_rows<false>)(product, affine, values);
}

// ---- LayerNorm

int64_t sum_lanes(v128_t lanes) { return wasm_i64x2_extract_lane(lanes, 0) + wasm_i64x2_extract_lane(lanes, 1); }

// False if a value is out of range. The padding is 0 and adds nothing. The product with 65536 is exact in float32.
bool standardize(const float* row, size_t channels, double eps, Standard& standard) {
  const v128_t limit = wasm_f32x4_splat(kLayerNormLimit);
  v128_t inside = wasm_i32x4_const_splat(-1);
  v128_t sum = wasm_i64x2_const_splat(0);
  v128_t squares = wasm_i64x2_const_splat(0);
  for (size_t c = 0; c < padded(channels); c += 4) {
    const v128_t x = wasm_v128_load(row + c);
    inside = wasm_v128_and(inside, wasm_f32x4_lt(wasm_f32x4_abs(x), limit));  // false for NaN
    const v128_t scaled = wasm_f32x4_mul(x, wasm_f32x4_splat(static_cast<float>(kGrid)));
    const v128_t grid = wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest(scaled));
    sum = wasm_i64x2_add(sum, wasm_i64x2_extend_low_i32x4(grid));
    sum = wasm_i64x2_add(sum, wasm_i64x2_extend_high_i32x4(grid));
    squares = wasm_i64x2_add(squares, wasm_i64x2_extmul_low_i32x4(grid, grid));
    squares = wasm_i64x2_add(squares, wasm_i64x2_extmul_high_i32x4(grid, grid));
  }
  if (!wasm_i32x4_all_true(inside)) return false;
  standard = standard_of(sum_lanes(sum), sum_lanes(squares), channels, eps);
  return true;
}

v128_t high_half(v128_t x) { return wasm_i64x2_shuffle(x, x, 1, 1); }

v128_t normalize(v128_t x, v128_t centre, v128_t inverse, v128_t weight, v128_t bias) {
  const v128_t centred = wasm_f64x2_sub(wasm_f64x2_promote_low_f32x4(x), centre);
  const v128_t weighted =
      wasm_f64x2_mul(wasm_f64x2_mul(centred, inverse), wasm_f64x2_promote_low_f32x4(weight));
  return wasm_f32x4_demote_f64x2_zero(wasm_f64x2_add(weighted, wasm_f64x2_promote_low_f32x4(bias)));
}

bool layer_norm_row(const LayerNorm& norm, size_t row) {
  const float* const input = norm.input + row * padded(norm.channels);
  float* const output = norm.output + row * padded(norm.channels);
  Standard standard;
  if (!standardize(input, norm.channels, norm.eps, standard)) return false;
  const v128_t centre = wasm_f64x2_splat(standard.centre);
  const v128_t inverse = wasm_f64x2_splat(standard.inverse);
  const auto normalize_four = [&](size_t c) {
    const v128_t x = wasm_v128_load(input + c);
    const v128_t weight = wasm_v128_load(norm.weight + c);
    const v128_t bias = wasm_v128_load(norm.bias + c);
    const v128_t low = normalize(x, centre, inverse, weight, bias);
    const v128_t high = normalize(high_half(x), centre, inverse, high_half(weight), high_half(bias));
    const v128_t y = wasm_i64x2_shuffle(low, high, 0, 2);
    wasm_v128_store(output + c, y);
    return y;
  };
  const size_t words = words_for(norm.channels);
  for (size_t word = 0; word < words; ++word) {
    uint64_t bits = 0;
    for (size_t i = 0; i < kWordBits; i += 4) {
      const size_t c = word * kWordBits + i;
      const v128_t y = normalize_four(c);
      if (norm.bits != nullptr) {
        bits |= uint64_t{wasm_i32x4_bitmask(wasm_f32x4_ge(y, wasm_v128_load(norm.minimum + c)))} << i;
      } else {
        const v128_t index = index_of(y, norm.levels.edge + c, norm.levels.rate + c, norm.levels.top);
        store_four_bytes(index, norm.indices + row * words * kWordBits + c);
      }
    }
    if (norm.bits != nullptr) norm.bits[row * words + word] = bits;
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

const Kernels kSimd128 = {"simd128",   &kSimd128Levels, panel_bytes, pack_panels, tile_bytes, pack_tiles,
                          linear_bits, linear_floats,   layer_norm,  embed,       transpose};

}  // namespace bibert
