// A pool of threads that lives as long as its model. Threads, including the caller's, take tasks from a counter.
//
// Why not OpenMP: its runtime would compete with torch's, and neither survives fork(). This pool starts new threads in
// a forked child, and a caller that finds the pool busy works alone instead of waiting.
#ifndef BIBERT_THREAD_POOL_H
#define BIBERT_THREAD_POOL_H

#include <atomic>
#include <cstddef>

namespace bibert {

constexpr size_t kMostThreads = 256;

// How many CPUs the calling thread may use.
size_t allowed_cpus();

class ThreadPool {
 public:
  ThreadPool();
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls task(i, worker) for every i below count, on at most `threads` threads, and returns when all are done.
  // `worker` is below `threads`, and no two simultaneous calls have the same one, so it can select scratch memory. A
  // task must not throw, and must not run tasks on more than one thread itself.
  template <class Task>
  void run(size_t count, size_t threads, const Task& task) {
    run(count, threads,
        {[](const void* it, size_t i, size_t worker) { (*static_cast<const Task*>(it))(i, worker); }, &task});
  }

 private:
  // A reference to a task; unlike std::function it does not allocate.
  struct Call {
    void (*function)(const void* task, size_t i, size_t worker);
    const void* task;
  };
  struct State;

  void run(size_t count, size_t threads, const Call& call);
  State& state();
  std::atomic<State*> state_;
};

}  // namespace bibert

#endif
