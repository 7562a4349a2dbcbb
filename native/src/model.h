// A model in memory: the tensors of a packed file, checked and laid out for the kernels that will run it. Immutable
// once it is made. How it computes is in forward.h.
#ifndef BIBERT_MODEL_H
#define BIBERT_MODEL_H

#include <stdexcept>
#include <string>
#include <vector>

#include "bibert.h"
#include "bits.h"
#include "kernels.h"

namespace bibert {

// An error with the status that the C API returns for it.
class Error : public std::runtime_error {
 public:
  Error(bibert_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  bibert_status status() const { return status_; }

 private:
  bibert_status status_;
};

// Weights of a binary linear layer in the layout of the kernels.
struct Matrix {
  size_t outputs = 0;
  size_t inputs = 0;
  Buffer<uint8_t> panels;
};

// A linear layer of whose output only the sign counts: an integer threshold per channel stands for scale, bias and
// threshold (the numeric contract, rule 5).
struct SignLinear {
  Matrix matrix;
  Buffer<int32_t> most_mismatches;
};

// A linear layer whose output is a sum of floats.
struct FloatLinear {
  Matrix matrix;
  Buffer<float> scale;
  Buffer<float> bias;
  Buffer<int32_t> base;
  int32_t step = 2;
};

// LayerNorm and the sign behind it.
struct Norm {
  Buffer<float> weight;
  Buffer<float> bias;
  Buffer<float> minimum;
};

struct Layer {
  SignLinear query, key, value;
  Buffer<int32_t> most_mismatches;  // of a query and a key, per head
  Buffer<int32_t> context_minimum;  // 64 entries per head
  FloatLinear attention_output;
  Norm attention_norm;  // its sign feeds the FFN
  SignLinear intermediate;
  FloatLinear output;
  Norm output_norm;  // its sign feeds the next layer, or the pooler
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
  std::vector<Layer> layers;
  FloatLinear pooler;
  Buffer<float> classifier_weight;  // rows of padded(hidden)
  Buffer<float> classifier_bias;

  size_t inner() const { return size_t{config.heads} * config.head_size; }
};

// Throws Error if a number of the config is out of range.
void check_config(const bibert_config& config);

// Bytes of the data section without the tokenizer, for a config that has been checked.
size_t data_size(const bibert_config& config);

// Throws Error if the data does not fit the config or holds what a model must not hold.
Model make_model(const bibert_config& config, const void* data, size_t size, const Kernels& kernels);

}  // namespace bibert

#endif
