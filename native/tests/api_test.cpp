// Everything that the C API has to reject: each kind of bad config, data, batch and pointer, with its status and the
// facts in its message. Prints each failure, and exits with 1 if there is one.
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

constexpr bibert_config kConfig = {2, 70, 2, 33, 90, 11, 9, 2, 3, 0xFF, 1, BIBERT_FFN_SIGN, 1e-12, 1, 1};
constexpr bibert_config kLevels = {2, 70, 2, 33, 90, 11, 9, 2, 3, 0, 0, BIBERT_FFN_BOOL, 1e-12, 4, 2};

harness::Checks checks;

// What a message must mention: names and numbers, not its wording.
using Facts = std::vector<std::string>;

void expect_error(bibert_status found, bibert_status wanted, const Facts& facts) {
  const std::string message = bibert_last_error();
  checks.expect(found == wanted,
                "status " + std::to_string(found) + ", not " + std::to_string(wanted) + ": " + message);
  checks.expect(message.find('\n') == std::string::npos, "more than one line: " + message);
  for (const std::string& fact : facts) {
    checks.expect(message.find(fact) != std::string::npos, "'" + message + "' does not mention '" + fact + "'");
  }
}

bibert_model* anything() { return reinterpret_cast<bibert_model*>(uintptr_t{0x1234}); }

void expect_bad_model(const bibert_config& config, const Bytes& data, const Facts& facts) {
  bibert_model* model = anything();
  expect_error(bibert_model_create(&config, data.data(), data.size(), nullptr, &model), BIBERT_BAD_MODEL, facts);
  checks.expect(model == nullptr, "a failed call sets the model to NULL");
}

void expect_bad_config(const bibert_config& config, const Facts& facts) {
  checks.expect(bibert_data_size(&config) == 0, "a bad config has no size");
  expect_error(BIBERT_BAD_MODEL, BIBERT_BAD_MODEL, facts);
  expect_bad_model(config, Bytes(1000), facts);
}

void test_bad_configs() {
  struct Field {
    const char* name;
    uint32_t bibert_config::*field;
    std::vector<uint32_t> bad;
    const char* range;
  };
  const Field fields[] = {{"layers", &bibert_config::layers, {0, 49}, "1 to 48"},
                          {"hidden", &bibert_config::hidden, {0, 4097}, "1 to 4096"},
                          {"heads", &bibert_config::heads, {0, 257}, "1 to 256"},
                          {"head_size", &bibert_config::head_size, {0, 65}, "1 to 64"},
                          {"intermediate", &bibert_config::intermediate, {0, 16385}, "1 to 16384"},
                          {"vocabulary", &bibert_config::vocabulary, {0, 1048577}, "1 to 1048576"},
                          {"positions", &bibert_config::positions, {0, 8193, 0xFFFFFFFF}, "1 to 8192"},
                          {"token_types", &bibert_config::token_types, {0, 65}, "1 to 64"},
                          {"labels", &bibert_config::labels, {0, 65537}, "1 to 65536"},
                          {"thresholds", &bibert_config::thresholds, {256, 0xFFFFFFFF}, "0 to 255"},
                          {"score_thresholds", &bibert_config::score_thresholds, {2}, "0 to 1"},
                          {"ffn_levels", &bibert_config::ffn_levels, {2}, "0 to 1"}};
  for (const Field& field : fields) {
    for (const uint32_t bad : field.bad) {
      bibert_config config = kConfig;
      config.*field.field = bad;
      expect_bad_config(config, {field.name, std::to_string(bad), field.range});
    }
  }
  bibert_config wide = kConfig;
  wide.heads = 65;
  wide.head_size = 64;
  expect_bad_config(wide, {"65 heads", "64", "4096"});
  for (const double bad : {0.0, -1.0, 1.5, std::nan(""), std::numeric_limits<double>::infinity()}) {
    bibert_config config = kConfig;
    config.norm_eps = bad;
    expect_bad_config(config, {"norm_eps", std::to_string(bad)});
  }
}

