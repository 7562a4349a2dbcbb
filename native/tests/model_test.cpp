// Whole models on every available instruction set: the logits must be bit-identical to those of the reference, with
// sequences together or alone, in any order, on any number of threads.
//
//   model_test [rounds] [first]    random models after the fixed ones, 12 by default; round n is the same everywhere
//
// Prints a hash of all logits for each instruction set, to compare machines, and exits with
// 1 if anything differs.
#include <cstring>
#include <map>

#include "harness.h"

namespace {

using harness::Batch;
using harness::Bytes;
using harness::Engine;
using harness::Logits;
using harness::Random;

constexpr double kEps = 1e-12;
constexpr bibert_config kFixed[] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, BIBERT_FFN_SIGN, kEps, 1, 1},
    {2, 64, 2, 32, 128, 50, 512, 2, 2, 0, 0, BIBERT_FFN_SIGN, kEps, 1, 1},
    {2, 65, 3, 26, 130, 30, 512, 1, 3, 0xFF, 1, BIBERT_FFN_BOOL, 1e-5, 1, 1},
    {3, 63, 1, 63, 33, 30, 130, 64, 1, 0xAA, 0, BIBERT_FFN_BOOL, 1.0, 1, 1},
    {4, 128, 2, 64, 512, 99, 70, 2, 2, 0, 1, BIBERT_FFN_SIGN, kEps, 1, 1},
    {1, 312, 12, 26, 1200, 99, 40, 2, 2, 0, 0, BIBERT_FFN_SIGN, kEps, 1, 1},
    {1, 384, 12, 32, 1536, 99, 40, 2, 2, 0x55, 1, BIBERT_FFN_BOOL, kEps, 1, 1},
    {1, 768, 12, 64, 3072, 99, 20, 2, 2, 0, 0, BIBERT_FFN_SIGN, kEps, 1, 1},
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, BIBERT_FFN_BOOL, kEps, 2, 2},
    {2, 64, 2, 32, 128, 50, 512, 2, 2, 0, 0, BIBERT_FFN_BOOL, kEps, 2, 4},
    {2, 65, 3, 26, 130, 30, 512, 1, 3, 0, 0, BIBERT_FFN_BOOL, 1e-5, 4, 4},
    {2, 63, 1, 63, 33, 30, 130, 64, 1, 0, 0, BIBERT_FFN_BOOL, 1.0, 4, 2},
    {1, 312, 12, 26, 1200, 99, 40, 2, 2, 0, 0, BIBERT_FFN_BOOL, kEps, 2, 2},
    {1, 384, 12, 32, 1536, 99, 40, 2, 2, 0, 0, BIBERT_FFN_BOOL, kEps, 4, 4},
    {1, 768, 12, 64, 3072, 99, 20, 2, 2, 0, 0, BIBERT_FFN_BOOL, kEps, 2, 4},
};

bibert_config random_config(Random& random) {
  bibert_config config{};
  config.layers = random.between(1, 3);
  config.hidden = random.between(1, 200);
  config.heads = random.between(1, 4);
  config.head_size = random.between(1, 64);
  config.intermediate = random.between(1, 400);
  config.vocabulary = random.between(1, 100);
  config.positions = random.between(1, 512);
  config.token_types = random.between(1, 4);
  config.labels = random.between(1, 5);
  config.thresholds = random.between(0, 1) * random.between(0, 255);
  config.score_thresholds = random.between(0, 1);
  config.ffn_levels = random.between(0, 1) != 0 ? BIBERT_FFN_BOOL : BIBERT_FFN_SIGN;
  config.norm_eps = random.between(0, 1) != 0 ? kEps : 1e-3;
  config.activation_bits = config.attention_bits = 1;
  if (random.between(0, 2) == 0) return config;
  config.thresholds = config.score_thresholds = 0;
  config.ffn_levels = BIBERT_FFN_BOOL;
  config.activation_bits = 2 * random.between(1, 2);
  config.attention_bits = 2 * random.between(1, 2);
  return config;
}

Batch random_batch(Random& random, const bibert_config& config) {
  constexpr size_t kEnoughTokens = 600;
  constexpr uint32_t kLongest[] = {1, 5, 40, 130, 512};
  const uint32_t longest = std::min(config.positions, kLongest[random.between(0, 4)]);
  const bool has_types = random.between(0, 1) != 0;
  const bool has_positions = random.between(0, 2) == 0;
  Batch batch;
  for (uint32_t left = random.between(1, 12); left > 0 && batch.ids.size() < kEnoughTokens; --left) {
    batch.lengths.push_back(left == 1 ? longest : random.between(1, longest));
    for (uint32_t i = 0; i < batch.lengths.back(); ++i) {
      batch.ids.push_back(random.index(config.vocabulary));
      if (has_types) batch.token_types.push_back(random.index(config.token_types));
      if (has_positions) batch.positions.push_back(random.index(config.positions));
    }
  }
  return batch;
}

