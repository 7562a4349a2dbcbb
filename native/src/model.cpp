// Making a model: check the config, walk through the data section, convert each tensor.
#include "model.h"

#include <algorithm>
#include <cmath>

#include "reader.h"

namespace bibert {
namespace {

struct Limit {
  const char* name;
  uint32_t bibert_config::*field;
  uint32_t least;
  uint32_t most;
};

constexpr Limit kLimits[] = {
    {"layers", &bibert_config::layers, 1, 48},
    {"hidden", &bibert_config::hidden, 1, 4096},
    {"heads", &bibert_config::heads, 1, 256},
    {"head_size", &bibert_config::head_size, 1, 64},
    {"intermediate", &bibert_config::intermediate, 1, 16384},
    {"vocabulary", &bibert_config::vocabulary, 1, 1U << 20},
    {"positions", &bibert_config::positions, 1, 8192},
    {"token_types", &bibert_config::token_types, 1, 64},
    {"labels", &bibert_config::labels, 1, 65536},
    {"thresholds", &bibert_config::thresholds, 0, 0xFF},
    {"score_thresholds", &bibert_config::score_thresholds, 0, 1},
    {"ffn_levels", &bibert_config::ffn_levels, BIBERT_FFN_SIGN, BIBERT_FFN_BOOL},
};
constexpr uint32_t kMostInner = 4096;

int32_t popcount_row(const uint64_t* row, size_t words) {
  int32_t count = 0;
  for (size_t word = 0; word < words; ++word) count += __builtin_popcountll(row[word]);
  return count;
}

// The most mismatches with which scale · (inputs - 2 · mismatches) + bias still reaches `minimum`, or -1. A binary
// search finds it: the value does not rise with the mismatches, because the scale is not negative and rounding is
// monotonic.
int32_t most_mismatches(size_t inputs, float scale, float bias, float minimum) {
  const auto reaches = [&](int32_t mismatches) {
    const float scaled = scale * static_cast<float>(static_cast<int32_t>(inputs) - 2 * mismatches);
    const float value = scaled + bias;
    return value >= minimum;
  };
  int32_t reached = -1;
  int32_t missed = static_cast<int32_t>(inputs) + 1;
  while (missed - reached > 1) {
    const int32_t middle = reached + (missed - reached) / 2;
    (reaches(middle) ? reached : missed) = middle;
  }
  return reached;
}

// The score of a query and a key of n channels is n - 2 · mismatches.
int32_t most_mismatches_of_score(int64_t head_size, int64_t least_score) {
  const int64_t twice = head_size - least_score;
  if (twice < 0) return -1;
  return static_cast<int32_t>(std::min(twice / 2, head_size));
}

// Larger than any context: its magnitude is at most 8192, the maximum number of keys.
constexpr int32_t kBeyondContext = 16384;

// The least integer that reaches a threshold.
int32_t least_integer(float threshold) {
  constexpr float kBeyond = kBeyondContext;
  return static_cast<int32_t>(std::ceil(std::clamp(threshold, -kBeyond, kBeyond)));
}

// Walks through the data section. Everything outside of the layers and the pooler is the same for any number of bits.
class Maker {
 public:
  Maker(const bibert_config& config, const void* data, size_t size, const Kernels& kernels)
      : config_(config), kernels_(kernels), reader_(data, size, sizes_of(config)) {}
  virtual ~Maker() = default;

  Model make() {
    const size_t hidden = config_.hidden;
    Model model{config_, &kernels_, {}, {}, {}, {}, {}, {}, {}};
    Embeddings& embeddings = model.embeddings;
    embeddings.word_bits = reader_.bits("embeddings.word.bits", config_.vocabulary, hidden);
    make_words(model);
    embeddings.word_scale = reader_.scales("embeddings.word.scale", config_.vocabulary);
    embeddings.token_type = reader_.table("embeddings.token_type", config_.token_types, hidden);
    embeddings.position = reader_.table("embeddings.position", config_.positions, hidden);
    read_norm("embeddings.norm", embeddings.norm);
    make_numbers(model);
    model.classifier_weight = reader_.table("classifier.weight", config_.labels, hidden);
    model.classifier_bias = reader_.floats("classifier.bias", config_.labels);
    reader_.finish();
    return model;
  }

 protected:
  // The words, then the numbers, of layers and pooler.
  virtual void make_words(Model& model) = 0;
  virtual void make_numbers(Model& model) = 0;

  static std::string name_of(size_t layer) { return "layers." + std::to_string(layer) + "."; }

  void read_norm(const std::string& name, Norm& norm) {
    norm.weight = reader_.floats(name + ".weight", config_.hidden);
    norm.bias = reader_.floats(name + ".bias", config_.hidden);
  }

