// The steps with 1 bit; bit_steps.h describes them.
#include "bit_steps.h"

#include <algorithm>

#include "ops.h"

namespace bibert {
namespace {

Product product_of(const Matrix& matrix, const Buffer<uint8_t>& tiles, size_t rows) {
  return {matrix.panels.data(), tiles.data(), rows, matrix.outputs, matrix.inputs};
}

}  // namespace

BitSteps::Rows::Rows(const Model& model, size_t rows)
    : states(rows * padded(model.config.hidden)),
      bits(rows * words_for(model.config.hidden)),
      queries(rows * words_for(model.inner())),
      keys(rows * words_for(model.inner())),
      values(rows * words_for(model.inner())),
      contexts(rows * words_for(model.inner())) {}

BitSteps::Scratch::Scratch(const Model& model, size_t most_rows, size_t most_keys)
    : tiles(std::max(model.kernels->tile_bytes(most_rows, std::max<size_t>(model.config.hidden, model.inner())),
                     model.kernels->tile_bytes(most_rows, model.config.intermediate))),
      inside(most_rows * words_for(model.config.intermediate)),
      attention(model, most_keys) {}

BitSteps::BitSteps(const Model& model, Rows& rows)
    : model_(model),
      kernels_(*model.kernels),
      at_(rows),
      hidden_(model.config.hidden),
      inner_(model.inner()),
      wide_(model.config.intermediate) {}

bool BitSteps::normalize(const Norm& norm, Block block) {
  return kernels_.layer_norm({states(block),
                              norm.weight.data(),
                              norm.bias.data(),
                              norm.minimum.data(),
                              model_.config.norm_eps,
                              block.count,
                              hidden_,
                              states(block),
                              at_.bits.data() + block.first * words_for(hidden_),
                              {},
                              nullptr});
}

void BitSteps::project_queries(const Layer& layer, Block block, Scratch& scratch) {
  pack_hidden(block, scratch);
  project(layer.query, block, scratch, at_.queries);
}

void BitSteps::project_keys_and_values(const Layer& layer, Block block, Scratch& scratch) {
  pack_hidden(block, scratch);
  project(layer.key, block, scratch, at_.keys);
  project(layer.value, block, scratch, at_.values);
}

void BitSteps::project_all(const Layer& layer, Block block, Scratch& scratch) {
  project_keys_and_values(layer, block, scratch);
  project(layer.query, block, scratch, at_.queries);
}

void BitSteps::attend(const Layer& layer, Block queries, Block sequence, Scratch& scratch) {
  const size_t stride = words_for(inner_);
  scratch.attention.attend(model_, layer,
                           {at_.queries.data() + queries.first * stride, at_.keys.data() + sequence.first * stride,
                            at_.values.data() + sequence.first * stride, queries.count, sequence.count,
                            at_.contexts.data() + queries.first * stride});
}

void BitSteps::weigh(const Layer& layer, Block sequence, uint8_t* weights) const {
  const size_t stride = words_for(inner_);
  std::vector<uint64_t> queries(sequence.count), keys(sequence.count);
  for (size_t head = 0; head < model_.config.heads; ++head) {
    take_head(model_, at_.queries.data() + sequence.first * stride, sequence.count, head, queries.data());
    take_head(model_, at_.keys.data() + sequence.first * stride, sequence.count, head, keys.data());
    for (const uint64_t query : queries) {
      for (const uint64_t key : keys)
        *weights++ = __builtin_popcountll(query ^ key) <= layer.most_mismatches[head] ? 1 : 0;
    }
  }
}

bool BitSteps::finish(const Layer& layer, Block block, Scratch& scratch) {
  kernels_.pack_tiles(at_.contexts.data() + block.first * words_for(inner_), block.count, inner_, scratch.tiles.data());
  add(layer.attention_output, block, scratch);
  if (!normalize(layer.attention_norm, block)) return false;
  pack_hidden(block, scratch);
  kernels_.linear_bits(product_of(layer.intermediate.matrix, scratch.tiles, block.count),
                       layer.intermediate.most_mismatches.data(), scratch.inside.data());
  kernels_.pack_tiles(scratch.inside.data(), block.count, wide_, scratch.tiles.data());
  add(layer.output, block, scratch);
  return normalize(layer.output_norm, block);
}

void BitSteps::pool(Block block, Scratch& scratch) {
  const FloatLinear& pooler = model_.pooler;
  pack_hidden(block, scratch);
  kernels_.linear_floats(product_of(pooler.matrix, scratch.tiles, block.count),
                         {pooler.scale.data(), pooler.bias.data(), pooler.base.data(), pooler.step, nullptr},
                         states(block));
}

void BitSteps::copy_row(size_t from, size_t to) {
  const size_t stride = padded(hidden_);
  const size_t words = words_for(hidden_);
  std::copy_n(at_.states.data() + from * stride, stride, at_.states.data() + to * stride);
  std::copy_n(at_.bits.data() + from * words, words, at_.bits.data() + to * words);
}

void BitSteps::pack_hidden(Block block, Scratch& scratch) {
  kernels_.pack_tiles(at_.bits.data() + block.first * words_for(hidden_), block.count, hidden_, scratch.tiles.data());
}

void BitSteps::project(const SignLinear& linear, Block block, const Scratch& scratch, Buffer<uint64_t>& out) {
  kernels_.linear_bits(product_of(linear.matrix, scratch.tiles, block.count), linear.most_mismatches.data(),
                       out.data() + block.first * words_for(inner_));
}

// states = linear(tiles) + states
void BitSteps::add(const FloatLinear& linear, Block block, const Scratch& scratch) {
  kernels_.linear_floats(product_of(linear.matrix, scratch.tiles, block.count),
                         {linear.scale.data(), linear.bias.data(), linear.base.data(), linear.step, states(block)},
                         states(block));
}

}  // namespace bibert
