// Plain C++ parts of the forward pass; ops.h describes them.
#include "ops.h"

#include <cmath>
#include <cstring>

namespace bibert {
namespace {

// +scale if the bit is 1, -scale if it is 0; they differ in the sign bit of the float.
float signed_scale(uint32_t scale_bits, uint64_t word, size_t bit) {
  const uint32_t minus = static_cast<uint32_t>(~word >> bit & 1) << 31;
  const uint32_t bits = scale_bits | minus;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace

void embed(const Model& model, int32_t id, int32_t token_type, int32_t position, float* row) {
  const Embeddings& from = model.embeddings;
  const size_t hidden = model.config.hidden;
  const size_t stride = padded(hidden);
  const uint64_t* bits = from.word_bits.data() + static_cast<size_t>(id) * words_for(hidden);
  const float* type_row = from.token_type.data() + static_cast<size_t>(token_type) * stride;
  const float* position_row = from.position.data() + static_cast<size_t>(position) * stride;
  uint32_t scale_bits;
  std::memcpy(&scale_bits, &from.word_scale[static_cast<size_t>(id)], sizeof(scale_bits));
  for (size_t word = 0; word < words_for(hidden); ++word) {
    for (size_t bit = 0; bit < kWordBits; ++bit) {
      const size_t c = word * kWordBits + bit;
      row[c] = (signed_scale(scale_bits, bits[word], bit) + type_row[c]) + position_row[c];
    }
  }
  for (size_t c = hidden; c < stride; ++c) row[c] = 0.0F;
}

uint64_t take_bits(const uint64_t* row, size_t first, size_t count) {
  const size_t word = first / kWordBits;
  const size_t shift = first % kWordBits;
  uint64_t bits = row[word] >> shift;
  if (shift + count > kWordBits) bits |= row[word + 1] << (kWordBits - shift);
  return count == kWordBits ? bits : bits & ((uint64_t{1} << count) - 1);
}

void put_bits(uint64_t* row, size_t first, size_t count, uint64_t bits) {
  const size_t word = first / kWordBits;
  const size_t shift = first % kWordBits;
  row[word] |= bits << shift;
  if (shift + count > kWordBits) row[word + 1] |= bits >> (kWordBits - shift);
}

void take_head(const Model& model, const uint64_t* rows, size_t count, size_t head, uint64_t* words) {
  const size_t head_size = model.config.head_size;
  const size_t stride = words_for(model.inner());
  for (size_t i = 0; i < count; ++i) words[i] = take_bits(rows + i * stride, head * head_size, head_size);
}

// Swaps the two off-diagonal quarters, for blocks of 32, 16, ... 1.
void transpose(uint64_t words[kWordBits]) {
  uint64_t low = 0x00000000FFFFFFFF;
  for (size_t block = 32; block != 0; block /= 2, low ^= low << block) {
    for (size_t i = 0; i < kWordBits; i = (i + block + 1) & ~block) {
      const uint64_t swapped = (words[i] >> block ^ words[i + block]) & low;
      words[i] ^= swapped << block;
      words[i + block] ^= swapped;
    }
  }
}

bool classify(const Model& model, float* pooled, float* logits) {
  const size_t hidden = model.config.hidden;
  bool finite = true;
  for (size_t c = 0; c < hidden; ++c) pooled[c] = static_cast<float>(std::tanh(static_cast<double>(pooled[c])));
  for (size_t label = 0; label < model.config.labels; ++label) {
    const float* weight = model.classifier_weight.data() + label * padded(hidden);
    double sum = 0.0;
    for (size_t c = 0; c < hidden; ++c) sum += static_cast<double>(weight[c]) * static_cast<double>(pooled[c]);
    logits[label] = static_cast<float>(sum + static_cast<double>(model.classifier_bias[label]));
    finite = finite && std::isfinite(logits[label]);
  }
  return finite;
}

}  // namespace bibert
