// NEON kernels for 2 and 4 bits. lookup.h describes the product. Here a table has the sums of four inputs in the 16
// bytes of a register, and `tbl` selects one for each of 16 channels; a byte of weights has the bits of two tables. So
// far these kernels have run in an emulator only.
#include <arm_neon.h>

#include "lookup.h"

namespace bibert {
namespace {

constexpr size_t kLanes = 16;  // output channels in a register
constexpr size_t kPanels = 2;  // registers of channels that share the tables: 4 x 2 sums take 24 of the 32 registers

struct Neon {
  static constexpr size_t kStepInputs = 8;
  static constexpr size_t kStepBytes = 32;
  static constexpr size_t kSliceSteps = 128;  // so that the tables take 16 KB of the first-level cache
  static constexpr size_t kRows = 4;
  static constexpr size_t kBlocks = 1;

  static size_t place(size_t channel) { return channel; }

  // Entry j of the table of four inputs is the sum of subset j: for each input, `tbl` copies it to the entries that
  // have it, and 0 to the others.
  static void make_tables(const uint8_t* indices, size_t, size_t steps, uint8_t* tables) {
    uint8x16_t places[8];
    for (size_t i = 0; i < 8; ++i) {
      uint8_t bytes[kLanes];
      for (size_t j = 0; j < kLanes; ++j) bytes[j] = static_cast<uint8_t>((j >> i % 4 & 1) != 0 ? i : 0xFF);
      places[i] = vld1q_u8(bytes);
    }
    for (size_t step = 0; step < steps; ++step, indices += kStepInputs) {
      const uint8x8_t eight = vld1_u8(indices);
      const uint8x16_t inputs = vcombine_u8(eight, eight);
      for (size_t half = 0; half < 8; half += 4, tables += kLanes) {
        const uint8x16_t low = vaddq_u8(vqtbl1q_u8(inputs, places[half]), vqtbl1q_u8(inputs, places[half + 1]));
        const uint8x16_t high = vaddq_u8(vqtbl1q_u8(inputs, places[half + 2]), vqtbl1q_u8(inputs, places[half + 3]));
        vst1q_u8(tables, vaddq_u8(low, high));
      }
    }
  }

  static int32_t sum_of_row(const uint8_t* indices, size_t inputs) {
    uint32x4_t sum = vdupq_n_u32(0);
    for (size_t c = 0; c < inputs; c += kLanes) sum = vpadalq_u16(sum, vpaddlq_u8(vld1q_u8(indices + c)));
    return static_cast<int32_t>(vaddvq_u32(sum));
  }

