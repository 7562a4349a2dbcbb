// What the C API has to refuse: each kind of bad config, data, batch and pointer, with its status and in its words.
// Prints what is not refused as it should be, and ends with 1 then.
#include <cfenv>
#include <limits>

#include "harness.h"

namespace {

using harness::Batch;
using harness::Bytes;
using harness::Engine;
using harness::Logits;
using harness::Random;
using sample::Kind;

constexpr bibert_config kConfig = {2, 70, 2, 33, 90, 11, 9, 2, 3, 0xFF, 1, BIBERT_FFN_SIGN, 1e-12};

harness::Checks checks;

// The status, and one line with these words.
void expect_refusal(bibert_status found, bibert_status wanted, const std::string& words) {
  const std::string message = bibert_last_error();
  checks.expect(found == wanted && message.find(words) != std::string::npos && message.find('\n') == std::string::npos,
                "status " + std::to_string(found) + " '" + message + "' where there should be " +
                    std::to_string(wanted) + " '" + words + "'");
}

bibert_model* anything() { return reinterpret_cast<bibert_model*>(uintptr_t{0x1234}); }

void expect_bad_model(const bibert_config& config, const Bytes& data, uint64_t size, const std::string& words) {
  bibert_model* model = anything();
  expect_refusal(bibert_model_create(&config, data.data(), size, nullptr, &model), BIBERT_BAD_MODEL, words);
  checks.expect(model == nullptr, "there is a model in spite of: " + words);
}

void expect_bad_config(const bibert_config& config, const std::string& words) {
  checks.expect(bibert_data_size(&config) == 0, "there is a size in spite of: " + words);
  expect_bad_model(config, Bytes(1000), 1000, words);
}

void test_bad_configs() {
  struct Field {
    uint32_t bibert_config::*field;
    std::vector<uint32_t> bad;
    const char* words;
  };
  const Field fields[] = {{&bibert_config::layers, {0, 49}, "must be from 1 to 48"},
                          {&bibert_config::hidden, {0, 4097}, "must be from 1 to 4096"},
                          {&bibert_config::heads, {0, 257}, "must be from 1 to 256"},
                          {&bibert_config::head_size, {0, 65}, "must be from 1 to 64"},
                          {&bibert_config::intermediate, {0, 16385}, "must be from 1 to 16384"},
                          {&bibert_config::vocabulary, {0, 1048577}, "must be from 1 to 1048576"},
                          {&bibert_config::positions, {0, 8193, 0xFFFFFFFF}, "must be from 1 to 8192"},
                          {&bibert_config::token_types, {0, 65}, "must be from 1 to 64"},
                          {&bibert_config::labels, {0, 65537}, "must be from 1 to 65536"},
                          {&bibert_config::thresholds, {256, 0xFFFFFFFF}, "config: thresholds is "},
                          {&bibert_config::score_thresholds, {2}, "score_thresholds is 2, must be from 0 to 1"},
                          {&bibert_config::ffn_levels, {2}, "ffn_levels is 2, must be from 0 to 1"}};
  for (const Field& field : fields) {
    for (const uint32_t bad : field.bad) {
      bibert_config config = kConfig;
      config.*field.field = bad;
      expect_bad_config(config, field.words);
    }
  }
  bibert_config wide = kConfig;
  wide.heads = 65;
  wide.head_size = 64;
  expect_bad_config(wide, "65 heads of 64 make more than 4096 channels");
  for (const double bad : {0.0, -1.0, 1.5, std::nan(""), std::numeric_limits<double>::infinity()}) {
    bibert_config config = kConfig;
    config.norm_eps = bad;
    expect_bad_config(config, "norm_eps");
  }
}

// Every length of truncated data, in memory of that length, so that AddressSanitizer sees a read past its end.
void test_bad_sizes(Random& random) {
  constexpr bibert_config kSmall = {2, 5, 2, 3, 7, 3, 2, 1, 2, 0xFF, 1, BIBERT_FFN_SIGN, 1e-12};
  Bytes whole = harness::random_data(random, kSmall, sample::Numbers::kSmall);
  const size_t size = whole.size();
  checks.expect(Engine(kSmall, whole, "").status() == BIBERT_OK, "the model of this test is accepted");
  whole.resize(size + 9);
  for (size_t bad = 0; bad <= whole.size(); ++bad) {
    if (bad == size) continue;
    const Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bad));
    static const unsigned char kEmpty = 0;
    bibert_model* model = anything();
    const void* data = part.empty() ? &kEmpty : part.data();
    expect_refusal(bibert_model_create(&kSmall, data, bad, nullptr, &model), BIBERT_BAD_MODEL,
                   "data: has " + std::to_string(bad) + " bytes, the config needs " + std::to_string(size));
  }
}

