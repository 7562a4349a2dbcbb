// Reads the data section of a packed file in the order of docs/packed-format.md, and checks what it reads. The words
// of bits and the 32-bit numbers lie in two regions, so two places advance side by side.
#ifndef BIBERT_READER_H
#define BIBERT_READER_H

#include <string>

#include "model.h"

namespace bibert {

// How many 64-bit words and how many 32-bit numbers a model has.
struct Sizes {
  size_t words = 0;
  size_t numbers = 0;

  size_t bytes() const { return words * sizeof(uint64_t) + numbers * sizeof(float); }
};

Sizes sizes_of(const bibert_config& config);

class Reader {
 public:
  Reader(const void* data, const Sizes& sizes);

  // Rows of bits; bits behind the last column must be 0.
  Buffer<uint64_t> bits(const std::string& name, size_t rows, size_t columns);
  // Finite numbers, padded with zeros.
  Buffer<float> floats(const std::string& name, size_t count);
  // The same; none may be negative.
  Buffer<float> scales(const std::string& name, size_t count);
  // Rows of finite numbers, each padded with zeros.
  Buffer<float> table(const std::string& name, size_t rows, size_t columns);
  // Thresholds in front of a sign, 0 where `present` is false; the padding is +infinity, which no value reaches.
  Buffer<float> thresholds(const std::string& name, size_t count, bool present);
  // Whole numbers from -most to most, 0 where `present` is false.
  Buffer<int32_t> integers(const std::string& name, size_t count, int32_t most, bool present);

 private:
  // `first` is the number of the first of them in the tensor.
  void read_floats(const std::string& name, size_t first, size_t count, float* out);

  const unsigned char* words_;
  const unsigned char* numbers_;
};

}  // namespace bibert

#endif