void test_bad_bits() {
  constexpr uint32_t kPairs[][2] = {{0, 0}, {1, 2}, {4, 1}, {3, 3}, {2, 3}, {8, 4}, {2, 0xFFFFFFFF}};
  for (const auto& [activation, attention] : kPairs) {
    bibert_config config = kLevels;
    config.activation_bits = activation;
    config.attention_bits = attention;
    expect_bad_config(config, {"activation_bits is " + std::to_string(activation),
                               "attention_bits is " + std::to_string(attention), "2 or 4"});
  }
  bibert_config config = kLevels;
  config.thresholds = 8;
  expect_bad_config(config, {"thresholds is 8", "4 activation bits"});
  config = kLevels;
  config.score_thresholds = 1;
  expect_bad_config(config, {"score_thresholds 1", "4 activation bits"});
  config = kLevels;
  config.ffn_levels = BIBERT_FFN_SIGN;
  expect_bad_config(config, {"ffn_levels 0", "4 activation bits"});
}

// Every length of truncated data, in memory of that length, so that AddressSanitizer sees a read past its end.
void test_bad_sizes(Random& random, const bibert_config& config) {
  Bytes whole = harness::random_data(random, config, sample::Numbers::kSmall);
  const size_t size = whole.size();
  checks.expect(Engine(config, whole, "").status() == BIBERT_OK, "the model of this test is accepted");
  whole.resize(size + 9);
  for (size_t bad = 0; bad <= whole.size(); ++bad) {
    if (bad == size) continue;
    const Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bad));
    static const unsigned char kEmpty = 0;
    bibert_model* model = anything();
    const void* data = part.empty() ? &kEmpty : part.data();
    expect_error(bibert_model_create(&config, data, bad, nullptr, &model), BIBERT_BAD_MODEL,
                 {std::to_string(bad) + " bytes", std::to_string(size)});
  }
}

template <class Number>
void expect_bad_number(const bibert_config& config, Bytes data, size_t at, Number bad, const Facts& facts) {
  std::memcpy(&data[at], &bad, sizeof(bad));
  expect_bad_model(config, data, facts);
}

// Puts each kind of invalid entry into every tensor.
void test_bad_entries(Random& random, const bibert_config& config) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Bytes data = harness::random_data(random, config, sample::Numbers::kSmall);
  const sample::Schema schema(config);
  size_t at = 0;
  for (const sample::Tensor& tensor : schema.tensors()) {
    const size_t row = random.between(0, static_cast<uint32_t>(tensor.rows) - 1);
    const size_t number_in_tensor = row * tensor.columns + tensor.columns / 2;
    const size_t number = at + number_in_tensor * sizeof(float);
    const std::string entry = "entry " + std::to_string(number_in_tensor);
    if (tensor.kind == Kind::kBits) {
      Bytes stray = data;
      stray[at + tensor.bytes() / tensor.rows * (row + 1) - 1] = 0x80;
      expect_bad_model(config, stray, {".bits", "entry " + std::to_string(row), "last column"});
    } else if (tensor.kind == Kind::kIntegers) {
      for (const int32_t bad : {tensor.most + 1, -tensor.most - 1, std::numeric_limits<int32_t>::min()}) {
        expect_bad_number(config, data, number, bad, {"score_threshold", entry, std::to_string(bad), "-34 to 34"});
      }
    } else if (tensor.kind == Kind::kFalling) {
      expect_bad_number(config, data, number, -1, {"attention_threshold", entry, "-1", "negative"});
      const int32_t most = std::numeric_limits<int32_t>::max();
      expect_bad_number(config, data, number, most, {"attention_threshold", entry, std::to_string(most), "before"});
    } else {
      for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
        expect_bad_number(config, data, number, bad, {"entry", "not finite"});
      }
    }
    if (tensor.kind == Kind::kScales) {
      for (const float bad : {-0.0F, -0.001F})
        expect_bad_number(config, data, number, bad, {".scale", "entry", "negative"});
    }
    if (tensor.kind == Kind::kRate) {
      for (const float bad : {0.0F, -0.0F, -1.0F}) expect_bad_number(config, data, number, bad, {"above 0"});
    }
    at += tensor.bytes();
  }
}

