// Attention with 2 or 4 bits in registers of 256 bits, for AVX2 and for AVX-512 with VNNI; only the multiplication and
// the thresholds differ. Everything is static, since each file compiles it for its own instruction set.
//
// Products are of an unsigned byte and a signed one. Scores: with the level q of a query and the index u of a key,
// sum q · u differs from half the score only by a constant of the query, so the distance is the greatest of these sums
// minus the sum. Contexts: with the weight a and the index u of a value, sum a · v = 2 · sum a · u - top · sum a.
#ifndef BIBERT_X86_ATTENTION_H
#define BIBERT_X86_ATTENTION_H

#include <immintrin.h>

#include <cstring>

#include "levels.h"

namespace bibert {
namespace {

constexpr size_t kHeadBlock = 32;   // keys or channels that are packed together
constexpr size_t kHeadQueries = 2;  // queries that share the loads of keys and values
constexpr size_t kHeadRegisters = 4;
constexpr size_t kMostChannels = 64;

#if defined(__AVX512VNNI__)
// Adds the products of four bytes to each 32-bit lane. In assembly, because GCC 12 copies `sum` before and after its
// builtin function: with 128 tokens, 6 x 384 and 2 bits, a forward pass is 5 % faster so.
constexpr size_t kMostQuads = ~size_t{0};
inline __m256i add_products(__m256i sum, __m256i bytes, __m256i levels) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(bytes), "v"(levels));
  return sum;
}
inline __m256i lanes_of(__m256i sum) { return sum; }

// The number of thresholds that are not below each distance, for 32 keys: a binary search in a table that `vpermw`
// reads. Its entry j is the threshold of weight j.
struct Weighting {
  explicit Weighting(const Head& head) : half(static_cast<int16_t>((head.top + 1) / 2)) {
    alignas(64) int16_t of_weight[32] = {};
    for (size_t j = 1; j <= head.top; ++j) of_weight[j] = static_cast<int16_t>(head.thresholds[j - 1]);
    thresholds = _mm512_load_si512(of_weight);
  }

  void weigh(const int16_t* scores, int16_t greatest, uint8_t* weights) const {
    const __m512i distance = _mm512_subs_epi16(_mm512_set1_epi16(greatest), _mm512_loadu_si512(scores));
    __m512i weight = _mm512_setzero_si512();
    for (int16_t step = half; step > 0; step = static_cast<int16_t>(step / 2)) {
      const __m512i more = _mm512_add_epi16(weight, _mm512_set1_epi16(step));
      const __mmask32 reached = _mm512_cmple_epi16_mask(distance, _mm512_permutexvar_epi16(more, thresholds));
      weight = _mm512_mask_mov_epi16(weight, reached, more);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights), _mm512_cvtepi16_epi8(weight));
  }

  int16_t half;
  __m512i thresholds;
};
#else
// Adds the products of four bytes to two 16-bit lanes. Each grows by at most 450, so 72 additions fit. The empty assembly
// keeps `sum` in its register, which GCC 12 otherwise copies and spills: with 128 tokens, 6 x 384 and 2 bits, a forward
// pass is 4 % faster so.
constexpr size_t kMostQuads = 64;
inline __m256i add_products(__m256i sum, __m256i bytes, __m256i levels) {
  sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(bytes, levels));
  __asm__ volatile("" : "+x"(sum));
  return sum;
}
inline __m256i lanes_of(__m256i sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }

// The number of thresholds that are not below each distance, for 32 keys.
struct Weighting {
  explicit Weighting(const Head& head) : top(head.top) {
    for (size_t j = 0; j < top; ++j) thresholds[j] = _mm256_set1_epi16(static_cast<int16_t>(head.thresholds[j]));
  }

  __m256i weights16(const int16_t* scores, __m256i greatest) const {
    const __m256i from = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scores));
    const __m256i distance = _mm256_subs_epi16(greatest, from);
    __m256i weight = _mm256_set1_epi16(static_cast<int16_t>(top));
    for (size_t j = 0; j < top; ++j) weight = _mm256_add_epi16(weight, _mm256_cmpgt_epi16(distance, thresholds[j]));
    return weight;
  }

  void weigh(const int16_t* scores, int16_t greatest, uint8_t* weights) const {
    const __m256i most = _mm256_set1_epi16(greatest);
    const __m256i bytes = _mm256_packus_epi16(weights16(scores, most), weights16(scores + 16, most));
    const __m256i in_order = _mm256_permute4x64_epi64(bytes, 0xD8);  // packus works on each half of 128 bits
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights), in_order);
  }

  size_t top;
  __m256i thresholds[15];
};
#endif