  const bibert_config& config_;
  const Kernels& kernels_;
  Reader reader_;
};

class BitMaker : public Maker {
 public:
  using Maker::Maker;

 private:
  bool has(uint32_t site) const { return (config_.thresholds & site) != 0; }

  Matrix matrix(const std::string& name, size_t outputs, size_t inputs, Buffer<int32_t>* ones = nullptr) {
    const Buffer<uint64_t> bits = reader_.bits(name + ".bits", outputs, inputs);
    Matrix matrix{outputs, inputs, Buffer<uint8_t>(kernels_.panel_bytes(outputs, inputs))};
    kernels_.pack_panels(bits.data(), outputs, inputs, matrix.panels.data());
    if (ones != nullptr) {
      const size_t words = words_for(inputs);
      *ones = Buffer<int32_t>(padded(outputs));
      for (size_t n = 0; n < outputs; ++n) (*ones)[n] = popcount_row(bits.data() + n * words, words);
    }
    return matrix;
  }

  void make_words(Model& model) override {
    const size_t hidden = config_.hidden;
    const size_t inner = model.inner();
    model.layers = std::vector<Layer>(config_.layers);
    for (size_t i = 0; i < model.layers.size(); ++i) {
      Layer& layer = model.layers[i];
      const std::string at = name_of(i);
      layer.query.matrix = matrix(at + "query", inner, hidden);
      layer.key.matrix = matrix(at + "key", inner, hidden);
      layer.value.matrix = matrix(at + "value", inner, hidden);
      layer.attention_output.matrix = matrix(at + "attention_output", hidden, inner);
      layer.intermediate.matrix = matrix(at + "intermediate", config_.intermediate, hidden);
      layer.output.matrix = matrix(at + "output", hidden, config_.intermediate, &layer.output.base);
    }
    model.pooler.matrix = matrix("pooler", hidden, hidden);
  }

  void make_numbers(Model& model) override {
    Norm* norm = &model.embeddings.norm;
    for (size_t i = 0; i < model.layers.size(); ++i) {
      read_layer(name_of(i), model.layers[i], *norm);
      norm = &model.layers[i].output_norm;
    }
    norm->minimum = reader_.thresholds("pooler_input.threshold", config_.hidden, has(BIBERT_THRESHOLD_POOLER_INPUT));
    read_linear("pooler", model.pooler, BIBERT_FFN_SIGN);
  }

  // `before` is the LayerNorm whose signs are the input of this layer.
  void read_layer(const std::string& at, Layer& layer, Norm& before) {
    before.minimum =
        reader_.thresholds(at + "attention_input.threshold", config_.hidden, has(BIBERT_THRESHOLD_ATTENTION_INPUT));
    read_sign(at + "query", at + "query", layer.query, BIBERT_THRESHOLD_QUERY);
    read_sign(at + "key", at + "key", layer.key, BIBERT_THRESHOLD_KEY);
    read_sign(at + "value", at + "value", layer.value, BIBERT_THRESHOLD_VALUE);
    read_heads(at, layer);
    read_linear(at + "attention_output", layer.attention_output, BIBERT_FFN_SIGN);
    read_norm(at + "attention_norm", layer.attention_norm);
    layer.attention_norm.minimum =
        reader_.thresholds(at + "ffn_input.threshold", config_.hidden, has(BIBERT_THRESHOLD_FFN_INPUT));
    read_sign(at + "intermediate", at + "ffn_hidden", layer.intermediate, BIBERT_THRESHOLD_FFN_HIDDEN);
    read_linear(at + "output", layer.output, config_.ffn_levels);
    read_norm(at + "output_norm", layer.output_norm);
  }

  void read_sign(const std::string& name, const std::string& site_name, SignLinear& linear, uint32_t site) {
    const size_t outputs = linear.matrix.outputs;
    const Buffer<float> scale = reader_.scales(name + ".scale", outputs);
    const Buffer<float> bias = reader_.floats(name + ".bias", outputs);
    const Buffer<float> minimum = reader_.thresholds(site_name + ".threshold", outputs, has(site));
    linear.most_mismatches = Buffer<int32_t>(padded(outputs));
    for (size_t n = 0; n < padded(outputs); ++n) {
      linear.most_mismatches[n] =
          n < outputs ? most_mismatches(linear.matrix.inputs, scale[n], bias[n], minimum[n]) : -1;
    }
  }

