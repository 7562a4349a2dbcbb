// Lack of memory: for every k, the k-th allocation of a call fails. The call must return a status, leak nothing
// (AddressSanitizer checks) and leave later calls intact. Threads of the pool must not allocate, because they could not
// report a failure. Also exceptions of unknown type, and data at odd addresses.
//
// Prints each failure, and exits with 1 if there is one.
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <new>

#include "harness.h"

namespace {

constexpr size_t kNever = ~size_t{0};
thread_local bool is_main = false;
size_t fail_at = kNever;                     // the index of the failing allocation of the main thread
size_t allocations = 0;                      // of the main thread
bool throws_int = false;                     // a failing operator new throws 1 instead of std::bad_alloc
std::atomic<size_t> foreign_allocations{0};  // of all others

bool may_allocate() {
  if (is_main) return allocations++ != fail_at;
  ++foreign_allocations;
  return true;
}

// Makes an allocation fail while it exists.
class Failure {
 public:
  explicit Failure(size_t at) {
    allocations = 0;
    fail_at = at;
  }
  ~Failure() { fail_at = kNever; }
  bool happened() const { return allocations > fail_at; }
};

}  // namespace

// GCC sees that free() gets memory of this operator new(), but not that it comes from malloc().
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(size_t size) {
  void* memory = may_allocate() ? std::malloc(size == 0 ? 1 : size) : nullptr;
  if (memory == nullptr && throws_int) throw 1;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

extern "C" void* aligned_alloc(size_t alignment, size_t size) {
  static const auto real = reinterpret_cast<void* (*)(size_t, size_t)>(dlsym(RTLD_NEXT, "aligned_alloc"));
  return may_allocate() ? real(alignment, size) : nullptr;
}

namespace {

using harness::Batch;
using harness::Bytes;
using harness::Logits;

constexpr uint32_t kLabels = 3;
constexpr bibert_config kConfigs[] = {
    {2, 70, 2, 33, 90, 11, 40, 2, kLabels, 0xFF, 1, BIBERT_FFN_SIGN, 1e-12, 1, 1},
    {2, 70, 2, 33, 90, 11, 40, 2, kLabels, 0, 0, BIBERT_FFN_BOOL, 1e-12, 2, 4},
};
bibert_config current;  // the one that is being tested

harness::Checks checks;

// Repeats `call`, each time with the next of its allocations failing, until no allocation is left to fail.
template <class Call>
void for_every_failure(const std::string& name, const Call& call) {
  bool failed = true;
  for (size_t k = 0; failed; ++k) {
    bibert_status status;
    {
      const Failure failure(k);
      status = call();
      failed = failure.happened();
    }
    checks.expect(failed || k > 0, name + ": does not allocate, so this test is pointless");
    checks.expect(!failed || status != BIBERT_OK,
                  name + ": returns BIBERT_OK in spite of failing allocation " + std::to_string(k));
    checks.expect(!failed || std::strlen(bibert_last_error()) > 0, name + ": has no message");
  }
}

void test_create(const Bytes& data) {
  for_every_failure("bibert_model_create", [&] {
    bibert_model* model = nullptr;
    const bibert_status status = bibert_model_create(&current, data.data(), data.size(), nullptr, &model);
    bibert_model_destroy(model);
    return status;
  });
}

// Exceptions of any type become a status: here operator new throws an int.
void test_foreign_exceptions(const Bytes& data) {
  size_t failures = 0;
  throws_int = true;
  for_every_failure("bibert_model_create with foreign exceptions", [&] {
    bibert_model* model = nullptr;
    const bibert_status status = bibert_model_create(&current, data.data(), data.size(), nullptr, &model);
    failures += status == BIBERT_FAILURE && model == nullptr;
    bibert_model_destroy(model);
    return status;
  });
  throws_int = false;
  checks.expect(failures > 0, "operator new is called, so the exception is thrown");
}

void test_errors(const bibert_model* model, const Bytes& data) {
  for_every_failure("the error of a bad config", [&] {
    bibert_config config = current;
    config.heads = 0;
    bibert_model* made = nullptr;
    return bibert_model_create(&config, data.data(), data.size(), nullptr, &made);
  });
  const uint32_t length = 1;
  const int32_t id = -1;
  for_every_failure("the error of a bad batch", [&] {
    const bibert_batch batch = {1, &length, &id, nullptr, nullptr};
    float logits[kLabels];
    return bibert_logits(model, &batch, 1, logits);
  });
}

void test_logits(const Bytes& data, uint32_t threads) {
  Batch batch;
  batch.lengths = {40, 3, 40, 17};
  batch.ids.assign(100, 5);
  harness::Engine engine(current, data, "");
  const Logits right = engine.run(batch, 1);
  checks.expect(engine.status() == BIBERT_OK, "the model of this test has a result");
  engine.run(batch, threads);  // starts the threads
  foreign_allocations = 0;
  const bibert_batch view = batch.view();
  Logits found(right.size());
  for_every_failure("bibert_logits", [&] { return bibert_logits(engine.model(), &view, threads, found.data()); });
  checks.expect(foreign_allocations == 0, "a thread of the pool allocates");
  checks.expect(std::memcmp(found.data(), right.data(), right.size() * sizeof(float)) == 0,
                "failures change later results");
}

// If there is not enough memory to start threads, the call uses fewer or reports it.
void test_first_threads(const Bytes& data) {
  const std::vector<uint32_t> lengths(20, 40);
  const std::vector<int32_t> ids(800, 1);
  const bibert_batch batch = {20, lengths.data(), ids.data(), nullptr, nullptr};
  for (size_t k = 0; k < 400; ++k) {
    harness::Engine engine(current, data, "");
    Logits logits(60);
    bibert_status status;
    {
      const Failure failure(k);
      status = bibert_logits(engine.model(), &batch, 3, logits.data());
    }
    checks.expect(status == BIBERT_OK || status == BIBERT_NO_MEMORY,
                  "first call with failing allocation " + std::to_string(k));
  }
}

void test_addresses(const Bytes& data) {
  harness::Engine aligned(current, data, "");
  Batch batch;
  batch.lengths = {40};
  batch.ids.assign(40, 7);
  const Logits right = aligned.run(batch, 1);
  for (size_t skip = 1; skip < 16; ++skip) {
    Bytes moved(skip + data.size());  // ends with the data, so that AddressSanitizer sees a read past its end
    std::memcpy(moved.data() + skip, data.data(), data.size());
    bibert_model* model = nullptr;
    Logits found(right.size());
    const bibert_batch view = batch.view();
    checks.expect(bibert_model_create(&current, moved.data() + skip, data.size(), nullptr, &model) == BIBERT_OK,
                  "data at an odd address is rejected");
    moved.assign(moved.size(), 0xFF);  // the model has its own copy
    checks.expect(bibert_logits(model, &view, 1, found.data()) == BIBERT_OK &&
                      std::memcmp(found.data(), right.data(), right.size() * sizeof(float)) == 0,
                  "data at an odd address makes another model");
    bibert_model_destroy(model);
  }
}

}  // namespace

int main() {
  is_main = true;
  harness::Random random(1);
  for (const bibert_config& config : kConfigs) {
    current = config;
    const Bytes data = harness::random_data(random, current, sample::Numbers::kSmall);
    harness::Engine engine(current, data, "");
    test_addresses(data);
    test_create(data);
    test_foreign_exceptions(data);
    for (const uint32_t threads : {1U, 3U}) test_logits(data, threads);
    test_first_threads(data);
    test_errors(engine.model(), data);
  }
  return checks.finish("memory_test");
}
