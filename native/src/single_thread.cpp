// The thread pool of targets without threads, such as WebAssembly: the caller does all the work.
#include "thread_pool.h"

namespace bibert {

size_t allowed_cpus() { return 1; }

ThreadPool::ThreadPool() : state_(nullptr) {}

ThreadPool::~ThreadPool() = default;

void ThreadPool::run(size_t count, size_t /*threads*/, const Call& call) {
  for (size_t i = 0; i < count; ++i) call.function(call.task, i, 0);
}

}  // namespace bibert
