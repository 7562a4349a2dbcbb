// A model shared by many threads, also across fork(), on a single CPU, and if the system refuses to start threads. The
// logits must always be those of one thread. Run it with ThreadSanitizer too (make test-sanitizers).
//
//   threads_test [predictions] [seed]    the total of all threads, 10,000 by default
//
// Prints each failure, and exits with 1 if there is one.
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "harness.h"
#include "thread_pool.h"

namespace {

std::atomic<int> threads_left{-1};  // how many more may be started; unlimited if negative
std::atomic<int> threads_refused{0};

}  // namespace

// Replaces the system's function, so that it can fail as it does at a process limit.
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*start)(void*), void* argument) {
  using Function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left == 0) {
    ++threads_refused;
    return EAGAIN;
  }
  if (threads_left > 0) --threads_left;
  return real(thread, attributes, start, argument);
}

namespace {

using harness::Batch;
using harness::Logits;
using harness::Random;

constexpr bibert_config kConfig = {2, 70, 2, 33, 90, 30, 40, 2, 3, 0, 0, BIBERT_FFN_SIGN, 1e-12, 1, 1};
constexpr uint32_t kThreadCounts[] = {1, 2, 3, 5, 8, 300, 0};

// ThreadSanitizer does not support threads after a fork, and AddressSanitizer's malloc() may stay locked there forever.
#if defined(__SANITIZE_THREAD__)
constexpr bool kCanFork = false, kCanForkWhileBusy = false;
#elif defined(__SANITIZE_ADDRESS__)
constexpr bool kCanFork = true, kCanForkWhileBusy = false;
#else
constexpr bool kCanFork = true, kCanForkWhileBusy = true;
#endif

bool same(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Batches of all shapes, so that threads share sequences and split them, with the logits of one thread.
struct Questions {
  explicit Questions(harness::Engine& engine) {
    Random random(2);
    for (size_t i = 0; i < 48; ++i) {
      Batch batch;
      const uint32_t sequences = i % 8 == 0 ? 9 : random.between(1, 3);
      for (uint32_t s = 0; s < sequences; ++s) batch.lengths.push_back(random.between(1, kConfig.positions));
      for (const uint32_t length : batch.lengths) {
        for (uint32_t t = 0; t < length; ++t) batch.ids.push_back(random.index(kConfig.vocabulary));
      }
      answers.push_back(engine.run(batch, 1));
      batches.push_back(batch);
    }
  }

  // Runs a random batch on a random number of threads; whether the logits are right.
  bool ask(const bibert_model* model, Random& random) const {
    const size_t i = random.between(0, static_cast<uint32_t>(batches.size()) - 1);
    const bibert_batch view = batches[i].view();
    Logits found(answers[i].size());
    const uint32_t threads = kThreadCounts[random.between(0, std::size(kThreadCounts) - 1)];
    return bibert_logits(model, &view, threads, found.data()) == BIBERT_OK && same(found, answers[i]);
  }

  std::vector<Batch> batches;
  std::vector<Logits> answers;
};

harness::Checks checks;

void test_many_callers(const bibert_model* model, const Questions& questions, size_t predictions, size_t seed) {
  constexpr size_t kCallers = 16;
  std::atomic<size_t> wrong{0};
  std::vector<std::thread> callers;
  for (size_t caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      Random random(seed + caller);
      for (size_t i = 0; i < predictions / kCallers; ++i) wrong += questions.ask(model, random) ? 0 : 1;
    });
  }
  for (std::thread& caller : callers) caller.join();
  checks.expect(wrong == 0, std::to_string(wrong) + " results of threads that share a model are wrong");
}

// The exit code of a child; a child that hangs is killed, which is a failure.
int wait_for(pid_t child) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  int status = 0;
  while (std::chrono::steady_clock::now() < end) {
    if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return 254;
}

template <class Function>
void expect_in_child(const Function& function, const std::string& what) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) _exit(function() ? 0 : 1);
  const int status = wait_for(child);
  checks.expect(status == 0, what + ": the child ended with " + std::to_string(status));
}

// Forks while another thread computes, so that the pool is in use at that moment.
void test_fork(harness::Engine& engine, const Questions& questions, size_t forks) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    Random random(7);
    while (kCanForkWhileBusy && !stop) questions.ask(engine.model(), random);
  });
  for (size_t i = 0; i < forks; ++i) {
    expect_in_child(
        [&] {
          Random random(i);
          bool right = true;
          for (size_t k = 0; k < 4; ++k) right = right && questions.ask(engine.model(), random);
          bibert_model_destroy(const_cast<bibert_model*>(engine.model()));
          return right;
        },
        "fork " + std::to_string(i));
  }
  stop = true;
  busy.join();
}

// Threads inherit the CPUs of the thread that starts them.
void test_one_cpu(const harness::Bytes& data, const Questions& questions) {
  std::thread([&] {
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof(allowed), &allowed);
    CPU_ZERO(&one);
    for (size_t cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
    }
    checks.expect(sched_setaffinity(0, sizeof(one), &one) == 0, "the test can bind itself to a CPU");
    checks.expect(bibert::allowed_cpus() == 1, "the library sees that it has one CPU");
    harness::Engine engine(kConfig, data, "");
    Random random(3);
    for (size_t i = 0; i < 100; ++i) checks.expect(questions.ask(engine.model(), random), "on one CPU");
  }).join();
}

void test_no_threads(const harness::Bytes& data, const Questions& questions) {
  for (const int left : {0, 1, 2}) {
    harness::Engine engine(kConfig, data, "");
    Random random(5);
    threads_left = left;
    for (size_t i = 0; i < 100; ++i) {
      checks.expect(questions.ask(engine.model(), random), "if " + std::to_string(left) + " threads can be started");
    }
    checks.expect(threads_refused.exchange(0) > 0, "a thread is refused");
    threads_left = -1;
    for (size_t i = 0; i < 10; ++i) checks.expect(questions.ask(engine.model(), random), "with threads again");
  }
}

}  // namespace

int main(int count, char** arguments) {
  const size_t predictions = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 10000;
  const size_t seed = count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 0;
  Random random(1);
  const harness::Bytes data = harness::random_data(random, kConfig, sample::Numbers::kSmall);
  for (const std::string& isa : harness::available_isas()) {
    harness::Engine engine(kConfig, data, isa);
    test_many_callers(engine.model(), Questions(engine), predictions, seed);
  }
  harness::Engine engine(kConfig, data, "");
  const Questions questions(engine);
  checks.expect(engine.status() == BIBERT_OK, "the model of this test has results");
  if (kCanFork) test_fork(engine, questions, 50);
  test_one_cpu(data, questions);
  test_no_threads(data, questions);
  return checks.finish("threads_test");
}
