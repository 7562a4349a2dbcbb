// WebAssembly kernels for 2 and 4 bits. lookup.h describes the product. Here a table has the sums of four inputs in the
// 16 bytes of a register, and `i8x16.swizzle` selects one for each of 16 channels; a byte of weights has the bits of
// two tables.
#include "lookup.h"
#include "simd128_indices.h"

namespace bibert {
namespace {

constexpr size_t kLanes = 16;  // output channels in a register

struct Simd128 {
  static constexpr size_t kStepInputs = 8;
  static constexpr size_t kStepBytes = 32;
  static constexpr size_t kSliceSteps = 128;  // so that the tables take 16 KB of the first-level cache
  static constexpr size_t kRows = 4;
  static constexpr size_t kBlocks = 1;

  // Splitting a register into even and odd bytes keeps its 16 channels in order.
  static size_t place(size_t channel) {
    const size_t lane = channel % kLanes;
    return channel - lane + (lane < kLanes / 2 ? 2 * lane : 2 * lane - kLanes + 1);
  }

  // Entry j of the table of four inputs is the sum of subset j: for each input, a swizzle copies it to the entries that
  // have it, and 0 to the others.
  static void make_tables(const uint8_t* indices, size_t, size_t steps, uint8_t* tables) {
    v128_t places[8];
    for (size_t i = 0; i < 8; ++i) {
      uint8_t bytes[kLanes];
      for (size_t j = 0; j < kLanes; ++j) bytes[j] = static_cast<uint8_t>((j >> i % 4 & 1) != 0 ? i : 0xFF);
      places[i] = wasm_v128_load(bytes);
    }
    for (size_t step = 0; step < steps; ++step, indices += kStepInputs) {
      const v128_t inputs = wasm_v128_load64_zero(indices);
      for (size_t half = 0; half < 8; half += 4, tables += kLanes) {
        const auto copy = [&](size_t i) { return wasm_i8x16_swizzle(inputs, places[half + i]); };
        wasm_v128_store(tables, wasm_i8x16_add(wasm_i8x16_add(copy(0), copy(1)), wasm_i8x16_add(copy(2), copy(3))));
      }
    }
  }

  static int32_t sum_of_row(const uint8_t* indices, size_t inputs) {
    v128_t sum = wasm_i32x4_const_splat(0);
    for (size_t c = 0; c < inputs; c += kLanes) {
      const v128_t pairs = wasm_u16x8_extadd_pairwise_u8x16(wasm_v128_load(indices + c));
      sum = wasm_i32x4_add(sum, wasm_u32x4_extadd_pairwise_u16x8(pairs));
    }
    return wasm_i32x4_extract_lane(sum, 0) + wasm_i32x4_extract_lane(sum, 1) + wasm_i32x4_extract_lane(sum, 2) +
           wasm_i32x4_extract_lane(sum, 3);
  }

