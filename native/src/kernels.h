// What an instruction set has to provide: one table of functions per file in src/kernels. reference.cpp says in the
// plainest code what each function computes; the others compute the same bits.
//
// Arrays over channels (scales, biases, thresholds, rows of floats and of bits) have padded(channels) entries. What
// lies behind the last channel is 0 in rows and has a neutral value in parameters: scale, bias, weight 0,
// most_mismatches -1, minimum +infinity. Under these rules a kernel may compute the padding like any other channel, and
// the padding of its output is 0 again.
#ifndef BIBERT_KERNELS_H
#define BIBERT_KERNELS_H

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "bits.h"

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "fast-math gives other bits and drops the checks for infinity and NaN; build without it"
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "packed files are little-endian and are read as they are; this machine is not"
#endif

namespace bibert {

// The most rows a kernel is given at once; callers cut longer blocks.
constexpr size_t kMaxRows = 64;

// Every row of activations against every output channel (the two products of Bi-Attention have this form too, see
// attention.h): mismatches(m, n) = popcount(activations[m] ^ weights[n]).
struct Product {
  const void* panels;  // weights, as pack_panels laid them out
  const void* tiles;   // activations, as pack_tiles laid them out
  size_t rows;         // of activations, at most kMaxRows
  size_t outputs;      // rows of the weights
  size_t inputs;       // bits of a row of either
};

// value(m, n) = (scale[n] · (base[n] - step · mismatches(m, n)) + bias[n]) + residual[m][n], the integer first, each
// product and sum rounded once. Inputs of ±1 have base = inputs, step = 2; inputs in {0, 1} have base =
// popcount(weights[n]), step = 1.
struct Affine {
  const float* scale;
  const float* bias;
  const int32_t* base;
  int32_t step;
  const float* residual;  // rows of padded(outputs); null for none
};

// LayerNorm with exact statistics (the numeric contract, rule 7), then the sign of what comes out.
struct LayerNorm {
  const float* input;  // rows of padded(channels)
  const float* weight;
  const float* bias;
  const float* minimum;  // bit = output ≥ minimum
  double eps;
  size_t rows;
  size_t channels;
  float* output;   // rows of padded(channels); may be the input
  uint64_t* bits;  // rows of words_for(channels)
};

constexpr double kGrid = 65536.0;          // statistics are integers in units of 2^-16
constexpr float kLayerNormLimit = 512.0F;  // so that 4,096 squares fit in 64 bits

// What a row is centred on and multiplied by.
struct Standard {
  double centre;
  double inverse;
};

// From the sums of a row's values and of their squares, in units of the grid. Static, because what files compiled for
// different CPUs share is compiled for one of them.
static inline Standard standard_of(int64_t sum, int64_t sum_of_squares, size_t channels, double eps) {
  const double count = static_cast<double>(channels);
  const double mean = static_cast<double>(sum) / count;
  const double square_of_mean = mean * mean;
  const double difference = static_cast<double>(sum_of_squares) / count - square_of_mean;
  const double variance = difference > 0.0 ? difference : 0.0;
  return {mean / kGrid, 1.0 / std::sqrt(variance / (kGrid * kGrid) + eps)};
}

struct Kernels {
  const char* name;

  // Bytes of, and the layout this instruction set wants for, a matrix of weights and a block of activations. Both
  // start from plain rows of words_for(inputs) words.
  size_t (*panel_bytes)(size_t outputs, size_t inputs);
  void (*pack_panels)(const uint64_t* bits, size_t outputs, size_t inputs, void* panels);
  size_t (*tile_bytes)(size_t rows, size_t inputs);
  void (*pack_tiles)(const uint64_t* bits, size_t rows, size_t inputs, void* tiles);

  // bits[m] gets bit n iff mismatches(m, n) ≤ most_mismatches[n]; rows of words_for(outputs).
  void (*linear_bits)(const Product& product, const int32_t* most_mismatches, uint64_t* bits);
  // values are rows of padded(outputs) and may be the residual.
  void (*linear_floats)(const Product& product, const Affine& affine, float* values);
  // False if an input is not finite or not inside ±kLayerNormLimit; the output then has no meaning.
  bool (*layer_norm)(const LayerNorm& norm);
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

}  // namespace bibert

#endif
