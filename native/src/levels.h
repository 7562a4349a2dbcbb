// What an instruction set has to provide for models with 2 or 4 bits per activation (numeric contract, rules 9 to 11).
// An activation is stored as its index u, one byte from 0 to `top`. At signed sites it stands for the odd level
// 2u - top, at the unsigned site (the input of the second FFN layer) for u itself.
#ifndef BIBERT_LEVELS_H
#define BIBERT_LEVELS_H

#include "kernels.h"

namespace bibert {

// dot(m, n) = sum of ±levels of row m, with the signs of output channel n: an exact integer of at most 18 bits.
struct LevelProduct {
  const void* panels;      // weights in the layout of pack_panels
  const uint8_t* indices;  // rows of padded(inputs)
  size_t rows;             // at most kMaxRows
  size_t outputs;
  size_t inputs;
  uint8_t top;
  bool is_signed;
  void* scratch;  // scratch_bytes(outputs, inputs), aligned to kAlignment
};

// value(m, n) = (scale[n] · dot(m, n) + bias[n]) + residual[m][n], each operation rounded once.
struct LevelAffine {
  const float* scale;
  const float* bias;
  const float* residual;  // rows of padded(outputs); null for none
};

// Indices of the levels of value(m, n), in rows of `stride` bytes, of which padded(outputs) are written.
struct IndexRows {
  Levels levels;
  uint8_t* indices;
  size_t stride;
};

// One head of a sequence (rule 11). With the levels q, k, v of queries, keys and values:
//   score(i, j)   = sum over the channels of q[i] · k[j]
//   distance      = (greatest score of query i - score(i, j)) / 2
//   weight(i, j)  = the number of thresholds ≥ distance
//   context[i][c] = float(sum over j of weight · v[j][c]) · (value_step / float(sum over j of weight))
// The output is the index of the context.
struct Head {
  const uint8_t* queries;  // rows of `stride` bytes, like keys and values
  const uint8_t* keys;
  const uint8_t* values;
  size_t stride;
  size_t query_count;
  size_t key_count;           // at most 8192
  size_t channels;            // at most 64
  uint8_t top;                // of queries, keys, values and weights
  const int32_t* thresholds;  // `top` of them, at most channels · top², none greater than the one before
  float value_step;
  Levels context;     // without padding
  uint8_t* contexts;  // rows of context_stride bytes, of which only `channels` are written
  size_t context_stride;
  void* scratch;  // head_bytes(key_count, channels), aligned to kAlignment
};

struct LevelKernels {
  // The layout of a matrix of weights, and its size in bytes. Channels come in blocks of 64, so those from 64 · b on
  // start after panel_bytes(64 · b, inputs). `centre` is `top` if the inputs of the layer are signed, else 0.
  size_t (*panel_bytes)(size_t outputs, size_t inputs);
  void (*pack_panels)(const uint64_t* bits, size_t outputs, size_t inputs, int32_t centre, void* panels);

  size_t (*scratch_bytes)(size_t outputs, size_t inputs);
  void (*linear_indices)(const LevelProduct& product, const LevelAffine& affine, const IndexRows& out);
  // `values` has rows of padded(outputs) and may be the residual.
  void (*linear_floats)(const LevelProduct& product, const LevelAffine& affine, float* values);

  size_t (*head_bytes)(size_t keys, size_t channels);
  void (*attend)(const Head& head);
};

extern const LevelKernels kReferenceLevels;
#if defined(BIBERT_HAS_AVX2)
extern const LevelKernels kAvx2Levels;
#endif
#if defined(BIBERT_HAS_AVX512)
extern const LevelKernels kAvx512Levels;
#endif
#if defined(BIBERT_HAS_NEON)
extern const LevelKernels kNeonLevels;
#endif
#if defined(BIBERT_HAS_SIMD128)
extern const LevelKernels kSimd128Levels;
#endif

}  // namespace bibert

#endif