void test_bad_batches(const Bytes& data, const std::string& isa) {
  const Batch good = harness::spelled_out({{2, 9}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {}, {}});
  Engine engine(kConfig, data, isa);
  const Logits wanted = engine.run(good, 1);
  checks.expect(engine.status() == BIBERT_OK, isa + ": a good batch is rejected");
  const auto expect_bad = [&](auto&& spoil, const Facts& facts) {
    Batch batch = good;
    spoil(batch);
    engine.run(batch, 1);
    expect_error(engine.status(), BIBERT_BAD_ARGUMENT, facts);
  };
  expect_bad([](Batch& b) { b.lengths[1] = 0; }, {"sequence 1", "0 tokens", "1 to 9"});
  expect_bad([](Batch& b) { b.lengths[0] = 10; }, {"sequence 0", "10 tokens", "1 to 9"});
  expect_bad([](Batch& b) { b.lengths[1] = 0xFFFFFFFF; }, {"sequence 1", "4294967295 tokens", "1 to 9"});
  expect_bad([](Batch& b) { b.ids[3] = -1; }, {"sequence 1, token 1", "id is -1", "0 to 10"});
  expect_bad([](Batch& b) { b.ids[10] = 11; }, {"sequence 1, token 8", "id is 11", "0 to 10"});
  expect_bad([](Batch& b) { b.token_types[0] = -1; }, {"sequence 0, token 0", "type is -1", "0 to 1"});
  expect_bad([](Batch& b) { b.token_types[1] = 2; }, {"sequence 0, token 1", "type is 2", "0 to 1"});
  expect_bad([](Batch& b) { b.positions[4] = -5; }, {"sequence 1, token 2", "position is -5", "0 to 8"});
  expect_bad([](Batch& b) { b.positions[4] = 9; }, {"sequence 1, token 2", "position is 9", "0 to 8"});
  checks.expect(engine.run(good, 3) == wanted, isa + ": errors change later results");
}

void test_null_pointers(const Bytes& data) {
  const auto expect_bad_create = [](const bibert_config* config, const Bytes* bytes, const char* name) {
    bibert_model* model = anything();
    const void* from = bytes != nullptr ? bytes->data() : nullptr;
    expect_error(bibert_model_create(config, from, 1, nullptr, &model), BIBERT_BAD_ARGUMENT, {name, "NULL"});
    checks.expect(model == nullptr, "a failed call sets the model to NULL");
  };
  expect_bad_create(nullptr, &data, "config");
  expect_bad_create(&kConfig, nullptr, "data");
  expect_error(bibert_model_create(&kConfig, data.data(), data.size(), nullptr, nullptr), BIBERT_BAD_ARGUMENT,
               {"model", "NULL"});
  checks.expect(bibert_data_size(nullptr) == 0, "without a config there is no size");
  checks.expect(std::string(bibert_model_isa(nullptr)).empty(), "without a model there is no instruction set");
  bibert_model_destroy(nullptr);

  const Engine engine(kConfig, data, "reference");
  const Batch batch{{1}, {0}, {}, {}};
  const bibert_batch view = batch.view();
  bibert_batch no_lengths = view, no_ids = view;
  no_lengths.lengths = nullptr;
  no_ids.ids = nullptr;
  Logits logits(kConfig.labels);
  const auto expect_bad = [&](const bibert_model* model, const bibert_batch* from, float* to, const char* name) {
    expect_error(bibert_logits(model, from, 1, to), BIBERT_BAD_ARGUMENT, {name, "NULL"});
  };
  expect_bad(nullptr, &view, logits.data(), "model");
  expect_bad(engine.model(), nullptr, logits.data(), "batch");
  expect_bad(engine.model(), &no_lengths, logits.data(), "lengths");
  expect_bad(engine.model(), &no_ids, logits.data(), "ids");
  expect_bad(engine.model(), &view, nullptr, "logits");
  const bibert_batch empty{0, nullptr, nullptr, nullptr, nullptr};
  checks.expect(bibert_logits(engine.model(), &empty, 1, nullptr) == BIBERT_OK, "an empty batch is allowed");
}

