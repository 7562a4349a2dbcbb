// A model in memory: the tensors of a packed file, checked, and in the layout of the kernels that will run it.
// Immutable once made. forward.h runs it.
#ifndef BIBERT_MODEL_H
#define BIBERT_MODEL_H

#include <stdexcept>
#include <string>
#include <vector>

#include "bibert.h"
#include "bits.h"
#include "levels.h"

namespace bibert {

// An error, with the status that the C API returns for it.
class Error : public std::runtime_error {
 public:
  Error(bibert_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  bibert_status status() const { return status_; }

 private:
  bibert_status status_;
};

// The weights of a binary linear layer in the layout of the kernels.
struct Matrix {
  size_t outputs = 0;
  size_t inputs = 0;
  Buffer<uint8_t> panels;
};

// A linear layer of which only the sign of the output is used: one integer threshold per channel replaces scale, bias
// and threshold (numeric contract, rule 5).
struct SignLinear {
  Matrix matrix;
  Buffer<int32_t> most_mismatches;
};

// A linear layer with float output.
struct FloatLinear {
  Matrix matrix;
  Buffer<float> scale;
  Buffer<float> bias;
  Buffer<int32_t> base;
  int32_t step = 2;
};

// Where activations become indices of 2 or 4 bits (rule 9).
struct Site {
  Buffer<float> edge;
  Buffer<float> rate;
  uint8_t top = 0;

  Levels levels(size_t first_channel = 0) const {
    return {edge.data() + first_channel, rate.data() + first_channel, top};
  }
};

// LayerNorm and the sign or the index of its output.
struct Norm {
  Buffer<float> weight;
  Buffer<float> bias;
  Buffer<float> minimum;  // with 1 bit
  Site site;              // with 2 or 4 bits
};

// A layer with 1 bit.
struct Layer {
  SignLinear query, key, value;
  Buffer<int32_t> most_mismatches;  // of a query and a key, per head
  Buffer<int32_t> context_minimum;  // 64 entries per head
  FloatLinear attention_output;
  Norm attention_norm;  // its signs are the input of the FFN
  SignLinear intermediate;
  FloatLinear output;
  Norm output_norm;  // its signs are the input of the next layer or of the pooler
};

// A linear layer whose input has 2 or 4 bits.
struct LevelLinear {
  Matrix matrix;
  Buffer<float> scale;
  Buffer<float> bias;
  Site site;  // of the output; empty if it is float
};

// A layer with 2 or 4 bits.
struct LevelLayer {
  LevelLinear heads;                     // query, key and value: three parts of padded(inner) output channels
  Buffer<int32_t> attention_thresholds;  // rows of top_of(attention_bits), one per head
  float value_step = 0.0F;
  Site context;
  LevelLinear attention_output;
  Norm attention_norm;  // its indices are the input of the FFN
  LevelLinear intermediate;
  LevelLinear output;
  Norm output_norm;  // its indices are the input of the next layer or of the pooler
};

struct Embeddings {
  Buffer<uint64_t> word_bits;  // rows of words_for(hidden)
  Buffer<float> word_scale;
  Buffer<float> token_type;  // rows of padded(hidden)
  Buffer<float> position;    // rows of padded(hidden)
  Norm norm;
};

struct Model {
  bibert_config config;
  const Kernels* kernels;
  Embeddings embeddings;
  std::vector<Layer> layers;  // with 1 bit; empty otherwise
  FloatLinear pooler;
  std::vector<LevelLayer> level_layers;  // with 2 or 4 bits; empty otherwise
  LevelLinear level_pooler;
  Buffer<float> classifier_weight;  // rows of padded(hidden)
  Buffer<float> classifier_bias;

  size_t inner() const { return size_t{config.heads} * config.head_size; }
};

// The greatest index of an activation of that many bits.
constexpr uint8_t top_of(uint32_t bits) { return static_cast<uint8_t>((1U << bits) - 1); }

// Throws Error if a field is out of range.
void check_config(const bibert_config& config);

// The size in bytes of the data section without the tokenizer; the config must have been checked.
size_t data_size(const bibert_config& config);

// Throws Error if the data does not fit the config or contains an invalid value.
Model make_model(const bibert_config& config, const void* data, size_t size, const Kernels& kernels);

}  // namespace bibert

#endif
