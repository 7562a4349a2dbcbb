// The steps with 2 or 4 bits; bit_steps.h describes them.
#include "level_steps.h"

#include <algorithm>

namespace bibert {

LevelSteps::Rows::Rows(const Model& model, size_t rows)
    : states(rows * padded(model.config.hidden)),
      indices(rows * padded(model.config.hidden)),
      heads(rows * 3 * padded(model.inner())),
      contexts(rows * padded(model.inner())) {}

LevelSteps::Scratch::Scratch(const Model& model, size_t most_rows, size_t most_keys)
    : inside(most_rows * padded(model.config.intermediate)),
      head(model.kernels->levels->head_bytes(most_keys, model.config.head_size)) {
  const size_t hidden = model.config.hidden;
  const size_t wide = model.config.intermediate;
  const auto bytes = model.kernels->levels->scratch_bytes;
  linear = Buffer<uint8_t>(std::max({bytes(3 * padded(model.inner()), hidden), bytes(hidden, model.inner()),
                                     bytes(wide, hidden), bytes(hidden, wide), bytes(hidden, hidden)}));
}

LevelSteps::LevelSteps(const Model& model, Rows& rows)
    : model_(model), kernels_(*model.kernels), at_(rows), hidden_(model.config.hidden), inner_(model.inner()) {}

bool LevelSteps::normalize(const Norm& norm, Block block) {
  return kernels_.layer_norm({states(block), norm.weight.data(), norm.bias.data(), nullptr, model_.config.norm_eps,
                              block.count, hidden_, states(block), nullptr, norm.site.levels(),
                              at_.indices.data() + block.first * padded(hidden_)});
}

void LevelSteps::project_queries(const LevelLayer& layer, Block block, Scratch& scratch) {
  project(layer, block, 0, 1, scratch);
}

void LevelSteps::project_keys_and_values(const LevelLayer& layer, Block block, Scratch& scratch) {
  project(layer, block, 1, 3, scratch);
}

void LevelSteps::project_all(const LevelLayer& layer, Block block, Scratch& scratch) {
  project(layer, block, 0, 3, scratch);
}

void LevelSteps::project(const LevelLayer& layer, Block block, size_t first, size_t end, Scratch& scratch) {
  const size_t from = first * padded(inner_);
  const LevelLinear& heads = layer.heads;
  LevelProduct product = product_of(heads.matrix, indices(block), block, scratch);
  product.panels = heads.matrix.panels.data() + kernels_.levels->panel_bytes(from, hidden_);
  product.outputs = (end - first) * padded(inner_);
  kernels_.levels->linear_indices(
      product, {heads.scale.data() + from, heads.bias.data() + from, nullptr},
      {heads.site.levels(from), at_.heads.data() + block.first * 3 * padded(inner_) + from, 3 * padded(inner_)});
}

void LevelSteps::attend(const LevelLayer& layer, Block queries, Block sequence, Scratch& scratch) {
  const size_t part = padded(inner_);
  const size_t size = model_.config.head_size;
  const uint8_t top = top_of(model_.config.attention_bits);
  for (size_t head = 0; head < model_.config.heads; ++head) {
    const size_t at = head * size;
    const uint8_t* const keys = at_.heads.data() + sequence.first * 3 * part + part + at;
    kernels_.levels->attend({at_.heads.data() + queries.first * 3 * part + at, keys, keys + part, 3 * part,
                             queries.count, sequence.count, size, top, layer.attention_thresholds.data() + head * top,
                             layer.value_step, layer.context.levels(at),
                             at_.contexts.data() + queries.first * part + at, part, scratch.head.data()});
  }
}

// In plain C++, since nothing waits for it.
void LevelSteps::weigh(const LevelLayer& layer, Block sequence, uint8_t* weights) const {
  const size_t stride = 3 * padded(inner_);
  const size_t size = model_.config.head_size;
  const uint8_t top = top_of(model_.config.attention_bits);
  std::vector<int32_t> sums(sequence.count);  // half the scores, up to a constant of the query
  for (size_t row = 0; row < model_.config.heads * sequence.count; ++row) {
    const size_t head = row / sequence.count;
    const uint8_t* const first = at_.heads.data() + sequence.first * stride + head * size;
    const uint8_t* const query = first + row % sequence.count * stride;
    for (size_t k = 0; k < sequence.count; ++k) {
      const uint8_t* const key = first + k * stride + padded(inner_);
      sums[k] = 0;
      for (size_t c = 0; c < size; ++c) sums[k] += (2 * query[c] - top) * key[c];
    }
    const int32_t most = *std::max_element(sums.begin(), sums.end());
    const int32_t* const thresholds = layer.attention_thresholds.data() + head * top;
    for (const int32_t sum : sums) {
      *weights++ = static_cast<uint8_t>(
          std::count_if(thresholds, thresholds + top, [&](int32_t one) { return most - sum <= one; }));
    }
  }
}

bool LevelSteps::finish(const LevelLayer& layer, Block block, Scratch& scratch) {
  const uint8_t* const contexts = at_.contexts.data() + block.first * padded(inner_);
  add(layer.attention_output, product_of(layer.attention_output.matrix, contexts, block, scratch), block);
  if (!normalize(layer.attention_norm, block)) return false;
  const LevelLinear& wide = layer.intermediate;
  kernels_.levels->linear_indices(product_of(wide.matrix, indices(block), block, scratch),
                                  {wide.scale.data(), wide.bias.data(), nullptr},
                                  {wide.site.levels(), scratch.inside.data(), padded(model_.config.intermediate)});
  LevelProduct product = product_of(layer.output.matrix, scratch.inside.data(), block, scratch);
  product.is_signed = false;
  add(layer.output, product, block);
  return normalize(layer.output_norm, block);
}

void LevelSteps::pool(Block block, Scratch& scratch) {
  const LevelLinear& pooler = model_.level_pooler;
  kernels_.levels->linear_floats(product_of(pooler.matrix, indices(block), block, scratch),
                                 {pooler.scale.data(), pooler.bias.data(), nullptr}, states(block));
}

void LevelSteps::copy_row(size_t from, size_t to) {
  const size_t stride = padded(hidden_);
  std::copy_n(at_.states.data() + from * stride, stride, at_.states.data() + to * stride);
  std::copy_n(at_.indices.data() + from * stride, stride, at_.indices.data() + to * stride);
}

LevelProduct LevelSteps::product_of(const Matrix& matrix, const uint8_t* indices, Block block, Scratch& scratch) const {
  return {matrix.panels.data(),
          indices,
          block.count,
          matrix.outputs,
          matrix.inputs,
          top_of(model_.config.activation_bits),
          true,
          scratch.linear.data()};
}

// states = linear(indices) + states
void LevelSteps::add(const LevelLinear& linear, const LevelProduct& product, Block block) {
  kernels_.levels->linear_floats(product, {linear.scale.data(), linear.bias.data(), states(block)}, states(block));
}

}  // namespace bibert