void expect_bad_number(Bytes data, size_t at, float bad, const char* words) {
  std::memcpy(&data[at], &bad, sizeof(bad));
  expect_bad_model(kConfig, data, data.size(), words);
}

// Every tensor in turn gets each kind of entry that it must not have.
void test_bad_entries(Random& random, const Bytes& data) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const sample::Schema schema(kConfig);
  size_t at = 0;
  for (const sample::Tensor& tensor : schema.tensors()) {
    const size_t row = random.between(0, static_cast<uint32_t>(tensor.rows) - 1);
    const size_t number = at + (row * tensor.columns + tensor.columns / 2) * sizeof(float);
    if (tensor.kind == Kind::kBits) {
      Bytes stray = data;
      stray[at + tensor.bytes() / tensor.rows * (row + 1) - 1] = 0x80;
      expect_bad_model(kConfig, stray, stray.size(),
                       ".bits: entry " + std::to_string(row) + " has bits after its last column");
    } else if (tensor.kind == Kind::kIntegers) {
      for (const int32_t bad : {tensor.most + 1, -tensor.most - 1, std::numeric_limits<int32_t>::min()}) {
        Bytes beyond = data;
        std::memcpy(&beyond[number], &bad, sizeof(bad));
        expect_bad_model(kConfig, beyond, beyond.size(),
                         "score_threshold: entry " + std::to_string(row) + " is " + std::to_string(bad) +
                             ", must be from -34 to 34");
      }
    } else {
      for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
        expect_bad_number(data, number, bad, "is not finite");
      }
    }
    if (tensor.kind == Kind::kScales) {
      for (const float bad : {-0.0F, -0.001F}) expect_bad_number(data, number, bad, ".scale: entry ");
    }
    at += tensor.bytes();
  }
}

void test_bad_batches(const Bytes& data, const std::string& isa) {
  const Batch good = harness::spelled_out({{2, 9}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {}, {}});
  Engine engine(kConfig, data, isa);
  const Logits wanted = engine.run(good, 1);
  checks.expect(engine.status() == BIBERT_OK, isa + ": a good batch is refused");
  const auto refuse = [&](auto&& spoil, const char* words) {
    Batch batch = good;
    spoil(batch);
    engine.run(batch, 1);
    expect_refusal(engine.status(), BIBERT_BAD_ARGUMENT, words);
  };
  refuse([](Batch& b) { b.lengths[1] = 0; }, "sequence 1: has 0 tokens, must have 1 to 9");
  refuse([](Batch& b) { b.lengths[0] = 10; }, "sequence 0: has 10 tokens, must have 1 to 9");
  refuse([](Batch& b) { b.lengths[1] = 0xFFFFFFFF; }, "sequence 1: has 4294967295 tokens, must have 1 to 9");
  refuse([](Batch& b) { b.ids[3] = -1; }, "sequence 1, token 1: the id is -1, must be from 0 to 10");
  refuse([](Batch& b) { b.ids[10] = 11; }, "sequence 1, token 8: the id is 11, must be from 0 to 10");
  refuse([](Batch& b) { b.token_types[0] = -1; }, "sequence 0, token 0: the token type is -1, must be from 0 to 1");
  refuse([](Batch& b) { b.token_types[1] = 2; }, "sequence 0, token 1: the token type is 2, must be from 0 to 1");
  refuse([](Batch& b) { b.positions[4] = -5; }, "sequence 1, token 2: the position is -5, must be from 0 to 8");
  refuse([](Batch& b) { b.positions[4] = 9; }, "sequence 1, token 2: the position is 9, must be from 0 to 8");
  checks.expect(engine.run(good, 3) == wanted, isa + ": other logits after refusals");
}

