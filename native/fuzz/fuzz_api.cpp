// A libFuzzer target for the C API. The input chooses a small config, its data and a batch. Most are valid, so that the
// forward pass runs; every part is sometimes invalid, so that every check runs. Besides the sanitizers, the target
// checks the promises of the API: valid input is accepted, invalid input gets a status and a one-line message, logits
// are finite, and every instruction set and number of threads computes the bits of the reference on one thread.
//
//   make fuzz    builds it with clang, AddressSanitizer and UndefinedBehaviorSanitizer, and runs it
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "bibert.h"
#include "sample.h"

namespace {

using sample::Numbers;

// libFuzzer reports an input that aborts.
void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s; last error: %s\n", what, bibert_last_error());
  std::abort();
}

void expect_error(bibert_status status, const char* what) {
  expect(status != BIBERT_OK, what);
  const char* message = bibert_last_error();
  expect(*message != '\0' && std::strchr(message, '\n') == nullptr, "an error has a message of one line");
}

// The bytes of the input as choices. At the end of the input all choices are 0, which is simple and valid.
class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  uint8_t byte() { return at_ < size_ ? data_[at_++] : uint8_t{0}; }
  uint32_t below(uint32_t count) { return byte() % count; }
  bool rarely(uint32_t one_in) { return below(one_in) == one_in - 1; }
  // Decided by a hash of the whole input, so that mutations of a good input do not inherit slow choices.
  bool drawn(uint32_t one_in) const {
    uint32_t hash = 2166136261;  // FNV-1a
    for (size_t i = 0; i < size_; ++i) hash = (hash ^ data_[i]) * 16777619;
    return (hash >> 8) % one_in == 1;
  }
  template <class T>
  T any() {
    uint8_t bytes[sizeof(T)];
    for (uint8_t& b : bytes) b = byte();
    T value;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  }
  // A number that is too small or too large for almost every field.
  uint32_t extreme() {
    constexpr uint32_t kExtremes[] = {0, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x10000, 4097};
    return rarely(2) ? any<uint32_t>() : kExtremes[below(6)];
  }
  // Repeats the remaining bytes.
  void repeat(unsigned char* to, size_t count) const {
    const size_t left = size_ - at_;
    for (size_t i = 0; i < count; ++i) to[i] = left == 0 ? uint8_t{0x5A} : data_[at_ + i % left];
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

constexpr uint32_t bibert_config::*kFields[] = {
    &bibert_config::layers,          &bibert_config::hidden,           &bibert_config::heads,
    &bibert_config::head_size,       &bibert_config::intermediate,     &bibert_config::vocabulary,
    &bibert_config::positions,       &bibert_config::token_types,      &bibert_config::labels,
    &bibert_config::thresholds,      &bibert_config::score_thresholds, &bibert_config::ffn_levels,
    &bibert_config::activation_bits, &bibert_config::attention_bits,
};

bibert_config valid_config(Choices& choices) {
  constexpr double kEps[] = {1e-12, 1e-5, 1.0, std::numeric_limits<double>::denorm_min()};
  bibert_config config{};
  // Most rows fit into one word, for speed; the others have two or three.
  const bool long_rows = choices.drawn(8);
  config.layers = 1 + choices.below(2);
  config.hidden = 1 + choices.below(long_rows ? 80 : 12);
  config.heads = 1 + choices.below(4);
  config.head_size = 1 + choices.below(long_rows ? (config.heads == 1 ? 64 : 80 / config.heads) : 8);
  config.intermediate = 1 + choices.below(long_rows ? 130 : 20);
  config.vocabulary = 1 + choices.below(16);
  config.positions = 1 + choices.below(choices.drawn(64) ? 140 : 9);
  config.token_types = 1 + choices.below(3);
  config.labels = 1 + choices.below(4);
  config.thresholds = choices.byte();
  config.score_thresholds = choices.below(2);
  config.ffn_levels = choices.below(2);
  config.norm_eps = kEps[choices.below(4)];
  config.activation_bits = config.attention_bits = 1;
  if (choices.below(3) == 0) return config;
  config.thresholds = config.score_thresholds = 0;
  config.ffn_levels = BIBERT_FFN_BOOL;
  config.activation_bits = 2 + 2 * choices.below(2);
  config.attention_bits = 2 + 2 * choices.below(2);
  return config;
}

bibert_config some_config(Choices& choices) {
  bibert_config config = valid_config(choices);
  expect(bibert_data_size(&config) == sample::Schema(config).bytes(), "a valid config has the size of its tensors");
  if (choices.rarely(16)) {
    if (choices.rarely(15)) {
      config.norm_eps = choices.any<double>();
    } else {
      config.*kFields[choices.below(14)] = choices.extreme();
    }
  }
  return config;
}

// Data at any address that ends with its memory, so that a read past its end is detected.
class Data {
 public:
  Data(Choices& choices, size_t size) : skip_(choices.below(8)), size_(size), memory_(skip_ + size) {}

  unsigned char* bytes() { return memory_.data() + skip_; }
  size_t size() const { return size_; }

 private:
  size_t skip_;
  size_t size_;
  std::vector<unsigned char> memory_;
};

struct Destroy {
  void operator()(bibert_model* model) const { bibert_model_destroy(model); }
};
using ModelPointer = std::unique_ptr<bibert_model, Destroy>;

bibert_status create(const char* isa, const bibert_config& config, Data& data, ModelPointer& model) {
  bibert_model* made = nullptr;
  const bibert_status status = bibert_model_create(&config, data.bytes(), data.size(), isa, &made);
  expect((status == BIBERT_OK) == (made != nullptr), "a model exists iff the status is BIBERT_OK");
  model.reset(made);
  return status;
}

// Sequences in arrays of exactly the right length.
class Batch {
 public:
  Batch(Choices& choices, const bibert_config& config) {
    const uint32_t most_tokens = choices.drawn(17) ? 200 : 20;  // 200 need several groups and several words of keys
    const uint32_t sequences = choices.below(choices.rarely(64) ? 80 : 4);
    for (uint32_t i = 0; i < sequences && tokens_ < most_tokens; ++i) {
      lengths_.push_back(1 + choices.below(std::min(config.positions, most_tokens)));
      tokens_ += lengths_.back();
    }
    ids_ = numbers(choices, config.vocabulary);
    if (choices.below(2) == 1) types_ = numbers(choices, config.token_types);
    if (choices.below(2) == 1) positions_ = numbers(choices, config.positions);
    if (choices.rarely(8) && !lengths_.empty()) spoil(choices, config);
  }

  bool valid() const { return valid_; }
  size_t sequences() const { return lengths_.size(); }
  bibert_batch view() const {
    return {static_cast<uint32_t>(lengths_.size()), lengths_.data(), ids_.data(),
            types_.empty() ? nullptr : types_.data(), positions_.empty() ? nullptr : positions_.data()};
  }

 private:
  std::vector<int32_t> numbers(Choices& choices, uint32_t count) const {
    std::vector<int32_t> all(tokens_);
    for (int32_t& number : all) number = static_cast<int32_t>(choices.below(count));
    return all;
  }

  // Changes one length, id, token type or position, perhaps to an invalid one.
  void spoil(Choices& choices, const bibert_config& config) {
    const uint32_t number = choices.rarely(2) ? choices.extreme() : config.positions + 1;
    switch (choices.below(4)) {
      case 0:
        valid_ = false;  // even if shorter: the remaining ids may become those of the next sequence
        lengths_[choices.below(static_cast<uint32_t>(lengths_.size()))] = number > config.positions ? number : 0;
        break;
      case 1:
        spoil(choices, ids_, number, config.vocabulary);
        break;
      case 2:
        spoil(choices, types_, number, config.token_types);
        break;
      default:
        spoil(choices, positions_, number, config.positions);
    }
  }

  void spoil(Choices& choices, std::vector<int32_t>& numbers, uint32_t number, uint32_t count) {
    if (numbers.empty()) return;
    numbers[choices.below(static_cast<uint32_t>(numbers.size()))] = static_cast<int32_t>(number);
    if (number >= count) valid_ = false;
  }

  std::vector<uint32_t> lengths_;
  std::vector<int32_t> ids_, types_, positions_;
  size_t tokens_ = 0;
  bool valid_ = true;
};

bibert_status compute(const ModelPointer& model, const bibert_batch& batch, uint32_t threads,
                      std::vector<float>& logits) {
  const bibert_status status = bibert_logits(model.get(), &batch, threads, logits.data());
  for (size_t i = 0; status == BIBERT_OK && i < logits.size(); ++i)
    expect(std::isfinite(logits[i]), "logits are finite");
  return status;
}

void try_nulls(const ModelPointer& model, bibert_batch batch, uint32_t which) {
  float logits = 0;
  bibert_model* made = nullptr;
  expect_error(bibert_model_create(nullptr, &logits, 4, nullptr, &made), "a null config");
  expect_error(bibert_logits(nullptr, &batch, 1, &logits), "a null model");
  expect_error(bibert_logits(model.get(), nullptr, 1, &logits), "a null batch");
  if (batch.sequences == 0) return;
  if (which == 0) batch.lengths = nullptr;
  if (which == 1) batch.ids = nullptr;
  expect_error(bibert_logits(model.get(), &batch, 1, which == 2 ? nullptr : &logits), "a null array");
}

void run(Choices& choices, const bibert_config& config, Data& data, const ModelPointer& model, const char* isa) {
  expect(std::strcmp(bibert_model_isa(model.get()), isa) == 0, "a model runs on the chosen instruction set");
  const uint32_t threads = choices.drawn(256) ? 2 + choices.below(3) : 1;
  const Batch batch(choices, config);
  if (choices.rarely(64)) try_nulls(model, batch.view(), choices.below(3));
  std::vector<float> logits(batch.sequences() * config.labels);
  const bibert_status status = compute(model, batch.view(), threads, logits);
  if (!batch.valid()) return expect_error(status, "an invalid batch");
  expect(status == BIBERT_OK || status == BIBERT_OUT_OF_RANGE, "a valid batch");
  if (threads == 1 && (std::strcmp(isa, "reference") == 0 || !choices.drawn(5))) return;
  ModelPointer reference;
  expect(create("reference", config, data, reference) == BIBERT_OK, "the reference takes the same model");
  std::vector<float> wanted(logits.size());
  expect(compute(reference, batch.view(), 1, wanted) == status, "the reference has the same status");
  if (status != BIBERT_OK || logits.empty()) return;
  expect(std::memcmp(logits.data(), wanted.data(), logits.size() * sizeof(float)) == 0, "the bits of the reference");
}

const std::vector<std::string>& isas() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> found(1);
    for (const char* c = bibert_available_isas(); *c != '\0'; ++c) {
      if (*c == ' ') {
        found.emplace_back();
      } else {
        found.back() += *c;
      }
    }
    return found;
  }();
  return names;
}

}  // namespace