size_t round_up(size_t count, size_t multiple) { return (count + multiple - 1) / multiple * multiple; }

__m256i load_halves(const uint8_t* low, const uint8_t* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low))),
                                 _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
}

// A head in scratch memory, and the sizes of its parts.
struct PackedHead {
  PackedHead(size_t key_count, size_t channels, void* memory)
      : keys(round_up(key_count, kHeadBlock)),
        parts(parts_of(channels)),
        key_bytes(static_cast<uint8_t*>(memory)),
        value_bytes(key_bytes + keys * parts * kHeadBlock),
        scores(reinterpret_cast<int16_t*>(value_bytes + keys * parts * kHeadBlock)),
        weights(reinterpret_cast<uint8_t*>(scores + kHeadQueries * keys)) {}

  static size_t parts_of(size_t channels) { return round_up(channels, kHeadBlock) / kHeadBlock; }

  size_t keys;           // a multiple of 32
  size_t parts;          // of 32 channels
  uint8_t* key_bytes;    // [32 keys][4 channels][register][8 keys][channel]
  uint8_t* value_bytes;  // [4 keys][part][register][8 channels][key]
  int16_t* scores;       // rows of `keys`, one per query
  uint8_t* weights;      // the same
};

size_t head_bytes(size_t keys, size_t channels) {
  const size_t key_bytes = 2 * PackedHead::parts_of(channels) * kHeadBlock + kHeadQueries * (sizeof(int16_t) + 1);
  return round_up(keys, kHeadBlock) * key_bytes;
}

// Register 2j has keys 16j to 16j + 3 and 16j + 8 to 16j + 11, register 2j + 1 the others of these 16, so that packing
// pairs of registers to 16 bits restores the order. A key that is not there is any other key; its score is replaced.
void pack_keys(const Head& head, const PackedHead& packed) {
  const size_t quads = packed.parts * kHeadBlock / 4;
  for (size_t first = 0; first < packed.keys; first += kHeadBlock) {
    for (size_t reg = 0; reg < kHeadRegisters; ++reg) {
      const size_t start = first + reg / 2 * 16 + reg % 2 * 4;
      const auto row = [&](size_t i) { return head.keys + lesser(start + i, head.key_count - 1) * head.stride; };
      uint8_t* out = packed.key_bytes + first * quads * 4 + reg * 32;
      for (size_t c = 0; c < head.channels; c += 16) {
        __m256i rows[4];
        for (size_t i = 0; i < 4; ++i) rows[i] = load_halves(row(i) + c, row(i + 8) + c);
        const __m256i two[4] = {_mm256_unpacklo_epi32(rows[0], rows[1]), _mm256_unpacklo_epi32(rows[2], rows[3]),
                                _mm256_unpackhi_epi32(rows[0], rows[1]), _mm256_unpackhi_epi32(rows[2], rows[3])};
        const __m256i four[4] = {_mm256_unpacklo_epi64(two[0], two[1]), _mm256_unpackhi_epi64(two[0], two[1]),
                                 _mm256_unpacklo_epi64(two[2], two[3]), _mm256_unpackhi_epi64(two[2], two[3])};
        for (const __m256i& quad : four) {
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), quad);
          out += kHeadRegisters * 32;
        }
      }
    }
  }
}

// Interleaves four keys. Register r has channels 4r to 4r + 3 and 16 + 4r to 16 + 4r + 3, which packing to bytes
// undoes.
void pack_values(const Head& head, const PackedHead& packed) {
  __m256i* out = reinterpret_cast<__m256i*>(packed.value_bytes);
  for (size_t key = 0; key < head.key_count; key += 4) {
    for (size_t part = 0; part < packed.parts; ++part, out += kHeadRegisters) {
      const auto row = [&](size_t i) {
        const uint8_t* const from = head.values + lesser(key + i, head.key_count - 1) * head.stride;
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + part * kHeadBlock));
      };
      const __m256i rows[4] = {row(0), row(1), row(2), row(3)};
      const __m256i low[2] = {_mm256_unpacklo_epi8(rows[0], rows[1]), _mm256_unpacklo_epi8(rows[2], rows[3])};
      const __m256i high[2] = {_mm256_unpackhi_epi8(rows[0], rows[1]), _mm256_unpackhi_epi8(rows[2], rows[3])};
      _mm256_storeu_si256(out, _mm256_unpacklo_epi16(low[0], low[1]));
      _mm256_storeu_si256(out + 1, _mm256_unpackhi_epi16(low[0], low[1]));
      _mm256_storeu_si256(out + 2, _mm256_unpacklo_epi16(high[0], high[1]));
      _mm256_storeu_si256(out + 3, _mm256_unpackhi_epi16(high[0], high[1]));
    }
  }
}