  static void compute_tile(const Tile& tile, size_t rows, size_t blocks, uint8_t top);
};

// The sums of a few rows and 32 channels. kRun steps fit into a byte: 2 · 8 · 15 or 10 · 8 · 3.
template <size_t kRows, size_t kRun>
[[gnu::noinline]] void sum_panels(const Tile& tile, size_t first) {
  const uint8x16_t low = vdupq_n_u8(15);
  const uint8_t* weights = tile.weights + first;
  const uint8_t* tables = tile.tables;
  uint16x8_t sums[kRows][kPanels][2] = {};
  for (size_t step = 0; step < tile.steps;) {
    const size_t count = kRun == 2 ? kRun : lesser(tile.steps - step, kRun);  // the number of steps is even
    uint8x16_t bytes[kRows][kPanels] = {};
    for (size_t i = 0; i < count; ++i, ++step, weights += kBlock, tables += Neon::kStepBytes) {
#pragma GCC unroll 2
      for (size_t half = 0; half < 2; ++half) {
        uint8x16_t selected[kPanels];
#pragma GCC unroll 2
        for (size_t panel = 0; panel < kPanels; ++panel) {
          const uint8x16_t both = vld1q_u8(weights + panel * kLanes);
          selected[panel] = half == 0 ? vandq_u8(both, low) : vshrq_n_u8(both, 4);
        }
#pragma GCC unroll 4
        for (size_t r = 0; r < kRows; ++r) {
          const uint8x16_t table = vld1q_u8(tables + r * Neon::kSliceSteps * Neon::kStepBytes + half * kLanes);
#pragma GCC unroll 2
          for (size_t panel = 0; panel < kPanels; ++panel)
            bytes[r][panel] = vaddq_u8(bytes[r][panel], vqtbl1q_u8(table, selected[panel]));
        }
      }
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (size_t panel = 0; panel < kPanels; ++panel) {
        sums[r][panel][0] = vaddw_u8(sums[r][panel][0], vget_low_u8(bytes[r][panel]));
        sums[r][panel][1] = vaddw_high_u8(sums[r][panel][1], bytes[r][panel]);
      }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t panel = 0; panel < kPanels; ++panel) {
      uint16_t* const out = tile.sums + r * kBlock + first + panel * kLanes;
      vst1q_u16(out, sums[r][panel][0]);
      vst1q_u16(out + 8, sums[r][panel][1]);
    }
  }
}

template <size_t kRun>
constexpr void (*kSumPanels[Neon::kRows])(const Tile&, size_t) = {sum_panels<1, kRun>, sum_panels<2, kRun>,
                                                                  sum_panels<3, kRun>, sum_panels<4, kRun>};

void Neon::compute_tile(const Tile& tile, size_t rows, size_t /*blocks*/, uint8_t top) {
  for (size_t first = 0; first < kBlock; first += kPanels * kLanes)
    (top == 3 ? kSumPanels<10> : kSumPanels<2>)[rows - 1](tile, first);
}

// The indices of four values. The conversion truncates, and gives 0 below 0 and the greatest integer above all.
uint32x4_t indices_of(float32x4_t values, float32x4_t edge, float32x4_t rate, uint8_t top) {
  return vminq_u32(vcvtq_u32_f32(vmulq_f32(vsubq_f32(values, edge), rate)), vdupq_n_u32(top));
}

uint8x16_t narrow(uint32x4_t a, uint32x4_t b, uint32x4_t c, uint32x4_t d) {
  const uint16x8_t low = vmovn_high_u32(vmovn_u32(a), b);
  return vmovn_high_u16(vmovn_u16(low), vmovn_high_u32(vmovn_u32(c), d));
}

// Four values of a row, without residual.
template <bool kHasBefore>
float32x4_t values_of(const BlockSums& block, const LevelAffine& affine, size_t r, size_t i) {
  uint32x4_t sum = vmovl_u16(vld1_u16(block.sums + r * block.sums_stride + i));
  if (kHasBefore) {
    sum = vaddq_u32(sum, vreinterpretq_u32_s32(vld1q_s32(block.before + r * block.before_stride + i)));
  }
  const int32x4_t scaled = vreinterpretq_s32_u32(vshlq_u32(sum, vdupq_n_s32(block.shift)));
  const int32x4_t offset = vaddq_s32(vld1q_s32(block.offsets + i), vdupq_n_s32(block.of_rows[r]));
  const float32x4_t dot = vcvtq_f32_s32(vsubq_s32(scaled, offset));
  return vaddq_f32(vmulq_f32(vld1q_f32(affine.scale + block.channel + i), dot),
                   vld1q_f32(affine.bias + block.channel + i));
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
        float32x4_t value = values_of<kHasBefore>(block, affine, r, i);
        if (affine.residual != nullptr) value = vaddq_f32(value, vld1q_f32(affine.residual + at));
        vst1q_f32(values + at, value);
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
        return indices_of(values_of<kHasBefore>(block, affine, r, i), vld1q_f32(out.levels.edge + channel),
                          vld1q_f32(out.levels.rate + channel), out.levels.top);
      };
      uint8_t* const to = out.indices + (block.row + r) * out.stride + block.channel;
      for (size_t i = 0; i < kBlock; i += kLanes)
        vst1q_u8(to + i, narrow(four(i), four(i + 4), four(i + 8), four(i + 12)));
    }
  }
};

