// What an instruction set has to provide: one table of functions per file in src/kernels. reference.cpp defines in the
// simplest code what each function computes; the other files compute the same bits.
//
// Arrays over channels (scales, biases, thresholds, rows of floats and of bits) have padded(channels) entries. Past the
// last channel, rows hold 0 and parameters a neutral value: scale, bias and weight 0, most_mismatches -1, minimum
// +infinity, edge +infinity, rate 1. So a kernel may process the padding like any other channel, and the padding of its
// output is 0 again.
#ifndef BIBERT_KERNELS_H
#define BIBERT_KERNELS_H

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "bits.h"

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "fast-math changes the results and removes the checks for infinity and NaN; build without it"
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "packed files are little-endian and are used without conversion; this machine is big-endian"
#endif

namespace bibert {

// The most rows per call of a kernel; callers split larger blocks.
constexpr size_t kMaxRows = 64;

// Every row of activations times every output channel: mismatches(m, n) = popcount(activations[m] ^ weights[n]).
// The two products of Bi-Attention have this form too, see attention.h.
struct Product {
  const void* panels;  // weights in the layout of pack_panels
  const void* tiles;   // activations in the layout of pack_tiles
  size_t rows;         // rows of the activations, at most kMaxRows
  size_t outputs;      // rows of the weights
  size_t inputs;       // bits per row of both
};

// value(m, n) = (scale[n] · (base[n] - step · mismatches(m, n)) + bias[n]) + residual[m][n]. The parenthesis with base
// is an integer; each float product and sum is rounded once. Inputs of ±1 have base = inputs and step = 2; inputs in
// {0, 1} have base = popcount(weights[n]) and step = 1.
struct Affine {
  const float* scale;
  const float* bias;
  const int32_t* base;
  int32_t step;
  const float* residual;  // rows of padded(outputs); null for none
};

// The levels of a site with 2 or 4 bits (numeric contract, rule 9): the index of a value x of channel c is
// clamp(floor((x - edge[c]) · rate[c]), 0, top), with subtraction and product each rounded once.
struct Levels {
  const float* edge;
  const float* rate;
  uint8_t top;  // 3 or 15
};

static inline uint8_t index_of(float value, const Levels& levels, size_t channel) {
  const float above_edge = value - levels.edge[channel];
  const float position = above_edge * levels.rate[channel];
  if (!(position >= 1.0F)) return 0;
  return position < static_cast<float>(levels.top) ? static_cast<uint8_t>(position) : levels.top;
}

// LayerNorm with exact statistics (numeric contract, rule 7), and the sign or the index of its output.
struct LayerNorm {
  const float* input;  // rows of padded(channels)
  const float* weight;
  const float* bias;
  const float* minimum;  // bit = output ≥ minimum
  double eps;
  size_t rows;
  size_t channels;
  float* output;     // rows of padded(channels); may be the input
  uint64_t* bits;    // rows of words_for(channels); null if the output has levels instead, then minimum is not used
  Levels levels;     // not used if bits is not null
  uint8_t* indices;  // rows of padded(channels)
};

// The embedding of a token: output = (±scale, by the bits of the word, + token_type) + position, rounded in this order.
struct Embedding {
  const uint64_t* bits;
  float scale;
  const float* token_type;
  const float* position;
  size_t channels;
};

// Statistics are integers in units of 2^-16, and a value inside the limit is one of 32 bits. The squares of a row that
// is shorter than the limit fit in 64 bits. Files made by bibert pack have only such rows, for every text, so with them
// no kernel rejects a value; with others, squares may wrap around, in the same way on every instruction set.
constexpr double kGrid = 65536.0;
constexpr float kLayerNormLimit = 32768.0F;

// LayerNorm subtracts `centre` from a row and multiplies by `inverse`.
struct Standard {
  double centre;
  double inverse;
};

// From the sums of a row's values and of their squares, in units of the grid.
static inline Standard standard_of(int64_t sum, int64_t sum_of_squares, size_t channels, double eps) {
  const double count = static_cast<double>(channels);
  const double mean = static_cast<double>(sum) / count;
  const double square_of_mean = mean * mean;
  const double difference = static_cast<double>(sum_of_squares) / count - square_of_mean;
  const double variance = difference > 0.0 ? difference : 0.0;
  return {mean / kGrid, 1.0 / std::sqrt(variance / (kGrid * kGrid) + eps)};
}

// For the kernels, which must not use std::min: it is an inline function (see bits.h).
static constexpr size_t lesser(size_t a, size_t b) { return a < b ? a : b; }

struct LevelKernels;  // levels.h

struct Kernels {
  const char* name;
  const LevelKernels* levels;

  // The layout of this instruction set for a matrix of weights (panels) and a block of activations (tiles), and its
  // size in bytes. Both are made from plain rows of words_for(inputs) words.
  size_t (*panel_bytes)(size_t outputs, size_t inputs);
  void (*pack_panels)(const uint64_t* bits, size_t outputs, size_t inputs, void* panels);
  size_t (*tile_bytes)(size_t rows, size_t inputs);
  void (*pack_tiles)(const uint64_t* bits, size_t rows, size_t inputs, void* tiles);

  // Sets bit n of bits[m] iff mismatches(m, n) ≤ most_mismatches[n]; rows of words_for(outputs).
  void (*linear_bits)(const Product& product, const int32_t* most_mismatches, uint64_t* bits);
  // `values` has rows of padded(outputs) and may be the residual.
  void (*linear_floats)(const Product& product, const Affine& affine, float* values);
  // False if an input is not finite or not inside ±kLayerNormLimit; the output is then meaningless.
  bool (*layer_norm)(const LayerNorm& norm);
  // `row` has padded(channels) entries.
  void (*embed)(const Embedding& embedding, float* row);
  // Transposes 64 words of 64 bits: bit i of word j becomes bit j of word i. Adds the ones of each new word to `ones`.
  void (*transpose)(uint64_t* words, int32_t* ones);
};

extern const Kernels kReference;
#if defined(BIBERT_HAS_AVX2)
extern const Kernels kAvx2;
#endif
#if defined(BIBERT_HAS_AVX512)
extern const Kernels kAvx512;
#endif
#if defined(BIBERT_HAS_NEON)
extern const Kernels kNeon;
#endif
#if defined(BIBERT_HAS_SIMD128)
extern const Kernels kSimd128;
#endif

}  // namespace bibert

#endif
