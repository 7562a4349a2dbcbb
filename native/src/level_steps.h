// The steps of a forward pass with 2 or 4 bits per activation, for a block of rows; the steps of bit_steps.h, on
// indices instead of bits.
#ifndef BIBERT_LEVEL_STEPS_H
#define BIBERT_LEVEL_STEPS_H

#include "bit_steps.h"

namespace bibert {

class LevelSteps {
 public:
  // The memory of a group: one row per token, one byte per index.
  struct Rows {
    Rows(const Model& model, size_t rows);

    Buffer<float> states;     // the residual stream
    Buffer<uint8_t> indices;  // of the states
    Buffer<uint8_t> heads;    // query, key and value, padded(inner) each
    Buffer<uint8_t> contexts;
  };

  // The memory of one worker: the FFN's hidden indices, and what the kernels need.
  struct Scratch {
    Scratch(const Model& model, size_t most_rows, size_t most_keys);

    Buffer<uint8_t> inside;
    Buffer<uint8_t> linear;
    Buffer<uint8_t> head;
  };

  LevelSteps(const Model& model, Rows& rows);

  static const std::vector<LevelLayer>& layers(const Model& model) { return model.level_layers; }

  bool normalize(const Norm& norm, Block block);
  void project_queries(const LevelLayer& layer, Block block, Scratch& scratch);
  void project_keys_and_values(const LevelLayer& layer, Block block, Scratch& scratch);
  void project_all(const LevelLayer& layer, Block block, Scratch& scratch);
  void attend(const LevelLayer& layer, Block queries, Block sequence, Scratch& scratch);
  void weigh(const LevelLayer& layer, Block sequence, uint8_t* weights) const;
  bool finish(const LevelLayer& layer, Block block, Scratch& scratch);
  void pool(Block block, Scratch& scratch);
  void copy_row(size_t from, size_t to);

 private:
  // Parts [first, end) of query, key and value.
  void project(const LevelLayer& layer, Block block, size_t first, size_t end, Scratch& scratch);
  LevelProduct product_of(const Matrix& matrix, const uint8_t* indices, Block block, Scratch& scratch) const;
  void add(const LevelLinear& linear, const LevelProduct& product, Block block);
  float* states(Block block) { return at_.states.data() + block.first * padded(hidden_); }
  const uint8_t* indices(Block block) const { return at_.indices.data() + block.first * padded(hidden_); }

  const Model& model_;
  const Kernels& kernels_;
  Rows& at_;
  const size_t hidden_, inner_;
};

}  // namespace bibert

#endif
