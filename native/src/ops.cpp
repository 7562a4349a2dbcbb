// Plain C++ parts of the forward pass; ops.h describes them.
#include "ops.h"

#include <cmath>

namespace bibert {
namespace {

// Only basic operations in a fixed order, so that every platform computes the same bits (numeric contract, rule 7).
double tanh_of(double x) {
  const double small = (x < -10.0 ? -10.0 : x > 10.0 ? 10.0 : x) / 32.0;
  const double square = small * small;
  const double above = small * (((square + 378.0) * square + 17325.0) * square + 135135.0);
  double value = above / (((28.0 * square + 3150.0) * square + 62370.0) * square + 135135.0);
  for (int doubling = 0; doubling < 5; ++doubling) value = (value + value) / (value * value + 1.0);
  return value;
}

}  // namespace

void embed(const Model& model, int32_t id, int32_t token_type, int32_t position, float* row) {
  const Embeddings& from = model.embeddings;
  const size_t hidden = model.config.hidden;
  const auto at = [](int32_t number, size_t stride) { return static_cast<size_t>(number) * stride; };
  model.kernels->embed({from.word_bits.data() + at(id, words_for(hidden)), from.word_scale[static_cast<size_t>(id)],
                        from.token_type.data() + at(token_type, padded(hidden)),
                        from.position.data() + at(position, padded(hidden)), hidden},
                       row);
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

bool classify(const Model& model, float* pooled, float* logits) {
  const size_t hidden = model.config.hidden;
  bool finite = true;
  for (size_t c = 0; c < hidden; ++c) pooled[c] = static_cast<float>(tanh_of(static_cast<double>(pooled[c])));
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
