// The kernels in the simplest code: the specification that every instruction set is tested against. Never optimize it.
#include <cmath>
#include <cstring>

#include "levels.h"
#include "plain.h"

namespace bibert {
namespace {

int32_t popcount(uint64_t word) { return __builtin_popcountll(word); }

size_t row_bytes(size_t rows, size_t inputs) { return rows * words_for(inputs) * sizeof(uint64_t); }

void copy_rows(const uint64_t* bits, size_t rows, size_t inputs, void* out) {
  std::memcpy(out, bits, row_bytes(rows, inputs));
}

int32_t mismatches(const Product& product, size_t row, size_t output) {
  const size_t words = words_for(product.inputs);
  const uint64_t* activation = static_cast<const uint64_t*>(product.tiles) + row * words;
  const uint64_t* weight = static_cast<const uint64_t*>(product.panels) + output * words;
  int32_t count = 0;
  for (size_t word = 0; word < words; ++word) count += popcount(activation[word] ^ weight[word]);
  return count;
}

void linear_bits(const Product& product, const int32_t* most_mismatches, uint64_t* bits) {
  const size_t words = words_for(product.outputs);
  for (size_t row = 0; row < product.rows; ++row) {
    std::memset(bits + row * words, 0, words * sizeof(uint64_t));
    for (size_t n = 0; n < product.outputs; ++n) {
      const uint64_t bit = mismatches(product, row, n) <= most_mismatches[n];
      bits[row * words + n / kWordBits] |= bit << (n % kWordBits);
    }
  }
}

void linear_floats(const Product& product, const Affine& affine, float* values) {
  const size_t stride = padded(product.outputs);
  for (size_t row = 0; row < product.rows; ++row) {
    for (size_t n = 0; n < product.outputs; ++n) {
      const int32_t dot = affine.base[n] - affine.step * mismatches(product, row, n);
      const float scaled = affine.scale[n] * static_cast<float>(dot);
      float value = scaled + affine.bias[n];
      if (affine.residual != nullptr) value = value + affine.residual[row * stride + n];
      values[row * stride + n] = value;
    }
    for (size_t n = product.outputs; n < stride; ++n) values[row * stride + n] = 0.0F;
  }
}

// Every step has a name: one operation, one rounding.
bool layer_norm_row(const LayerNorm& norm, const float* input, float* output) {
  int64_t sum = 0;
  uint64_t sum_of_squares = 0;
  for (size_t c = 0; c < norm.channels; ++c) {
    if (!(std::fabs(input[c]) < kLayerNormLimit)) return false;
    const int64_t grid = std::llrint(static_cast<double>(input[c]) * kGrid);
    sum += grid;
    sum_of_squares += static_cast<uint64_t>(grid * grid);
  }
  const Standard standard = standard_of(sum, static_cast<int64_t>(sum_of_squares), norm.channels, norm.eps);
  for (size_t c = 0; c < norm.channels; ++c) {
    const double centred = static_cast<double>(input[c]) - standard.centre;
    const double normed = centred * standard.inverse;
    const double weighted = normed * static_cast<double>(norm.weight[c]);
    output[c] = static_cast<float>(weighted + static_cast<double>(norm.bias[c]));
  }
  for (size_t c = norm.channels; c < padded(norm.channels); ++c) output[c] = 0.0F;
  return true;
}

void take_bits(const LayerNorm& norm, const float* output, uint64_t* bits) {
  std::memset(bits, 0, words_for(norm.channels) * sizeof(uint64_t));
  for (size_t c = 0; c < norm.channels; ++c) {
    const uint64_t bit = output[c] >= norm.minimum[c];
    bits[c / kWordBits] |= bit << (c % kWordBits);
  }
}

void take_indices(const LayerNorm& norm, const float* output, uint8_t* indices) {
  std::memset(indices, 0, padded(norm.channels));
  for (size_t c = 0; c < norm.channels; ++c) indices[c] = index_of(output[c], norm.levels, c);
}

bool layer_norm(const LayerNorm& norm) {
  const size_t stride = padded(norm.channels);
  for (size_t row = 0; row < norm.rows; ++row) {
    float* const output = norm.output + row * stride;
    if (!layer_norm_row(norm, norm.input + row * stride, output)) return false;
    if (norm.bits != nullptr) {
      take_bits(norm, output, norm.bits + row * words_for(norm.channels));
    } else {
      take_indices(norm, output, norm.indices + row * stride);
    }
  }
  return true;
}

}  // namespace

const Kernels kReference = {"reference", &kReferenceLevels, row_bytes,  copy_rows, row_bytes, copy_rows,
                            linear_bits, linear_floats,     layer_norm, embed,     transpose};

}  // namespace bibert