  static void compute_tile(const Tile& tile, size_t rows, size_t blocks, uint8_t top);
};

// The sums of a few rows and 16 channels. kRun steps fit into a byte: 2 · 8 · 15 or 10 · 8 · 3. 16-bit lanes of `whole`
// add even + 256 · odd bytes, modulo 2^16.
template <size_t kRows, size_t kRun>
[[gnu::noinline]] void sum_panel(const Tile& tile, size_t panel) {
  const v128_t low = wasm_i8x16_const_splat(15);
  const uint8_t* weights = tile.weights + panel * kLanes;
  const uint8_t* tables = tile.tables;
  v128_t whole[kRows] = {}, odd[kRows] = {};
  for (size_t step = 0; step < tile.steps;) {
    const size_t count = kRun == 2 ? kRun : lesser(tile.steps - step, kRun);  // the number of steps is even
    v128_t bytes[kRows] = {};
#pragma GCC unroll 2
    for (size_t i = 0; i < count; ++i, ++step, weights += kBlock, tables += Simd128::kStepBytes) {
      const v128_t both = wasm_v128_load(weights);
      const v128_t first = wasm_v128_and(both, low);
      const v128_t second = wasm_u8x16_shr(both, 4);
#pragma GCC unroll 4
      for (size_t r = 0; r < kRows; ++r) {
        const uint8_t* const table = tables + r * Simd128::kSliceSteps * Simd128::kStepBytes;
        bytes[r] = wasm_i8x16_add(bytes[r], wasm_i8x16_swizzle(wasm_v128_load(table), first));
        bytes[r] = wasm_i8x16_add(bytes[r], wasm_i8x16_swizzle(wasm_v128_load(table + 16), second));
      }
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) {
      whole[r] = wasm_i16x8_add(whole[r], bytes[r]);
      odd[r] = wasm_i16x8_add(odd[r], wasm_u16x8_shr(bytes[r], 8));
    }
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < kRows; ++r) {
    uint16_t* const out = tile.sums + r * kBlock + panel * kLanes;
    wasm_v128_store(out, wasm_i16x8_sub(whole[r], wasm_i16x8_shl(odd[r], 8)));
    wasm_v128_store(out + kLanes / 2, odd[r]);
  }
}

template <size_t kRun>
constexpr void (*kSumPanel[Simd128::kRows])(const Tile&, size_t) = {sum_panel<1, kRun>, sum_panel<2, kRun>,
                                                                    sum_panel<3, kRun>, sum_panel<4, kRun>};

void Simd128::compute_tile(const Tile& tile, size_t rows, size_t /*blocks*/, uint8_t top) {
  for (size_t panel = 0; panel < kBlock / kLanes; ++panel)
    (top == 3 ? kSumPanel<10> : kSumPanel<2>)[rows - 1](tile, panel);
}

// Four values of a row, without residual.
template <bool kHasBefore>
v128_t values_of(const BlockSums& block, const LevelAffine& affine, size_t r, size_t i) {
  v128_t sum = wasm_u32x4_load16x4(block.sums + r * block.sums_stride + i);
  if (kHasBefore) sum = wasm_i32x4_add(sum, wasm_v128_load(block.before + r * block.before_stride + i));
  const v128_t scaled = wasm_i32x4_shl(sum, static_cast<uint32_t>(block.shift));
  const v128_t offset = wasm_i32x4_add(wasm_v128_load(block.offsets + i), wasm_i32x4_splat(block.of_rows[r]));
  const v128_t dot = wasm_f32x4_convert_i32x4(wasm_i32x4_sub(scaled, offset));
  return wasm_f32x4_add(wasm_f32x4_mul(wasm_v128_load(affine.scale + block.channel + i), dot),
                        wasm_v128_load(affine.bias + block.channel + i));
}

struct FloatOutput {
  const LevelAffine& affine;
  float* values;
  size_t stride;

  template <bool kHasBefore>
  void store(const BlockSums& block) const {
    for (size_t r = 0; r < block.rows; ++r) {
      for (size_t i = 0; i < kBlock; i += 4) {
        const size_t at = (block.row + r) * stride + block.channel + i;
        v128_t value = values_of<kHasBefore>(block, affine, r, i);
        if (affine.residual != nullptr) value = wasm_f32x4_add(value, wasm_v128_load(affine.residual + at));
        wasm_v128_store(values + at, value);
      }
    }
  }
};

struct IndexOutput {
  const LevelAffine& affine;
  const IndexRows& out;

  template <bool kHasBefore>
  void store(const BlockSums& block) const {
    for (size_t r = 0; r < block.rows; ++r) {
      const auto four = [&](size_t i) {
        const size_t channel = block.channel + i;
        return index_of(values_of<kHasBefore>(block, affine, r, i), out.levels.edge + channel,
                        out.levels.rate + channel, out.levels.top);
      };
      uint8_t* const to = out.indices + (block.row + r) * out.stride + block.channel;
      for (size_t i = 0; i < kBlock; i += kLanes)
        wasm_v128_store(to + i, narrow(four(i), four(i + 4), four(i + 8), four(i + 12)));
    }
  }
};

void linear_indices(const LevelProduct& product, const LevelAffine& affine, const IndexRows& out) {
  Multiplication<Simd128, IndexOutput>(product, {affine, out}).run();
}

void linear_floats(const LevelProduct& product, const LevelAffine& affine, float* values) {
  Multiplication<Simd128, FloatOutput>(product, {affine, values, padded(product.outputs)}).run();
}

// ---- attention

// With the level q of a query and the index u of a key, sum q · u differs from half the score only by a constant of the
// query, so the distance is the greatest of these sums minus the sum. With the weight a and the index u of a value,
// sum a · v = 2 · sum a · u - top · sum a. `i32x4.dot_i16x8_s` adds two products in each of four lanes, so channels of
// keys, and keys of values, come in pairs of 16-bit numbers.

constexpr size_t kQueries = 4;  // queries that share the loads of keys and values
constexpr size_t kKeys = 8;     // whose scores fill a register

constexpr size_t round_up(size_t count, size_t multiple) { return (count + multiple - 1) / multiple * multiple; }

struct PackedHead {
  PackedHead(size_t key_count, size_t head_channels, void* memory)
      : keys(round_up(key_count, kKeys)),
        channels(round_up(head_channels, 8)),
        key_numbers(static_cast<int16_t*>(memory)),
        value_numbers(key_numbers + keys * channels),
        scores(value_numbers + keys * channels) {}