// One position is out of the range of LayerNorm; sequences that do not reach it have a result.
void test_divergence(const bibert_config& config, Bytes data, const std::string& isa) {
  const sample::Schema schema(config);
  const size_t position_table = 1 + 6 * config.layers + 1 + 2;  // after the words, the word scales and the types
  size_t at = 0;
  for (size_t i = 0; i < position_table; ++i) at += schema.tensors()[i].bytes();
  const float beyond = -40000.0F;
  std::memcpy(&data[at + 5 * config.hidden * sizeof(float)], &beyond, sizeof(beyond));
  Engine engine(config, data, isa);
  const Batch batch{{3, 6, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {}, {}};
  for (const uint32_t threads : {1U, 4U}) {
    engine.run(batch, threads);
    expect_error(engine.status(), BIBERT_OUT_OF_RANGE, {"sequence 1", "LayerNorm", "32768", "pack it again"});
  }
  engine.run({{5, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {}, {}}, 1);
  checks.expect(engine.status() == BIBERT_OK, isa + ": no result inside the range");
}

// The rounding mode of the caller does not affect the result, not even in threads that the call starts, and is
// restored. WebAssembly has one rounding mode.
#if defined(FE_UPWARD)
constexpr int kModes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
#else
constexpr int kModes[] = {FE_TONEAREST};
#endif

void test_rounding(const bibert_config& config, const Bytes& data, const std::string& isa) {
  const Batch batch{{9, 4, 9}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {}, {}};
  const Logits wanted = Engine(config, data, isa).run(batch, 1);
  for (const int mode : kModes) {
    std::fesetround(mode);
    Engine engine(config, data, isa);
    const bool same = engine.run(batch, 1) == wanted && engine.run(batch, 3) == wanted;
    const bool kept = std::fegetround() == mode;
    std::fesetround(FE_TONEAREST);
    checks.expect(same, isa + ": the result depends on the rounding mode");
    checks.expect(kept, isa + ": a call changes the rounding mode");
  }
}

void test_unknown_isa(const Bytes& data) {
  const Engine engine(kConfig, data, "mmx");
  expect_error(engine.status(), BIBERT_NO_ISA, {"'mmx'", bibert_available_isas()});
  bibert_model* model = nullptr;
  expect_error(bibert_model_create(&kConfig, data.data(), data.size(), "", &model), BIBERT_NO_ISA, {"''"});
  expect_error(bibert_model_create(&kConfig, data.data(), data.size(), "a\nb", &model), BIBERT_NO_ISA, {"'a b'"});
}

}  // namespace

int main() {
  constexpr bibert_config kSmall = {2, 5, 2, 3, 7, 3, 2, 1, 2, 0xFF, 1, BIBERT_FFN_SIGN, 1e-12, 1, 1};
  constexpr bibert_config kSmallLevels = {1, 5, 2, 3, 7, 3, 2, 1, 2, 0, 0, BIBERT_FFN_BOOL, 1e-12, 2, 4};
  Random random(1);
  const Bytes data = harness::random_data(random, kConfig, sample::Numbers::kSmall);
  const Bytes levels = harness::random_data(random, kLevels, sample::Numbers::kSmall);
  checks.expect(bibert_abi_version() == BIBERT_ABI_VERSION, "the library has the version of its header");
  test_bad_configs();
  test_bad_bits();
  for (const bibert_config& config : {kSmall, kSmallLevels}) test_bad_sizes(random, config);
  for (const bibert_config& config : {kConfig, kLevels}) test_bad_entries(random, config);
  test_null_pointers(data);
  test_unknown_isa(data);
  for (const std::string& isa : harness::available_isas()) {
    test_bad_batches(data, isa);
    test_divergence(kConfig, data, isa);
    test_divergence(kLevels, levels, isa);
    test_rounding(kConfig, data, isa);
    test_rounding(kLevels, levels, isa);
  }
  return checks.finish("api_test");
}