void linear_indices(const LevelProduct& product, const LevelAffine& affine, const IndexRows& out) {
  Multiplication<Neon, IndexOutput>(product, {affine, out}).run();
}

void linear_floats(const LevelProduct& product, const LevelAffine& affine, float* values) {
  Multiplication<Neon, FloatOutput>(product, {affine, values, padded(product.outputs)}).run();
}

// ---- attention

// With the level q of a query and the index u of a key, sum q · u differs from half the score only by a constant of the
// query, so the distance is the greatest of these sums minus the sum. With the weight a and the index u of a value,
// sum a · v = 2 · sum a · u - top · sum a.

constexpr size_t kQueries = 4;     // queries that share the loads of keys and values
constexpr size_t kMostKeys = 256;  // whose products of at most 225 fit into 16 bits

struct PackedHead {
  PackedHead(size_t key_count, size_t channels, void* memory)
      : keys(padded_keys(key_count)),
        key_bytes(static_cast<int8_t*>(memory)),
        scores(reinterpret_cast<int16_t*>(key_bytes + keys * channels)),
        weights(reinterpret_cast<uint8_t*>(scores + kQueries * keys)) {}

  static size_t padded_keys(size_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

  size_t keys;        // a multiple of 16
  int8_t* key_bytes;  // [16 keys][channel][key]
  int16_t* scores;    // rows of `keys`, one per query
  uint8_t* weights;   // the same
};

size_t head_bytes(size_t keys, size_t channels) {
  return PackedHead::padded_keys(keys) * (channels + kQueries * (sizeof(int16_t) + 1));
}

void pack_keys(const Head& head, const PackedHead& packed) {
  for (size_t key = 0; key < head.key_count; ++key) {
    int8_t* const out = packed.key_bytes + key / kLanes * kLanes * head.channels + key % kLanes;
    for (size_t c = 0; c < head.channels; ++c) out[c * kLanes] = static_cast<int8_t>(head.keys[key * head.stride + c]);
  }
}

// A sum is at most 64 · 15 · 15. Missing queries repeat the last one.
void find_scores(const Head& head, const PackedHead& packed, size_t first) {
  for (size_t key = 0; key < packed.keys; key += kLanes) {
    const int8_t* const keys = packed.key_bytes + key * head.channels;
    int16x8_t sums[kQueries][2] = {};
    for (size_t c = 0; c < head.channels; ++c) {
      const int8x16_t indices = vld1q_s8(keys + c * kLanes);
#pragma GCC unroll 4
      for (size_t q = 0; q < kQueries; ++q) {
        const uint8_t query = head.queries[lesser(first + q, head.query_count - 1) * head.stride + c];
        const int8x16_t level = vdupq_n_s8(static_cast<int8_t>(2 * query - head.top));
        sums[q][0] = vmlal_s8(sums[q][0], vget_low_s8(indices), vget_low_s8(level));
        sums[q][1] = vmlal_high_s8(sums[q][1], indices, level);
      }
    }
    for (size_t q = 0; q < kQueries; ++q) {
      vst1q_s16(packed.scores + q * packed.keys + key, sums[q][0]);
      vst1q_s16(packed.scores + q * packed.keys + key + 8, sums[q][1]);
    }
  }
}

// Replaces the scores of a query by weights, and returns their sum. Keys that are not there get weight 0.
int32_t weigh_keys(const Head& head, const PackedHead& packed, size_t query) {
  int16_t* const scores = packed.scores + query * packed.keys;
  for (size_t key = head.key_count; key < packed.keys; ++key) scores[key] = INT16_MIN;
  int16x8_t most = vld1q_s16(scores);
  for (size_t key = 8; key < packed.keys; key += 8) most = vmaxq_s16(most, vld1q_s16(scores + key));
  const int16x8_t greatest = vdupq_n_s16(vmaxvq_s16(most));
  uint32x4_t sum = vdupq_n_u32(0);
  for (size_t key = 0; key < packed.keys; key += 8) {
    const int16x8_t distance = vqsubq_s16(greatest, vld1q_s16(scores + key));
    uint16x8_t weight = vdupq_n_u16(0);
    for (size_t j = 0; j < head.top; ++j)  // a true comparison is -1
      weight = vsubq_u16(weight, vcleq_s16(distance, vdupq_n_s16(static_cast<int16_t>(head.thresholds[j]))));
    vst1_u8(packed.weights + query * packed.keys + key, vmovn_u16(weight));
    sum = vpadalq_u16(sum, weight);
  }
  return static_cast<int32_t>(vaddvq_u32(sum));
}

// The indices of 16 channels of the context of a query.
uint8x16_t contexts_of(const Head& head, const PackedHead& packed, size_t query, int32_t sum, size_t channel,
                       const float* edge, const float* rate) {
  uint32x4_t totals[4] = {};
  for (size_t start = 0; start < head.key_count; start += kMostKeys) {
    const size_t end = lesser(head.key_count, start + kMostKeys);
    uint16x8_t sums[2] = {};
    for (size_t key = start; key < end; ++key) {
      const uint8x16_t indices = vld1q_u8(head.values + key * head.stride + channel);
      const uint8x16_t weight = vdupq_n_u8(packed.weights[query * packed.keys + key]);
      sums[0] = vmlal_u8(sums[0], vget_low_u8(indices), vget_low_u8(weight));
      sums[1] = vmlal_high_u8(sums[1], indices, weight);
    }
    for (size_t i = 0; i < 4; ++i) {
      totals[i] = i % 2 == 0 ? vaddw_u16(totals[i], vget_low_u16(sums[i / 2])) : vaddw_high_u16(totals[i], sums[i / 2]);
    }
  }
  const float ratio = head.value_step / static_cast<float>(sum);
  uint32x4_t indices[4];
  for (size_t i = 0; i < 4; ++i) {
    const int32x4_t doubled = vreinterpretq_s32_u32(vshlq_n_u32(totals[i], 1));
    const float32x4_t total = vcvtq_f32_s32(vsubq_s32(doubled, vdupq_n_s32(head.top * sum)));
    indices[i] =
        indices_of(vmulq_n_f32(total, ratio), vld1q_f32(edge + 4 * i), vld1q_f32(rate + 4 * i), head.context.top);
  }
  return narrow(indices[0], indices[1], indices[2], indices[3]);
}

void attend(const Head& head) {
  const PackedHead packed(head.key_count, head.channels, head.scratch);
  float edge[kWordBits] = {}, rate[kWordBits] = {};
  std::memcpy(edge, head.context.edge, head.channels * sizeof(float));
  std::memcpy(rate, head.context.rate, head.channels * sizeof(float));
  pack_keys(head, packed);
  for (size_t first = 0; first < head.query_count; first += kQueries) {
    find_scores(head, packed, first);
    for (size_t q = 0; q < lesser(kQueries, head.query_count - first); ++q) {
      const int32_t sum = weigh_keys(head, packed, q);
      uint8_t contexts[kWordBits];
      for (size_t c = 0; c < head.channels; c += kLanes)
        vst1q_u8(contexts + c, contexts_of(head, packed, q, sum, c, edge + c, rate + c));
      std::memcpy(head.contexts + (first + q) * head.context_stride, contexts, head.channels);
    }
  }
}

}  // namespace

const LevelKernels kNeonLevels = {Lookup<Neon>::panel_bytes,
                                  Lookup<Neon>::pack_panels,
                                  Lookup<Neon>::scratch_bytes,
                                  linear_indices,
                                  linear_floats,
                                  head_bytes,
                                  attend};

}  // namespace bibert