// Appends sequence `index` of a batch to another batch.
void append(const Batch& from, size_t index, Batch& to) {
  size_t first = 0;
  for (size_t i = 0; i < index; ++i) first += from.lengths[i];
  const uint32_t length = from.lengths[index];
  const auto append_list = [&](const std::vector<int32_t>& list, std::vector<int32_t>& out) {
    if (!list.empty()) out.insert(out.end(), list.data() + first, list.data() + first + length);
  };
  to.lengths.push_back(length);
  append_list(from.ids, to.ids);
  append_list(from.token_types, to.token_types);
  append_list(from.positions, to.positions);
}

// FNV-1a.
class Hash {
 public:
  void add(const Logits& logits) {
    for (const float logit : logits) {
      unsigned char bytes[sizeof(float)];
      std::memcpy(bytes, &logit, sizeof(logit));
      for (const unsigned char byte : bytes) state_ = (state_ ^ byte) * 0x100000001B3U;
    }
  }
  unsigned long long value() const { return state_; }

 private:
  uint64_t state_ = 0xCBF29CE484222325U;
};

class ModelTest {
 public:
  void test(uint64_t seed, const bibert_config& config, sample::Numbers numbers);
  int finish() const;

 private:
  void test_batch(Random& random, Engine& engine, const Batch& batch, const Logits& wanted);
  void test_parts(Random& random, Engine& engine, const Batch& batch, const Logits& wanted);
  void expect_same(const Logits& found, const Logits& wanted, const char* how) {
    checks_.expect(
        found.size() == wanted.size() && std::memcmp(found.data(), wanted.data(), wanted.size() * sizeof(float)) == 0,
        what_ + ", " + how + ": not the bits of the reference");
  }

  harness::Checks checks_;
  std::string what_;
  std::map<std::string, Hash> hashes_;
};

void ModelTest::test(uint64_t seed, const bibert_config& config, sample::Numbers numbers) {
  Random random(seed);
  const Bytes data = harness::random_data(random, config, numbers);
  what_ = "seed " + std::to_string(seed);
  checks_.expect(bibert_data_size(&config) == data.size(), what_ + ": not the size of docs/packed-format.md");
  Engine reference(config, data, "reference");
  for (int i = 0; i < 2; ++i) {
    const Batch batch = random_batch(random, config);
    const Logits wanted = reference.run(batch, 1);
    checks_.expect(numbers == sample::Numbers::kAnyFinite || reference.status() == BIBERT_OK, what_ + ": no result");
    for (const std::string& isa : harness::available_isas()) {
      what_ = isa + ", seed " + std::to_string(seed);
      Engine engine(config, data, isa);
      checks_.expect(bibert_model_isa(engine.model()) == isa, what_ + ": not the chosen instruction set");
      const Logits found = engine.run(batch, 1);
      checks_.expect(engine.status() == reference.status(), what_ + ": not the status of the reference");
      expect_same(found, wanted, "one thread");
      hashes_[isa].add(found);
      test_batch(random, engine, batch, wanted);
    }
  }
}

// Runs a batch in all the ways that must not change the result.
void ModelTest::test_batch(Random& random, Engine& engine, const Batch& batch, const Logits& wanted) {
  const bool has_result = engine.status() == BIBERT_OK;
  expect_same(engine.run(batch, random.between(2, 16)), wanted, "several threads");
  expect_same(engine.run(batch, 0), wanted, "a thread for each CPU");
  expect_same(engine.run(harness::spelled_out(batch), 1), wanted, "with explicit types and positions");
  if (has_result) test_parts(random, engine, batch, wanted);  // one faulty sequence fails the batch
}

void ModelTest::test_parts(Random& random, Engine& engine, const Batch& batch, const Logits& wanted) {
  const size_t count = batch.lengths.size();
  const size_t labels = wanted.size() / count;
  Batch reversed;
  for (size_t i = count; i > 0; --i) append(batch, i - 1, reversed);
  const Logits found = engine.run(reversed, 1);
  for (size_t i = 0; i < count; ++i) {
    const auto slice = [&](const Logits& from, size_t index) {
      return Logits(&from[index * labels], &from[index * labels] + labels);
    };
    Batch alone;
    append(batch, i, alone);
    expect_same(engine.run(alone, random.between(1, 16)), slice(wanted, i), "alone");
    expect_same(slice(found, count - 1 - i), slice(wanted, i), "in reversed order");
  }
}

int ModelTest::finish() const {
  for (const auto& [isa, hash] : hashes_) std::printf("%s: logits 0x%016llx\n", isa.c_str(), hash.value());
  return checks_.finish("model_test");
}

}  // namespace

int main(int count, char** arguments) {
  const unsigned long rounds = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 12;
  const unsigned long first = count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 0;
  ModelTest test;
  uint64_t seed = 0;
  for (const bibert_config& config : kFixed) test.test(++seed, config, sample::Numbers::kSmall);
  seed += first;
  for (unsigned long round = first + 1; round <= first + rounds; ++round) {
    Random random(round);
    // Numbers of any size usually leave the range of LayerNorm: every instruction set must detect it.
    const bool small = round % 4 != 0;
    test.test(++seed, random_config(random), small ? sample::Numbers::kSmall : sample::Numbers::kAnyFinite);
  }
  return test.finish();
}