  size_t keys;             // a multiple of 8
  size_t channels;         // the same
  int16_t* key_numbers;    // [8 keys][pair of channels][key][channel]
  int16_t* value_numbers;  // [pair of keys][channel][key]
  int16_t* scores;         // rows of `keys`, one per query; then the weights
};

size_t head_bytes(size_t keys, size_t channels) {
  return round_up(keys, kKeys) * (2 * round_up(channels, 8) + kQueries) * sizeof(int16_t);
}

// A key that is not there is 0; its score is replaced. A channel that is not there adds 0.
void pack(const Head& head, const PackedHead& packed) {
  std::memset(packed.key_numbers, 0, 2 * packed.keys * packed.channels * sizeof(int16_t));
  for (size_t key = 0; key < head.key_count; ++key) {
    const uint8_t* const from_keys = head.keys + key * head.stride;
    const uint8_t* const from_values = head.values + key * head.stride;
    int16_t* const to_keys = packed.key_numbers + key / kKeys * kKeys * packed.channels + key % kKeys * 2;
    int16_t* const to_values = packed.value_numbers + key / 2 * 2 * packed.channels + key % 2;
    for (size_t c = 0; c < head.channels; ++c) {
      to_keys[c / 2 * 2 * kKeys + c % 2] = from_keys[c];
      to_values[2 * c] = from_values[c];
    }
  }
}

// Signed levels of a few queries, 0 past the last channel; missing queries repeat the last one.
struct QueryLevels {
  QueryLevels(const Head& head, size_t first) {
    std::memset(of, 0, sizeof(of));
    for (size_t q = 0; q < kQueries; ++q) {
      const uint8_t* const from = head.queries + lesser(first + q, head.query_count - 1) * head.stride;
      for (size_t c = 0; c < head.channels; ++c) of[q][c] = static_cast<int16_t>(2 * from[c] - head.top);
    }
  }

  alignas(16) int16_t of[kQueries][kWordBits];
};

// A sum is at most 64 · 15 · 15.
void find_scores(const Head& head, const PackedHead& packed, const QueryLevels& queries) {
  for (size_t first = 0; first < packed.keys; first += kKeys) {
    const int16_t* keys = packed.key_numbers + first * packed.channels;
    v128_t sums[kQueries][2] = {};
    for (size_t c = 0; c < head.channels; c += 2, keys += 2 * kKeys) {
      const v128_t low = wasm_v128_load(keys);
      const v128_t high = wasm_v128_load(keys + kKeys);
#pragma GCC unroll 4
      for (size_t q = 0; q < kQueries; ++q) {
        const v128_t levels = wasm_v128_load32_splat(queries.of[q] + c);
        sums[q][0] = wasm_i32x4_add(sums[q][0], wasm_i32x4_dot_i16x8(low, levels));
        sums[q][1] = wasm_i32x4_add(sums[q][1], wasm_i32x4_dot_i16x8(high, levels));
      }
    }
    for (size_t q = 0; q < kQueries; ++q)
      wasm_v128_store(packed.scores + q * packed.keys + first, wasm_i16x8_narrow_i32x4(sums[q][0], sums[q][1]));
  }
}

// Replaces the scores of a query by weights, and returns their sum. Keys that are not there get weight 0.
int32_t weigh_keys(const Head& head, const PackedHead& packed, size_t query) {
  int16_t* const scores = packed.scores + query * packed.keys;
  for (size_t key = head.key_count; key < packed.keys; ++key) scores[key] = INT16_MIN;
  v128_t most = wasm_v128_load(scores);
  for (size_t key = kKeys; key < packed.keys; key += kKeys) most = wasm_i16x8_max(most, wasm_v128_load(scores + key));
  most = wasm_i16x8_max(most, wasm_i64x2_shuffle(most, most, 1, 0));
  most = wasm_i16x8_max(most, wasm_i32x4_shuffle(most, most, 1, 0, 3, 2));
  most = wasm_i16x8_max(most, wasm_i16x8_shuffle(most, most, 1, 0, 3, 2, 5, 4, 7, 6));
  v128_t sum = wasm_i32x4_const_splat(0);
  for (size_t key = 0; key < packed.keys; key += kKeys) {
    const v128_t distance = wasm_i16x8_sub_sat(most, wasm_v128_load(scores + key));
    v128_t weight = wasm_i16x8_const_splat(0);
    for (size_t j = 0; j < head.top; ++j) {  // a true comparison is -1
      const v128_t threshold = wasm_i16x8_splat(static_cast<int16_t>(head.thresholds[j]));
      weight = wasm_i16x8_sub(weight, wasm_i16x8_le(distance, threshold));
    }
    wasm_v128_store(scores + key, weight);
    sum = wasm_i32x4_add(sum, wasm_i32x4_extadd_pairwise_i16x8(weight));
  }
  return wasm_i32x4_extract_lane(sum, 0) + wasm_i32x4_extract_lane(sum, 1) + wasm_i32x4_extract_lane(sum, 2) +
         wasm_i32x4_extract_lane(sum, 3);
}

// Edge and rate of the contexts, padded, and the indices of all channels of the contexts of a few queries.
struct Contexts {
  explicit Contexts(const Head& head) {
    std::memcpy(edge, head.context.edge, head.channels * sizeof(float));
    std::memcpy(rate, head.context.rate, head.channels * sizeof(float));
  }

