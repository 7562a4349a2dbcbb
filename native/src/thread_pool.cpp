// The thread pool: a mutex and two condition variables, with a short spin before each wait because the next phase of a
// forward pass usually follows within microseconds.
#include "thread_pool.h"

#if !defined(_WIN32)
#include <sched.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace bibert {
namespace {

#if defined(_WIN32)
int process_id() { return 0; }  // there is no fork()
#else
pid_t process_id() { return getpid(); }
#endif

// Longer would waste a shared CPU. A time, not a number of iterations: on a busy machine one yield() may last as long
// as the time slices of other threads.
constexpr std::chrono::microseconds kSpin{50};

template <class Condition>
void spin_until(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

}  // namespace

size_t allowed_cpus() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return static_cast<size_t>(CPU_COUNT(&set));
#endif
  const unsigned count = std::thread::hardware_concurrency();
  return count == 0 ? 1 : count;
}

struct ThreadPool::State {
  const decltype(process_id()) process = process_id();
  std::mutex busy;  // held by the caller whose tasks run

  std::mutex mutex;  // guards the fields up to `stopping`
  std::condition_variable wake;
  std::condition_variable done;
  std::vector<std::thread> workers;
  Call call{};
  size_t count = 0;
  size_t wanted = 0;  // workers that may still join the current round
  size_t inside = 0;  // workers that have joined and not left
  bool stopping = false;

  std::atomic<size_t> round{0};
  std::atomic<size_t> next{0};
  std::atomic<size_t> unfinished{0};  // tasks of the round

  void work(size_t worker) {
    for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      call.function(call.task, i, worker);
      unfinished.fetch_sub(1);
    }
  }

  void serve() {
    std::fesetenv(FE_DFL_ENV);  // instead of the mode of the thread that started this one
    size_t seen = 0;
    size_t worker = 0;
    for (;;) {
      spin_until([&] { return round.load() != seen; });
      {
        std::unique_lock<std::mutex> lock(mutex);
        wake.wait(lock, [&] { return stopping || round.load() != seen; });
        if (stopping) return;
        seen = round.load();
        if (wanted == 0) continue;
        worker = wanted--;  // the caller is worker 0
        ++inside;
      }
      work(worker);
      std::lock_guard<std::mutex> lock(mutex);
      --inside;
      done.notify_one();
    }
  }

  // Starts workers until there are `needed`, or fewer if the system refuses more threads.
  void grow(size_t needed) {
    while (workers.size() < needed) {
      try {
        workers.emplace_back([this] { serve(); });
      } catch (const std::system_error&) {
        return;
      }
    }
  }

  void run(size_t tasks, size_t threads, const Call& called) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      grow(threads - 1);
      call = called;
      count = tasks;
      wanted = threads - 1;
      next.store(0);
      unfinished.store(tasks);
      round.fetch_add(1);
    }
    wake.notify_all();
    work(0);
    spin_until([&] { return unfinished.load() == 0; });
    std::unique_lock<std::mutex> lock(mutex);
    wanted = 0;  // a worker that wakes up now is too late
    done.wait(lock, [&] { return inside == 0; });
  }

  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stopping = true;
      round.fetch_add(1);  // also ends the spinning
    }
    wake.notify_all();
    for (std::thread& worker : workers) worker.join();
  }
};

ThreadPool::ThreadPool() : state_(new State) {}

ThreadPool::~ThreadPool() {
  State* last = state_.load();
  if (last->process != process_id()) return;  // a forked child cannot join the threads of its parent
  last->stop();
  delete last;
}

// In a forked child the threads of the parent do not exist and its mutexes may stay locked forever. So the child leaks
// that state and creates its own.
ThreadPool::State& ThreadPool::state() {
  State* present = state_.load();
  if (present->process == process_id()) return *present;
  State* fresh = new State;
  if (state_.compare_exchange_strong(present, fresh)) return *fresh;
  delete fresh;
  return *present;
}

void ThreadPool::run(size_t count, size_t threads, const Call& call) {
  threads = std::min({threads, count, kMostThreads});
  if (threads > 1) {
    State& pool = state();
    std::unique_lock<std::mutex> mine(pool.busy, std::try_to_lock);
    if (mine.owns_lock()) return pool.run(count, threads, call);
  }
  for (size_t i = 0; i < count; ++i) call.function(call.task, i, 0);
}

}  // namespace bibert
