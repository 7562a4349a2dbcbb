// Reads the data section of a packed file in the order of docs/packed-format.md, and checks everything it reads. The
// section has two regions, 64-bit words of bits and 32-bit numbers, which are read side by side.
#ifndef BIBERT_READER_H
#define BIBERT_READER_H

#include <string>

#include "model.h"

namespace bibert {

// How many 64-bit words and 32-bit numbers a model has.
struct Sizes {
  size_t words = 0;
  size_t numbers = 0;

  size_t bytes() const { return words * sizeof(uint64_t) + numbers * sizeof(float); }
};

Sizes sizes_of(const bibert_config& config);

// Throws Error on anything that a model must not contain, and on every read past the end of a region.
class Reader {
 public:
  // Throws Error unless `size` is sizes.bytes().
  Reader(const void* data, size_t size, const Sizes& sizes);

  // Rows of bits; the bits after the last column must be 0.
  Buffer<uint64_t> bits(const std::string& name, size_t rows, size_t columns);
  // Finite numbers, padded with zeros.
  Buffer<float> floats(const std::string& name, size_t count);
  // The same, none negative.
  Buffer<float> scales(const std::string& name, size_t count);
  // Rows of finite numbers, each padded with zeros.
  Buffer<float> table(const std::string& name, size_t rows, size_t columns);
  // Thresholds of a sign, 0 if not `present`; padded with +infinity, which no value reaches.
  Buffer<float> thresholds(const std::string& name, size_t count, bool present);
  // Integers from -most to most, 0 if not `present`.
  Buffer<int32_t> integers(const std::string& name, size_t count, int32_t most, bool present);
  // One finite number above 0.
  float positive(const std::string& name);
  // Rows of integers of which none is negative or greater than the one before it; greater ones become `most`.
  Buffer<int32_t> falling(const std::string& name, size_t rows, size_t columns, int32_t most);
  // Throws Error if a part of the data has not been read.
  void finish() const;

 private:
  // What is left of a part of the data.
  struct Region {
    const unsigned char* next;
    const unsigned char* end;

    size_t left() const { return static_cast<size_t>(end - next); }
  };

  // The only function that advances: copies the next `count` entries of a region.
  template <class T>
  void take(const std::string& name, Region& region, size_t count, T* out);
  // `first` is the index in the tensor of the first of them.
  void take_floats(const std::string& name, size_t first, size_t count, float* out);

  Region words_;
  Region numbers_;
};

}  // namespace bibert

#endif