  void read_linear(const std::string& name, FloatLinear& linear, uint32_t input_levels) {
    const size_t outputs = linear.matrix.outputs;
    linear.scale = reader_.scales(name + ".scale", outputs);
    linear.bias = reader_.floats(name + ".bias", outputs);
    linear.step = input_levels == BIBERT_FFN_SIGN ? 2 : 1;
    if (input_levels == BIBERT_FFN_SIGN) {
      linear.base = Buffer<int32_t>(padded(outputs));
      std::fill_n(linear.base.data(), padded(outputs), static_cast<int32_t>(linear.matrix.inputs));
    }
  }

  void read_heads(const std::string& at, Layer& layer) {
    const size_t inner = size_t{config_.heads} * config_.head_size;
    const int32_t most = static_cast<int32_t>(config_.head_size) + 1;  // a head with this threshold attends to nothing
    const Buffer<int32_t> score =
        reader_.integers(at + "score_threshold", config_.heads, most, config_.score_thresholds != 0);
    const Buffer<float> context = reader_.thresholds(at + "context.threshold", inner, has(BIBERT_THRESHOLD_CONTEXT));
    layer.most_mismatches = Buffer<int32_t>(config_.heads);
    layer.context_minimum = Buffer<int32_t>(config_.heads * kWordBits);
    for (size_t head = 0; head < config_.heads; ++head) {
      layer.most_mismatches[head] = most_mismatches_of_score(config_.head_size, score[head]);
      for (size_t d = 0; d < kWordBits; ++d) {
        layer.context_minimum[head * kWordBits + d] =
            d < config_.head_size ? least_integer(context[head * config_.head_size + d]) : kBeyondContext;
      }
    }
  }
};

class LevelMaker : public Maker {
 public:
  using Maker::Maker;

 private:
  void read_bits(const std::string& name, size_t outputs, size_t inputs, int32_t centre, uint8_t* panels) {
    const Buffer<uint64_t> bits = reader_.bits(name + ".bits", outputs, inputs);
    kernels_.levels->pack_panels(bits.data(), outputs, inputs, centre, panels);
  }

  Matrix new_matrix(size_t outputs, size_t inputs) const {
    return {outputs, inputs, Buffer<uint8_t>(kernels_.levels->panel_bytes(outputs, inputs))};
  }

  Matrix matrix(const std::string& name, size_t outputs, size_t inputs, int32_t centre) {
    Matrix matrix = new_matrix(outputs, inputs);
    read_bits(name, outputs, inputs, centre, matrix.panels.data());
    return matrix;
  }

  void make_words(Model& model) override {
    const size_t hidden = config_.hidden;
    const size_t inner = model.inner();
    const int32_t top = top_of(config_.activation_bits);
    model.level_layers = std::vector<LevelLayer>(config_.layers);
    for (size_t i = 0; i < model.level_layers.size(); ++i) {
      LevelLayer& layer = model.level_layers[i];
      const std::string at = name_of(i);
      layer.heads.matrix = new_matrix(3 * padded(inner), hidden);
      const size_t part = kernels_.levels->panel_bytes(padded(inner), hidden);
      uint8_t* const panels = layer.heads.matrix.panels.data();
      for (size_t j = 0; j < 3; ++j) read_bits(at + kHeadParts[j], inner, hidden, top, panels + j * part);
      layer.attention_output.matrix = matrix(at + "attention_output", hidden, inner, top);
      layer.intermediate.matrix = matrix(at + "intermediate", config_.intermediate, hidden, top);
      layer.output.matrix = matrix(at + "output", hidden, config_.intermediate, 0);
    }
    model.level_pooler.matrix = matrix("pooler", hidden, hidden, top);
  }

  void make_numbers(Model& model) override {
    Norm* norm = &model.embeddings.norm;
    for (size_t i = 0; i < model.level_layers.size(); ++i) {
      read_layer(name_of(i), model.level_layers[i], *norm);
      norm = &model.level_layers[i].output_norm;
    }
    norm->site = site("pooler_input", config_.hidden, config_.activation_bits);
    read_linear("pooler", model.level_pooler);
  }

  // `before` is the LayerNorm whose indices are the input of this layer.
  void read_layer(const std::string& at, LevelLayer& layer, Norm& before) {
    const size_t inner = size_t{config_.heads} * config_.head_size;
    const uint8_t top = top_of(config_.attention_bits);
    const int32_t greatest_distance = static_cast<int32_t>(config_.head_size) * top * top;
    before.site = site(at + "attention_input", config_.hidden, config_.activation_bits);
    read_heads(at, layer.heads, inner);
    layer.value_step = reader_.positive(at + "value.step");
    layer.attention_thresholds = reader_.falling(at + "attention_threshold", config_.heads, top, greatest_distance);
    layer.context = site(at + "context", inner, config_.activation_bits);
    read_linear(at + "attention_output", layer.attention_output);
    read_norm(at + "attention_norm", layer.attention_norm);
    layer.attention_norm.site = site(at + "ffn_input", config_.hidden, config_.activation_bits);
    read_linear(at + "intermediate", layer.intermediate);
    layer.intermediate.site = site(at + "ffn_hidden", config_.intermediate, config_.activation_bits);
    read_linear(at + "output", layer.output);
    read_norm(at + "output_norm", layer.output_norm);
  }