void test_null_pointers(const Bytes& data) {
  const auto refuse_model = [](const bibert_config* config, const Bytes* bytes, const char* words) {
    bibert_model* model = anything();
    const void* from = bytes != nullptr ? bytes->data() : nullptr;
    expect_refusal(bibert_model_create(config, from, 1, nullptr, &model), BIBERT_BAD_ARGUMENT, words);
    checks.expect(model == nullptr, std::string("there is a model in spite of: ") + words);
  };
  refuse_model(nullptr, &data, "config is NULL");
  refuse_model(&kConfig, nullptr, "data is NULL");
  expect_refusal(bibert_model_create(&kConfig, data.data(), data.size(), nullptr, nullptr), BIBERT_BAD_ARGUMENT,
                 "model is NULL");
  checks.expect(bibert_data_size(nullptr) == 0, "no config, but a size");
  checks.expect(std::string(bibert_model_isa(nullptr)).empty(), "no model, but an instruction set");
  bibert_model_destroy(nullptr);

  const Engine engine(kConfig, data, "reference");
  const Batch batch{{1}, {0}, {}, {}};
  const bibert_batch view = batch.view();
  bibert_batch no_lengths = view, no_ids = view;
  no_lengths.lengths = nullptr;
  no_ids.ids = nullptr;
  Logits logits(kConfig.labels);
  const auto refuse = [&](const bibert_model* model, const bibert_batch* from, float* to, const char* words) {
    expect_refusal(bibert_logits(model, from, 1, to), BIBERT_BAD_ARGUMENT, words);
  };
  refuse(nullptr, &view, logits.data(), "model is NULL");
  refuse(engine.model(), nullptr, logits.data(), "batch is NULL");
  refuse(engine.model(), &no_lengths, logits.data(), "batch->lengths is NULL");
  refuse(engine.model(), &no_ids, logits.data(), "batch->ids is NULL");
  refuse(engine.model(), &view, nullptr, "logits is NULL");
  const bibert_batch empty{0, nullptr, nullptr, nullptr, nullptr};
  checks.expect(bibert_logits(engine.model(), &empty, 1, nullptr) == BIBERT_OK, "a batch of nothing is refused");
}

// A position row that no LayerNorm takes; sequences that do not reach it have an answer.
void test_divergence(Bytes data, const std::string& isa) {
  const sample::Schema schema(kConfig);
  const size_t position_table = 1 + 6 * kConfig.layers + 1 + 2;  // behind the words, the word scales and the types
  size_t at = 0;
  for (size_t i = 0; i < position_table; ++i) at += schema.tensors()[i].bytes();
  const float beyond = -600.0F;
  std::memcpy(&data[at + 5 * kConfig.hidden * sizeof(float)], &beyond, sizeof(beyond));
  Engine engine(kConfig, data, isa);
  const Batch batch{{3, 6, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {}, {}};
  for (const uint32_t threads : {1U, 4U}) {
    engine.run(batch, threads);
    expect_refusal(engine.status(), BIBERT_OUT_OF_RANGE, "sequence 1: an input of a LayerNorm is not inside +-512");
  }
  engine.run({{5, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {}, {}}, 1);
  checks.expect(engine.status() == BIBERT_OK, isa + ": no answer inside the range");
}

// How the caller rounds changes nothing, in his thread or in those that he starts, and stays as it is.
void test_rounding(const Bytes& data, const std::string& isa) {
  const Batch batch{{9, 4, 9}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {}, {}};
  const Logits wanted = Engine(kConfig, data, isa).run(batch, 1);
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    Engine engine(kConfig, data, isa);
    const bool same = engine.run(batch, 1) == wanted && engine.run(batch, 3) == wanted;
    const bool kept = std::fegetround() == mode;
    std::fesetround(FE_TONEAREST);
    checks.expect(same, isa + ": other logits where the caller rounds otherwise");
    checks.expect(kept, isa + ": the caller rounds otherwise after a call");
  }
}

void test_unknown_isa(const Bytes& data) {
  const Engine engine(kConfig, data, "mmx");
  expect_refusal(engine.status(), BIBERT_NO_ISA, "isa is 'mmx'");
  expect_refusal(engine.status(), BIBERT_NO_ISA, bibert_available_isas());
  bibert_model* model = nullptr;
  expect_refusal(bibert_model_create(&kConfig, data.data(), data.size(), "", &model), BIBERT_NO_ISA, "isa is ''");
  expect_refusal(bibert_model_create(&kConfig, data.data(), data.size(), "a\nb", &model), BIBERT_NO_ISA,
                 "isa is 'a b'");
}

}  // namespace

int main() {
  Random random(1);
  const Bytes data = harness::random_data(random, kConfig, sample::Numbers::kSmall);
  checks.expect(bibert_abi_version() == BIBERT_ABI_VERSION, "the library has another version than its header");
  test_bad_configs();
  test_bad_sizes(random);
  test_bad_entries(random, data);
  test_null_pointers(data);
  test_unknown_isa(data);
  for (const std::string& isa : harness::available_isas()) {
    test_bad_batches(data, isa);
    test_divergence(data, isa);
    test_rounding(data, isa);
  }
  return checks.finish("api_test");
}
