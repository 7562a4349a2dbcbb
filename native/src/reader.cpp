// The sizes of a data section, and reading it with checks.
#include "reader.h"

#include <algorithm>
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

// The numbers of a site: optional thresholds of a sign, or edges and a rate.
size_t site_numbers(const bibert_config& c, uint32_t site, size_t channels) {
  if (c.activation_bits != 1) return channels + 1;
  return (c.thresholds & site) != 0 ? channels : 0;
}

size_t layer_numbers(const bibert_config& c) {
  const size_t inner = size_t{c.heads} * c.head_size;
  const size_t linears = 3 * 2 * inner + 2 * c.hidden + 2 * c.intermediate + 2 * c.hidden;
  const size_t norms = 4 * c.hidden;
  const size_t attention =
      c.activation_bits != 1 ? 1 + size_t{c.heads} * top_of(c.attention_bits) : size_t{c.score_thresholds} * c.heads;
  return linears + norms + attention + site_numbers(c, BIBERT_THRESHOLD_ATTENTION_INPUT, c.hidden) +
         site_numbers(c, BIBERT_THRESHOLD_QUERY, inner) + site_numbers(c, BIBERT_THRESHOLD_KEY, inner) +
         site_numbers(c, BIBERT_THRESHOLD_VALUE, inner) + site_numbers(c, BIBERT_THRESHOLD_CONTEXT, inner) +
         site_numbers(c, BIBERT_THRESHOLD_FFN_INPUT, c.hidden) +
         site_numbers(c, BIBERT_THRESHOLD_FFN_HIDDEN, c.intermediate);
}

[[noreturn]] void reject(const std::string& name, const std::string& problem) {
  throw Error(BIBERT_BAD_MODEL, name + ": " + problem);
}

[[noreturn]] void reject_entry(const std::string& name, size_t index, const std::string& problem) {
  reject(name, "entry " + std::to_string(index) + " " + problem);
}

}  // namespace

Sizes sizes_of(const bibert_config& c) {
  const size_t hidden = c.hidden;
  Sizes sizes;
  sizes.words = (c.vocabulary + hidden) * words_for(hidden) + c.layers * layer_words(c);
  sizes.numbers = c.vocabulary + (c.token_types + c.positions) * hidden + 2 * hidden + c.layers * layer_numbers(c) +
                  site_numbers(c, BIBERT_THRESHOLD_POOLER_INPUT, hidden) + 2 * hidden + c.labels * (hidden + 1);
  return sizes;
}

Reader::Reader(const void* data, size_t size, const Sizes& sizes) {
  if (size != sizes.bytes()) {
    reject("data", "has " + std::to_string(size) + " bytes, the config needs " + std::to_string(sizes.bytes()));
  }
  const unsigned char* begin = static_cast<const unsigned char*>(data);
  words_ = {begin, begin + sizes.words * sizeof(uint64_t)};
  numbers_ = {words_.end, begin + size};
}

// The data may have any alignment, so it is copied before it is looked at.
template <class T>
void Reader::take(const std::string& name, Region& region, size_t count, T* out) {
  if (count > region.left() / sizeof(T)) {
    reject(name, "needs " + std::to_string(count * sizeof(T)) + " bytes, the data has " +
                     std::to_string(region.left()) + " left");
  }
  std::memcpy(out, region.next, count * sizeof(T));
  region.next += count * sizeof(T);
}

void Reader::take_floats(const std::string& name, size_t first, size_t count, float* out) {
  take(name, numbers_, count, out);
  for (size_t i = 0; i < count; ++i) {
    if (!std::isfinite(out[i])) reject_entry(name, first + i, "is not finite");
  }
}

Buffer<uint64_t> Reader::bits(const std::string& name, size_t rows, size_t columns) {
  const size_t words = words_for(columns);
  Buffer<uint64_t> out(rows * words);
  take(name, words_, rows * words, out.data());
  const size_t used = columns % kWordBits;
  for (size_t row = 0; used != 0 && row < rows; ++row) {
    if ((out[row * words + words - 1] >> used) != 0) reject_entry(name, row, "has bits after its last column");
  }
  return out;
}

Buffer<float> Reader::floats(const std::string& name, size_t count) {
  Buffer<float> out(padded(count));
  take_floats(name, 0, count, out.data());
  return out;
}

Buffer<float> Reader::scales(const std::string& name, size_t count) {
  Buffer<float> out = floats(name, count);
  for (size_t i = 0; i < count; ++i) {
    if (std::signbit(out[i])) reject_entry(name, i, "is negative");
  }
  return out;
}

Buffer<float> Reader::table(const std::string& name, size_t rows, size_t columns) {
  Buffer<float> out(rows * padded(columns));
  for (size_t row = 0; row < rows; ++row) take_floats(name, row * columns, columns, out.data() + row * padded(columns));
  return out;
}

Buffer<float> Reader::thresholds(const std::string& name, size_t count, bool present) {
  Buffer<float> out(padded(count));
  if (present) take_floats(name, 0, count, out.data());
  for (size_t i = count; i < padded(count); ++i) out[i] = std::numeric_limits<float>::infinity();
  return out;
}

Buffer<int32_t> Reader::integers(const std::string& name, size_t count, int32_t most, bool present) {
  Buffer<int32_t> out(padded(count));
  if (!present) return out;
  take(name, numbers_, count, out.data());
  for (size_t i = 0; i < count; ++i) {
    if (out[i] < -most || out[i] > most) {
      reject_entry(
          name, i,
          "is " + std::to_string(out[i]) + ", must be from -" + std::to_string(most) + " to " + std::to_string(most));
    }
  }
  return out;
}

float Reader::positive(const std::string& name) {
  float value;
  take_floats(name, 0, 1, &value);
  if (!(value > 0.0F)) reject(name, "is " + std::to_string(value) + ", must be above 0");
  return value;
}

Buffer<int32_t> Reader::falling(const std::string& name, size_t rows, size_t columns, int32_t most) {
  Buffer<int32_t> out(rows * columns);
  take(name, numbers_, out.size(), out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] < 0) reject_entry(name, i, "is " + std::to_string(out[i]) + ", must not be negative");
    if (i % columns != 0 && out[i] > out[i - 1]) {
      reject_entry(
          name, i,
          "is " + std::to_string(out[i]) + ", must not be above the one before, " + std::to_string(out[i - 1]));
    }
  }
  std::replace_if(
      out.data(), out.data() + out.size(), [most](int32_t value) { return value > most; }, most);
  return out;
}

void Reader::finish() const {
  if (words_.left() != 0 || numbers_.left() != 0) {
    reject("data", std::to_string(words_.left()) + " bytes of bits and " + std::to_string(numbers_.left()) +
                       " bytes of numbers are left after the last tensor");
  }
}

}  // namespace bibert
