// The kernels for 2 and 4 bits in the simplest code: the specification that every instruction set is tested against.
// Never optimize it.
#include <cstring>

#include "levels.h"

namespace bibert {
namespace {

size_t panel_bytes(size_t outputs, size_t inputs) { return padded(outputs) * words_for(inputs) * sizeof(uint64_t); }

void pack_panels(const uint64_t* bits, size_t outputs, size_t inputs, int32_t /*centre*/, void* panels) {
  const size_t bytes = outputs * words_for(inputs) * sizeof(uint64_t);
  std::memcpy(panels, bits, bytes);
  std::memset(static_cast<uint8_t*>(panels) + bytes, 0, panel_bytes(outputs, inputs) - bytes);
}

size_t scratch_bytes(size_t /*outputs*/, size_t /*inputs*/) { return 0; }

int32_t level_of(uint8_t index, uint8_t top, bool is_signed) { return is_signed ? 2 * index - top : index; }

float value_of(const LevelProduct& product, const LevelAffine& affine, size_t row, size_t output) {
  const uint64_t* weights = static_cast<const uint64_t*>(product.panels) + output * words_for(product.inputs);
  const uint8_t* indices = product.indices + row * padded(product.inputs);
  int32_t dot = 0;
  for (size_t c = 0; c < product.inputs; ++c) {
    const int32_t level = level_of(indices[c], product.top, product.is_signed);
    dot += (weights[c / kWordBits] >> (c % kWordBits) & 1) != 0 ? level : -level;
  }
  const float scaled = affine.scale[output] * static_cast<float>(dot);
  const float value = scaled + affine.bias[output];
  if (affine.residual == nullptr) return value;
  return value + affine.residual[row * padded(product.outputs) + output];
}

void linear_indices(const LevelProduct& product, const LevelAffine& affine, const IndexRows& out) {
  for (size_t row = 0; row < product.rows; ++row) {
    uint8_t* indices = out.indices + row * out.stride;
    std::memset(indices, 0, padded(product.outputs));
    for (size_t n = 0; n < product.outputs; ++n)
      indices[n] = index_of(value_of(product, affine, row, n), out.levels, n);
  }
}

void linear_floats(const LevelProduct& product, const LevelAffine& affine, float* values) {
  const size_t stride = padded(product.outputs);
  for (size_t row = 0; row < product.rows; ++row) {
    for (size_t n = 0; n < product.outputs; ++n) values[row * stride + n] = value_of(product, affine, row, n);
    for (size_t n = product.outputs; n < stride; ++n) values[row * stride + n] = 0.0F;
  }
}

// One score per key.
size_t head_bytes(size_t keys, size_t /*channels*/) { return keys * sizeof(int32_t); }

// The scores of a query, and the greatest of them.
int32_t find_scores(const Head& head, const uint8_t* query, int32_t* scores) {
  int32_t greatest = 0;
  for (size_t key = 0; key < head.key_count; ++key) {
    scores[key] = 0;
    for (size_t c = 0; c < head.channels; ++c) {
      scores[key] += level_of(query[c], head.top, true) * level_of(head.keys[key * head.stride + c], head.top, true);
    }
    if (key == 0 || scores[key] > greatest) greatest = scores[key];
  }
  return greatest;
}

int32_t weight_of(const Head& head, int32_t distance) {
  int32_t weight = 0;
  for (size_t j = 0; j < head.top; ++j) weight += distance <= head.thresholds[j];
  return weight;
}

void attend(const Head& head) {
  int32_t* const weights = static_cast<int32_t*>(head.scratch);
  for (size_t query = 0; query < head.query_count; ++query) {
    const int32_t greatest = find_scores(head, head.queries + query * head.stride, weights);
    int32_t sum = 0;
    for (size_t key = 0; key < head.key_count; ++key) {
      weights[key] = weight_of(head, (greatest - weights[key]) / 2);
      sum += weights[key];
    }
    const float ratio = head.value_step / static_cast<float>(sum);
    for (size_t c = 0; c < head.channels; ++c) {
      int32_t total = 0;
      for (size_t key = 0; key < head.key_count; ++key) {
        total += weights[key] * level_of(head.values[key * head.stride + c], head.top, true);
      }
      const float context = static_cast<float>(total) * ratio;
      head.contexts[query * head.context_stride + c] = index_of(context, head.context, c);
    }
  }
}

}  // namespace

const LevelKernels kReferenceLevels = {panel_bytes,   pack_panels, scratch_bytes, linear_indices,
                                       linear_floats, head_bytes,  attend};

}  // namespace bibert
