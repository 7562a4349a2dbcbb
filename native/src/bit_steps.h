// The steps of a forward pass with 1 bit per activation, for a block of rows. Values of which only the sign is used are
// never computed as floats. level_steps.h has the same steps for 2 and 4 bits.
#ifndef BIBERT_BIT_STEPS_H
#define BIBERT_BIT_STEPS_H

#include "attention.h"
#include "model.h"

namespace bibert {

// Consecutive rows of a group.
struct Block {
  size_t first;
  size_t count;
};

class BitSteps {
 public:
  // The memory of a group: one row per token.
  struct Rows {
    Rows(const Model& model, size_t rows);

    Buffer<float> states;   // the residual stream
    Buffer<uint64_t> bits;  // its signs
    Buffer<uint64_t> queries, keys, values, contexts;
  };

  // The memory of one worker: a block of rows in the layout of the kernels, the FFN's hidden bits, the heads.
  struct Scratch {
    Scratch(const Model& model, size_t most_rows, size_t most_keys);

    Buffer<uint8_t> tiles;
    Buffer<uint64_t> inside;
    AttentionScratch attention;
  };

  BitSteps(const Model& model, Rows& rows);

  static const std::vector<Layer>& layers(const Model& model) { return model.layers; }

  // LayerNorm of the states, and its signs; false if a state is out of range.
  bool normalize(const Norm& norm, Block block);
  void project_queries(const Layer& layer, Block block, Scratch& scratch);
  void project_keys_and_values(const Layer& layer, Block block, Scratch& scratch);
  void project_all(const Layer& layer, Block block, Scratch& scratch);
  // The contexts of a block of queries; `sequence` has their keys and values.
  void attend(const Layer& layer, Block queries, Block sequence, Scratch& scratch);
  // The attention weights of a sequence: [head][query][key].
  void weigh(const Layer& layer, Block sequence, uint8_t* weights) const;
  // Everything after the heads: output projection and FFN, each with residual and LayerNorm. False like normalize.
  bool finish(const Layer& layer, Block block, Scratch& scratch);
  // Replaces the states by the pooler's output before tanh.
  void pool(Block block, Scratch& scratch);
  // Copies the states and their signs.
  void copy_row(size_t from, size_t to);

 private:
  void pack_hidden(Block block, Scratch& scratch);
  void project(const SignLinear& linear, Block block, const Scratch& scratch, Buffer<uint64_t>& out);
  void add(const FloatLinear& linear, Block block, const Scratch& scratch);
  float* states(Block block) { return at_.states.data() + block.first * padded(hidden_); }

  const Model& model_;
  const Kernels& kernels_;
  Rows& at_;
  const size_t hidden_, inner_, wide_;
};

}  // namespace bibert

#endif