// Signed levels of a few queries, 0 past the last channel.
struct QueryLevels {
  QueryLevels(const Head& head, size_t first, size_t count) {
    std::memset(of, 0, sizeof(of));
    for (size_t q = 0; q < count; ++q) {
      const uint8_t* const from = head.queries + (first + q) * head.stride;
      for (size_t c = 0; c < head.channels; ++c) of[q][c] = static_cast<int8_t>(2 * from[c] - head.top);
    }
  }

  alignas(32) int8_t of[kHeadQueries][kMostChannels];
};

inline __m256i broadcast_quad(const void* from) {
  int32_t quad;
  std::memcpy(&quad, from, sizeof(quad));
  return _mm256_set1_epi32(quad);
}

template <size_t kQueries>
void find_scores(const Head& head, const PackedHead& packed, const QueryLevels& queries) {
  const size_t quads = packed.parts * kHeadBlock / 4;
  const size_t used = (head.channels + 3) / 4;
  for (size_t first = 0; first < packed.keys; first += kHeadBlock) {
    const __m256i* keys = reinterpret_cast<const __m256i*>(packed.key_bytes + first * quads * 4);
    __m256i sums[kQueries][kHeadRegisters] = {};
    for (size_t quad = 0; quad < used; ++quad, keys += kHeadRegisters) {
#pragma GCC unroll 2
      for (size_t q = 0; q < kQueries; ++q) {
        const __m256i levels = broadcast_quad(queries.of[q] + 4 * quad);
#pragma GCC unroll 4
        for (size_t reg = 0; reg < kHeadRegisters; ++reg)
          sums[q][reg] = add_products(sums[q][reg], _mm256_loadu_si256(keys + reg), levels);
      }
    }
    for (size_t q = 0; q < kQueries; ++q) {
      __m256i* const out = reinterpret_cast<__m256i*>(packed.scores + q * packed.keys + first);
      _mm256_storeu_si256(out, _mm256_packs_epi32(lanes_of(sums[q][0]), lanes_of(sums[q][1])));
      _mm256_storeu_si256(out + 1, _mm256_packs_epi32(lanes_of(sums[q][2]), lanes_of(sums[q][3])));
    }
  }
}

int16_t greatest_of(const int16_t* scores, size_t count) {
  __m256i most = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scores));
  for (size_t i = 16; i < count; i += 16)
    most = _mm256_max_epi16(most, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scores + i)));
  __m128i eight = _mm_max_epi16(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  eight = _mm_max_epi16(eight, _mm_srli_si128(eight, 8));
  eight = _mm_max_epi16(eight, _mm_srli_si128(eight, 4));
  eight = _mm_max_epi16(eight, _mm_srli_si128(eight, 2));
  return static_cast<int16_t>(_mm_extract_epi16(eight, 0));
}

// Replaces the scores of a query by weights, and returns their sum. Keys that are not there get weight 0.
int32_t weigh_keys(const Head& head, const PackedHead& packed, const Weighting& weighting, size_t query) {
  int16_t* const scores = packed.scores + query * packed.keys;
  uint8_t* const weights = packed.weights + query * packed.keys;
  for (size_t key = head.key_count; key < packed.keys; ++key) scores[key] = INT16_MIN;
  const int16_t greatest = greatest_of(scores, packed.keys);
  __m256i sum = _mm256_setzero_si256();
  for (size_t key = 0; key < packed.keys; key += kHeadBlock) {
    weighting.weigh(scores + key, greatest, weights + key);
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + key));
    sum = _mm256_add_epi64(sum, _mm256_sad_epu8(bytes, _mm256_setzero_si256()));
  }
  const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  return static_cast<int32_t>(_mm_cvtsi128_si64(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two))));
}

// Edge and rate of the contexts in the order of the registers of a part.
struct ContextLevels {
  explicit ContextLevels(const Head& head) : top(_mm256_set1_ps(head.context.top)) {
    float padded_edge[kMostChannels] = {}, padded_rate[kMostChannels] = {};
    std::memcpy(padded_edge, head.context.edge, head.channels * sizeof(float));
    std::memcpy(padded_rate, head.context.rate, head.channels * sizeof(float));
    for (size_t i = 0; i < 2 * kHeadRegisters; ++i) {
      const size_t c = i / kHeadRegisters * kHeadBlock + i % kHeadRegisters * 4;
      edge[i] = _mm256_set_m128(_mm_loadu_ps(padded_edge + c + 16), _mm_loadu_ps(padded_edge + c));
      rate[i] = _mm256_set_m128(_mm_loadu_ps(padded_rate + c + 16), _mm_loadu_ps(padded_rate + c));
    }
  }