  // Joins the numbers of query, key and value.
  void read_heads(const std::string& at, LevelLinear& heads, size_t inner) {
    const size_t stride = padded(inner);
    heads.scale = Buffer<float>(3 * stride);
    heads.bias = Buffer<float>(3 * stride);
    heads.site = {Buffer<float>(3 * stride), Buffer<float>(3 * stride), top_of(config_.attention_bits)};
    for (size_t j = 0; j < 3; ++j) {
      const std::string name = at + kHeadParts[j];
      const auto join = [&](const Buffer<float>& part, Buffer<float>& whole) {
        std::copy_n(part.data(), stride, whole.data() + j * stride);
      };
      join(reader_.scales(name + ".scale", inner), heads.scale);
      join(reader_.floats(name + ".bias", inner), heads.bias);
      const Site part = site(name, inner, config_.attention_bits);
      join(part.edge, heads.site.edge);
      join(part.rate, heads.site.rate);
    }
  }

  void read_linear(const std::string& name, LevelLinear& linear) {
    linear.scale = reader_.scales(name + ".scale", linear.matrix.outputs);
    linear.bias = reader_.floats(name + ".bias", linear.matrix.outputs);
  }

  Site site(const std::string& name, size_t channels, uint32_t bits) {
    Site site{reader_.thresholds(name + ".edge", channels, true), Buffer<float>(padded(channels)), top_of(bits)};
    const float rate = reader_.positive(name + ".rate");
    std::fill_n(site.rate.data(), padded(channels), rate);
    return site;
  }

  static constexpr const char* kHeadParts[] = {"query", "key", "value"};
};

// Which numbers of bits go together, and what only 1-bit models have.
void check_bits(const bibert_config& config) {
  const uint32_t activation = config.activation_bits;
  const uint32_t attention = config.attention_bits;
  const auto is_more = [](uint32_t bits) { return bits == 2 || bits == 4; };
  if (!(activation == 1 && attention == 1) && !(is_more(activation) && is_more(attention))) {
    throw Error(BIBERT_BAD_MODEL, "config: activation_bits is " + std::to_string(activation) +
                                      " and attention_bits is " + std::to_string(attention) +
                                      ", must both be 1, or each 2 or 4");
  }
  if (activation == 1) return;
  if (config.thresholds != 0 || config.score_thresholds != 0 || config.ffn_levels != BIBERT_FFN_BOOL) {
    throw Error(BIBERT_BAD_MODEL, "config: thresholds is " + std::to_string(config.thresholds) + ", score_thresholds " +
                                      std::to_string(config.score_thresholds) + ", ffn_levels " +
                                      std::to_string(config.ffn_levels) + ", must be 0, 0 and 1 with " +
                                      std::to_string(activation) + " activation bits");
  }
}

}  // namespace

void check_config(const bibert_config& config) {
  for (const Limit& limit : kLimits) {
    const uint32_t value = config.*limit.field;
    if (value < limit.least || value > limit.most) {
      throw Error(BIBERT_BAD_MODEL, "config: " + std::string(limit.name) + " is " + std::to_string(value) +
                                        ", must be from " + std::to_string(limit.least) + " to " +
                                        std::to_string(limit.most));
    }
  }
  if (config.heads * config.head_size > kMostInner) {
    throw Error(BIBERT_BAD_MODEL, "config: " + std::to_string(config.heads) + " heads of " +
                                      std::to_string(config.head_size) + " make more than " +
                                      std::to_string(kMostInner) + " channels");
  }
  if (!(config.norm_eps > 0.0 && config.norm_eps <= 1.0)) {
    throw Error(BIBERT_BAD_MODEL,
                "config: norm_eps is " + std::to_string(config.norm_eps) + ", must be above 0 and at most 1");
  }
  check_bits(config);
}

size_t data_size(const bibert_config& config) { return sizes_of(config).bytes(); }

Model make_model(const bibert_config& config, const void* data, size_t size, const Kernels& kernels) {
  check_config(config);
  if (config.activation_bits == 1) return BitMaker(config, data, size, kernels).make();
  return LevelMaker(config, data, size, kernels).make();
}

}  // namespace bibert
