// The C API: exceptions stop here and become a status and a message.
#include <cfenv>
#include <cstdio>
#include <new>
#include <string>

#include "bibert.h"
#include "dispatch.h"
#include "forward.h"
#include "model.h"
#include "thread_pool.h"

// A model and the threads that run it.
struct bibert_model {
  bibert::Model model;
  mutable bibert::ThreadPool pool;
};

namespace {

// A fixed array, because reporting that memory ran out must not allocate.
thread_local char last_error[512] = "";

// Keeps the message on one line, even if a name in it contains line breaks.
void set_last_error(const char* message) noexcept {
  std::snprintf(last_error, sizeof(last_error), "%s", message);
  for (char* c = last_error; *c != 0; ++c) {
    if (*c == '\n' || *c == '\r') *c = ' ';
  }
}

// The numeric contract rounds to nearest and keeps subnormal numbers. The caller's floating-point mode is restored.
class DefaultFloats {
 public:
  DefaultFloats() {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloats() { std::fesetenv(&callers_); }
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

 private:
  std::fenv_t callers_;
};

template <class Function>
bibert_status guarded(const Function& function) noexcept {
  const DefaultFloats floats;
  try {
    function();
    return BIBERT_OK;
  } catch (const bibert::Error& error) {
    set_last_error(error.what());
    return error.status();
  } catch (const std::bad_alloc&) {
    set_last_error("out of memory");
    return BIBERT_NO_MEMORY;
  } catch (const std::exception& error) {
    set_last_error(error.what());
    return BIBERT_FAILURE;
  } catch (...) {
    set_last_error("an exception that is not a std::exception");
    return BIBERT_FAILURE;
  }
}

void require(const void* pointer, const char* name) {
  if (pointer == nullptr) throw bibert::Error(BIBERT_BAD_ARGUMENT, std::string(name) + " is NULL");
}

}  // namespace

extern "C" {

uint32_t bibert_abi_version(void) { return BIBERT_ABI_VERSION; }

const char* bibert_last_error(void) { return last_error; }

uint64_t bibert_data_size(const bibert_config* config) {
  uint64_t size = 0;
  guarded([&] {
    require(config, "config");
    bibert::check_config(*config);
    size = bibert::data_size(*config);
  });
  return size;
}

bibert_status bibert_model_create(const bibert_config* config, const void* data, uint64_t size, const char* isa,
                                  bibert_model** model) {
  return guarded([&] {
    require(model, "model");
    *model = nullptr;
    require(config, "config");
    require(data, "data");
    const size_t bytes = static_cast<size_t>(size);
    *model = new bibert_model{bibert::make_model(*config, data, bytes, bibert::choose_kernels(isa)), {}};
  });
}

void bibert_model_destroy(bibert_model* model) { delete model; }

const char* bibert_model_isa(const bibert_model* model) { return model == nullptr ? "" : model->model.kernels->name; }

bibert_status bibert_logits(const bibert_model* model, const bibert_batch* batch, uint32_t threads, float* logits) {
  return guarded([&] {
    require(model, "model");
    require(batch, "batch");
    if (batch->sequences == 0) return;
    require(batch->lengths, "batch->lengths");
    require(batch->ids, "batch->ids");
    require(logits, "logits");
    const size_t used = threads == 0 ? bibert::allowed_cpus() : threads;
    bibert::compute_logits(model->model, model->pool, *batch, used, logits);
  });
}

bibert_status bibert_attention(const bibert_model* model, const bibert_batch* batch, uint8_t* weights) {
  return guarded([&] {
    require(model, "model");
    require(batch, "batch");
    if (batch->sequences != 1) {
      throw bibert::Error(BIBERT_BAD_ARGUMENT, "batch->sequences is " + std::to_string(batch->sequences) + ", must be 1");
    }
    require(batch->lengths, "batch->lengths");
    require(batch->ids, "batch->ids");
    require(weights, "weights");
    bibert::compute_attention(model->model, model->pool, *batch, weights);
  });
}

const char* bibert_available_isas(void) {
  const char* names = "";
  guarded([&] {
    static const std::string all = bibert::available_names();
    names = all.c_str();
  });
  return names;
}

}  // extern "C"