  // Truncation equals floor, except below 0, where the index is 0 anyway and an unsigned pack sets it.
  __m256i index_of(__m256 value, size_t i) const {
    const __m256 position = _mm256_mul_ps(_mm256_sub_ps(value, edge[i]), rate[i]);
    return _mm256_cvttps_epi32(_mm256_min_ps(position, top));
  }

  __m256 edge[2 * kHeadRegisters], rate[2 * kHeadRegisters], top;
};

// The sums of weight · index of a few queries and one part of the channels.
template <size_t kQueries>
void sum_values(const PackedHead& packed, size_t quads, size_t part, __m256i (&totals)[kQueries][kHeadRegisters]) {
  const __m256i* values = reinterpret_cast<const __m256i*>(packed.value_bytes) + part * kHeadRegisters;
  for (size_t start = 0; start < quads;) {
    const size_t end = start + lesser(quads - start, kMostQuads);
    __m256i sums[kQueries][kHeadRegisters] = {};
    for (; start < end; ++start, values += packed.parts * kHeadRegisters) {
#pragma GCC unroll 2
      for (size_t q = 0; q < kQueries; ++q) {
        const __m256i weights = broadcast_quad(packed.weights + q * packed.keys + 4 * start);
#pragma GCC unroll 4
        for (size_t reg = 0; reg < kHeadRegisters; ++reg)
          sums[q][reg] = add_products(sums[q][reg], _mm256_loadu_si256(values + reg), weights);
      }
    }
    for (size_t q = 0; q < kQueries; ++q)
      for (size_t reg = 0; reg < kHeadRegisters; ++reg)
        totals[q][reg] = _mm256_add_epi32(totals[q][reg], lanes_of(sums[q][reg]));
  }
}

template <size_t kQueries>
void attend_queries(const Head& head, const PackedHead& packed, const Weighting& weighting, const ContextLevels& levels,
                    size_t first) {
  const QueryLevels queries(head, first, kQueries);
  find_scores<kQueries>(head, packed, queries);
  __m256i offset[kQueries];
  __m256 ratio[kQueries];
  for (size_t q = 0; q < kQueries; ++q) {
    const int32_t sum = weigh_keys(head, packed, weighting, q);
    offset[q] = _mm256_set1_epi32(head.top * sum);
    ratio[q] = _mm256_set1_ps(head.value_step / static_cast<float>(sum));
  }
  for (size_t part = 0; part < packed.parts; ++part) {
    __m256i totals[kQueries][kHeadRegisters] = {};
    sum_values<kQueries>(packed, (head.key_count + 3) / 4, part, totals);
    for (size_t q = 0; q < kQueries; ++q) {
      const auto index = [&](size_t reg) {
        const __m256i signed_sum = _mm256_sub_epi32(_mm256_slli_epi32(totals[q][reg], 1), offset[q]);
        return levels.index_of(_mm256_mul_ps(_mm256_cvtepi32_ps(signed_sum), ratio[q]), part * kHeadRegisters + reg);
      };
      const __m256i low = _mm256_packs_epi32(index(0), index(1));
      const __m256i bytes = _mm256_packus_epi16(low, _mm256_packs_epi32(index(2), index(3)));
      uint8_t* const out = head.contexts + (first + q) * head.context_stride + part * kHeadBlock;
      const size_t count = head.channels - part * kHeadBlock;
      if (count >= kHeadBlock) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes);
      } else {
        alignas(32) uint8_t all[kHeadBlock];
        _mm256_store_si256(reinterpret_cast<__m256i*>(all), bytes);
        std::memcpy(out, all, count);
      }
    }
  }
}

void attend(const Head& head) {
  const PackedHead packed(head.key_count, head.channels, head.scratch);
  const Weighting weighting(head);
  const ContextLevels levels(head);
  pack_keys(head, packed);
  pack_values(head, packed);
  size_t query = 0;
  for (; query + kHeadQueries <= head.query_count; query += kHeadQueries)
    attend_queries<kHeadQueries>(head, packed, weighting, levels, query);
  if (query < head.query_count) attend_queries<1>(head, packed, weighting, levels, query);
}

}  // namespace
}  // namespace bibert

#endif