  // Channels [c, c + 8) of all queries; `weights` has the sums of their weights.
  void find(const Head& head, const PackedHead& packed, const int32_t* weights, size_t c) {
    v128_t totals[kQueries][2] = {};
    for (size_t key = 0; key < packed.keys; key += 2) {
      const int16_t* const values = packed.value_numbers + key * packed.channels + 2 * c;
      const v128_t low = wasm_v128_load(values);
      const v128_t high = wasm_v128_load(values + 8);
#pragma GCC unroll 4
      for (size_t q = 0; q < kQueries; ++q) {
        const v128_t pair = wasm_v128_load32_splat(packed.scores + q * packed.keys + key);
        totals[q][0] = wasm_i32x4_add(totals[q][0], wasm_i32x4_dot_i16x8(low, pair));
        totals[q][1] = wasm_i32x4_add(totals[q][1], wasm_i32x4_dot_i16x8(high, pair));
      }
    }
    for (size_t q = 0; q < kQueries; ++q) {
      const v128_t ratio = wasm_f32x4_splat(head.value_step / static_cast<float>(weights[q]));
      for (size_t half = 0; half < 2; ++half) {
        const v128_t offset = wasm_i32x4_splat(head.top * weights[q]);
        const v128_t total = wasm_i32x4_sub(wasm_i32x4_shl(totals[q][half], 1), offset);
        const size_t at = c + 4 * half;
        const v128_t context = wasm_f32x4_mul(wasm_f32x4_convert_i32x4(total), ratio);
        store_four_bytes(index_of(context, edge + at, rate + at, head.context.top), indices[q] + at);
      }
    }
  }

  float edge[kWordBits] = {}, rate[kWordBits] = {};
  uint8_t indices[kQueries][kWordBits];
};

void attend(const Head& head) {
  const PackedHead packed(head.key_count, head.channels, head.scratch);
  Contexts contexts(head);
  pack(head, packed);
  for (size_t first = 0; first < head.query_count; first += kQueries) {
    find_scores(head, packed, QueryLevels(head, first));
    int32_t weights[kQueries];
    for (size_t q = 0; q < kQueries; ++q) weights[q] = weigh_keys(head, packed, q);
    for (size_t c = 0; c < head.channels; c += 8) contexts.find(head, packed, weights, c);
    for (size_t q = 0; q < lesser(kQueries, head.query_count - first); ++q)
      std::memcpy(head.contexts + (first + q) * head.context_stride, contexts.indices[q], head.channels);
  }
}

}  // namespace

const LevelKernels kSimd128Levels = {Lookup<Simd128>::panel_bytes,
                                     Lookup<Simd128>::pack_panels,
                                     Lookup<Simd128>::scratch_bytes,
                                     linear_indices,
                                     linear_floats,
                                     head_bytes,
                                     attend};

}  // namespace bibert
