// Packed bits and aligned memory. The bit order is that of docs/packed-format.md: channel c is bit c % 64 of word
// c / 64, and the bits after the last channel are 0.
#ifndef BIBERT_BITS_H
#define BIBERT_BITS_H

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace bibert {

constexpr size_t kWordBits = 64;
constexpr size_t kAlignment = 64;  // one cache line, one AVX-512 register

// The functions here and in kernels.h are static: the kernel files are compiled for newer CPUs, and of an inline
// function the linker might keep their copy for everybody.
static constexpr size_t words_for(size_t channels) { return (channels + kWordBits - 1) / kWordBits; }

// The length of every array over channels. It saves the kernels from handling a tail; kernels.h defines the padding.
static constexpr size_t padded(size_t channels) { return words_for(channels) * kWordBits; }

// Zero-initialized memory, aligned for any load and readable a little past its end.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t count) : size_(count) {
    const size_t bytes = (count * sizeof(T) + 2 * kAlignment - 1) / kAlignment * kAlignment;
#if defined(_WIN32)  // which has no aligned_alloc
    void* memory = _aligned_malloc(bytes, kAlignment);
#else
    void* memory = std::aligned_alloc(kAlignment, bytes);
#endif
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0, bytes);
    data_.reset(static_cast<T*>(memory));
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  T& operator[](size_t index) { return data_.get()[index]; }
  const T& operator[](size_t index) const { return data_.get()[index]; }

 private:
  struct Free {
#if defined(_WIN32)
    void operator()(void* memory) const { _aligned_free(memory); }
#else
    void operator()(void* memory) const { std::free(memory); }
#endif
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

}  // namespace bibert

#endif
