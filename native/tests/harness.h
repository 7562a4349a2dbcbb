// Shared by the tests of the C API: random numbers that are the same on every platform, counted checks, batches, and a
// model on a chosen instruction set.
#ifndef BIBERT_TESTS_HARNESS_H
#define BIBERT_TESTS_HARNESS_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "bibert.h"
#include "sample.h"

namespace harness {

using Bytes = std::vector<unsigned char>;
using Logits = std::vector<float>;

// splitmix64, because the distributions of the standard library differ between platforms.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t word() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15U;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
    z = (z ^ z >> 27) * 0x94D049BB133111EBU;
    return z ^ z >> 31;
  }
  uint32_t between(uint32_t least, uint32_t most) { return least + static_cast<uint32_t>(word() % (most - least + 1)); }
  int32_t index(uint32_t count) { return static_cast<int32_t>(between(0, count - 1)); }

 private:
  uint64_t state_;
};

// Counts checks and failures, and prints the first failures.
class Checks {
 public:
  void expect(bool condition, const std::string& what) {
    constexpr size_t kMostMessages = 20;
    ++count_;
    if (!condition && ++failures_ <= kMostMessages) std::printf("%s\n", what.c_str());
  }

  // The exit code of a test program.
  int finish(const char* name) const {
    std::printf("%s: %zu checks, %zu failures\n", name, count_, failures_);
    return failures_ == 0 ? 0 : 1;
  }

 private:
  size_t count_ = 0;
  size_t failures_ = 0;
};

inline std::vector<std::string> available_isas() {
  std::istringstream names(bibert_available_isas());
  std::vector<std::string> list;
  for (std::string name; names >> name;) list.push_back(name);
  return list;
}

inline Bytes random_data(Random& random, const bibert_config& config, sample::Numbers numbers) {
  const sample::Schema schema(config);
  Bytes data(schema.bytes());
  for (unsigned char& byte : data) byte = static_cast<unsigned char>(random.word());
  sample::make_valid(schema, numbers, data.data());
  return data;
}

struct Batch {
  std::vector<uint32_t> lengths;
  std::vector<int32_t> ids;
  std::vector<int32_t> token_types;  // empty for none
  std::vector<int32_t> positions;    // empty for none

  bibert_batch view() const {
    const auto pointer = [](const std::vector<int32_t>& list) { return list.empty() ? nullptr : list.data(); };
    return {static_cast<uint32_t>(lengths.size()), lengths.data(), ids.data(), pointer(token_types),
            pointer(positions)};
  }
};

// The same batch with its optional arrays.
inline Batch spelled_out(Batch batch) {
  if (batch.token_types.empty()) batch.token_types.assign(batch.ids.size(), 0);
  if (!batch.positions.empty()) return batch;
  for (const uint32_t length : batch.lengths) {
    for (uint32_t i = 0; i < length; ++i) batch.positions.push_back(static_cast<int32_t>(i));
  }
  return batch;
}

// A model on one instruction set; an empty name selects the best.
class Engine {
 public:
  Engine(const bibert_config& config, const Bytes& data, const std::string& isa) : labels_(config.labels) {
    const char* name = isa.empty() ? nullptr : isa.c_str();
    status_ = bibert_model_create(&config, data.data(), data.size(), name, &model_);
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() { bibert_model_destroy(model_); }

  // The logits, or NaN if the call fails, so that comparing two engines compares their failures too.
  Logits run(const Batch& batch, uint32_t threads) {
    const bibert_batch view = batch.view();
    Logits logits(batch.lengths.size() * labels_);
    status_ = bibert_logits(model_, &view, threads, logits.data());
    if (status_ != BIBERT_OK) std::fill(logits.begin(), logits.end(), std::nanf(""));
    return logits;
  }

  // The status of the last call.
  bibert_status status() const { return status_; }
  const bibert_model* model() const { return model_; }

 private:
  const size_t labels_;
  bibert_model* model_ = nullptr;
  bibert_status status_ = BIBERT_OK;
};

}  // namespace harness

#endif