// A small quarantine makes AddressSanitizer twice as fast, and suffices because models are destroyed after each input.
extern "C" const char* __asan_default_options() { return "malloc_context_size=2:quarantine_size_mb=4"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  constexpr uint64_t kMostBytes = 1U << 18;
  Choices choices(bytes, size);
  const bibert_config config = some_config(choices);
  const uint64_t right = bibert_data_size(&config);
  const bool fits = right != 0 && right <= kMostBytes;
  const uint64_t wrong = choices.rarely(16) ? (fits ? right + choices.below(9) - 4 : choices.byte()) : right;
  const bool right_size = fits && wrong == right;
  const uint32_t form = choices.below(8);
  const std::string& isa = isas()[choices.below(static_cast<uint32_t>(isas().size()))];
  Data data(choices, fits ? wrong : choices.byte());
  choices.repeat(data.bytes(), data.size());
  const bool valid = right_size && form != 7;
  if (valid) {
    sample::make_valid(sample::Schema(config), form == 6 ? Numbers::kAnyFinite : Numbers::kSmall, data.bytes());
  }
  ModelPointer model;
  if (choices.rarely(64)) expect(create("no such set", config, data, model) != BIBERT_OK, "an unknown instruction set");
  const bibert_status status = create(isa.c_str(), config, data, model);
  if (valid) expect(status == BIBERT_OK, "valid data makes a model");
  if (!right_size) expect_error(status, "an invalid config or size");
  if (status == BIBERT_OK) run(choices, config, data, model, isa.c_str());
  return 0;
}
