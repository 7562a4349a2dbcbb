// Reading with checks. The data may lie at any address, so everything is copied out before it is looked at.
#include "reader.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace bibert {
namespace {

size_t layer_words(const bibert_config& c) {
  const size_t inner = size_t{c.heads} * c.head_size;
  return 3 * inner * words_for(c.hidden) + c.hidden * words_for(inner) + c.intermediate * words_for(c.hidden) +
         c.hidden * words_for(c.intermediate);
}

size_t layer_numbers(const bibert_config& c) {
  const size_t inner = size_t{c.heads} * c.head_size;
  const auto optional = [&](uint32_t site, size_t count) { return (c.thresholds & site) != 0 ? count : 0; };
  const size_t linears = 3 * 2 * inner + 2 * c.hidden + 2 * c.intermediate + 2 * c.hidden;
  const size_t norms = 4 * c.hidden;
  return linears + norms + (c.score_thresholds != 0 ? c.heads : 0) +
         optional(BIBERT_THRESHOLD_ATTENTION_INPUT, c.hidden) + optional(BIBERT_THRESHOLD_QUERY, inner) +
         optional(BIBERT_THRESHOLD_KEY, inner) + optional(BIBERT_THRESHOLD_VALUE, inner) +
         optional(BIBERT_THRESHOLD_CONTEXT, inner) + optional(BIBERT_THRESHOLD_FFN_INPUT, c.hidden) +
         optional(BIBERT_THRESHOLD_FFN_HIDDEN, c.intermediate);
}

[[noreturn]] void refuse(const std::string& name, size_t index, const std::string& what) {
  throw Error(BIBERT_BAD_MODEL, name + ": entry " + std::to_string(index) + " " + what);
}

}  // namespace

Sizes sizes_of(const bibert_config& c) {
  const size_t hidden = c.hidden;
  Sizes sizes;
  sizes.words = (c.vocabulary + hidden) * words_for(hidden) + c.layers * layer_words(c);
  sizes.numbers = c.vocabulary + (c.token_types + c.positions) * hidden + 2 * hidden + c.layers * layer_numbers(c) +
                  ((c.thresholds & BIBERT_THRESHOLD_POOLER_INPUT) != 0 ? hidden : 0) + 2 * hidden +
                  c.labels * (hidden + 1);
  return sizes;
}

Reader::Reader(const void* data, const Sizes& sizes)
    : words_(static_cast<const unsigned char*>(data)), numbers_(words_ + sizes.words * sizeof(uint64_t)) {}

Buffer<uint64_t> Reader::bits(const std::string& name, size_t rows, size_t columns) {
  const size_t words = words_for(columns);
  Buffer<uint64_t> out(rows * words);
  std::memcpy(out.data(), words_, rows * words * sizeof(uint64_t));
  words_ += rows * words * sizeof(uint64_t);
  const size_t used = columns % kWordBits;
  for (size_t row = 0; used != 0 && row < rows; ++row) {
    if ((out[row * words + words - 1] >> used) != 0) refuse(name, row, "has bits behind its last column");
  }
  return out;
}

void Reader::read_floats(const std::string& name, size_t first, size_t count, float* out) {
  std::memcpy(out, numbers_, count * sizeof(float));
  numbers_ += count * sizeof(float);
  for (size_t i = 0; i < count; ++i) {
    if (!std::isfinite(out[i])) refuse(name, first + i, "is not finite");
  }
}

Buffer<float> Reader::floats(const std::string& name, size_t count) {
  Buffer<float> out(padded(count));
  read_floats(name, 0, count, out.data());
  return out;
}

Buffer<float> Reader::scales(const std::string& name, size_t count) {
  Buffer<float> out = floats(name, count);
  for (size_t i = 0; i < count; ++i) {
    if (std::signbit(out[i])) refuse(name, i, "is negative");
  }
  return out;
}

Buffer<float> Reader::table(const std::string& name, size_t rows, size_t columns) {
  Buffer<float> out(rows * padded(columns));
  for (size_t row = 0; row < rows; ++row) read_floats(name, row * columns, columns, out.data() + row * padded(columns));
  return out;
}

Buffer<float> Reader::thresholds(const std::string& name, size_t count, bool present) {
  Buffer<float> out(padded(count));
  if (present) read_floats(name, 0, count, out.data());
  for (size_t i = count; i < padded(count); ++i) out[i] = std::numeric_limits<float>::infinity();
  return out;
}

Buffer<int32_t> Reader::integers(const std::string& name, size_t count, int32_t most, bool present) {
  Buffer<int32_t> out(padded(count));
  if (!present) return out;
  std::memcpy(out.data(), numbers_, count * sizeof(int32_t));
  numbers_ += count * sizeof(int32_t);
  for (size_t i = 0; i < count; ++i) {
    if (out[i] < -most || out[i] > most) {
      refuse(name, i, "is " + std::to_string(out[i]) + ", must be inside +-" + std::to_string(most));
    }
  }
  return out;
}

}  // namespace bibert
