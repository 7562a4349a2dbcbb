// Random models for tests and fuzzing: the tensors of a config, in the order of docs/packed-format.md, and a function
// that turns any bytes into valid data. Written from that page, not from reader.cpp, so that each checks the other.
#ifndef BIBERT_TESTS_SAMPLE_H
#define BIBERT_TESTS_SAMPLE_H

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bibert.h"

namespace sample {

enum class Kind { kBits, kScales, kFloats, kEdges, kRate, kIntegers, kFalling };

struct Tensor {
  Kind kind;
  size_t rows;
  size_t columns;
  int32_t most = 0;  // the largest magnitude of integers, the usual largest entry of falling ones

  size_t bytes() const { return kind == Kind::kBits ? rows * ((columns + 63) / 64) * 8 : rows * columns * 4; }
};

class Schema {
 public:
  explicit Schema(const bibert_config& config)
      : c_(config), hidden_(c_.hidden), inner_(size_t{c_.heads} * c_.head_size), wide_(c_.intermediate) {
    add_words();
    add_numbers();
  }

  const std::vector<Tensor>& tensors() const { return tensors_; }

  size_t bytes() const {
    size_t total = 0;
    for (const Tensor& tensor : tensors_) total += tensor.bytes();
    return total;
  }

 private:
  void add(Kind kind, size_t rows, size_t columns = 1) { tensors_.push_back({kind, rows, columns}); }
  // A threshold for a sign, or edges and a rate.
  void add_site(uint32_t site, size_t count) {
    if (c_.activation_bits != 1) {
      add(Kind::kEdges, count);
      add(Kind::kRate, 1);
    } else if ((c_.thresholds & site) != 0) {
      add(Kind::kFloats, count);
    }
  }
  void add_linear(size_t outputs) {
    add(Kind::kScales, outputs);
    add(Kind::kFloats, outputs);
  }
  void add_norm() {
    add(Kind::kFloats, hidden_);
    add(Kind::kFloats, hidden_);
  }

  void add_words() {
    add(Kind::kBits, c_.vocabulary, hidden_);
    for (size_t layer = 0; layer < c_.layers; ++layer) {
      for (int i = 0; i < 3; ++i) add(Kind::kBits, inner_, hidden_);
      add(Kind::kBits, hidden_, inner_);
      add(Kind::kBits, wide_, hidden_);
      add(Kind::kBits, hidden_, wide_);
    }
    add(Kind::kBits, hidden_, hidden_);
  }

  void add_numbers() {
    add(Kind::kScales, c_.vocabulary);
    add(Kind::kFloats, c_.token_types, hidden_);
    add(Kind::kFloats, c_.positions, hidden_);
    add_norm();
    for (size_t layer = 0; layer < c_.layers; ++layer) add_layer();
    add_site(BIBERT_THRESHOLD_POOLER_INPUT, hidden_);
    add_linear(hidden_);
    add(Kind::kFloats, c_.labels, hidden_);
    add(Kind::kFloats, c_.labels);
  }

  void add_layer() {
    add_site(BIBERT_THRESHOLD_ATTENTION_INPUT, hidden_);
    for (const uint32_t site : {BIBERT_THRESHOLD_QUERY, BIBERT_THRESHOLD_KEY, BIBERT_THRESHOLD_VALUE}) {
      add_linear(inner_);
      add_site(site, inner_);
    }
    const int32_t head_size = static_cast<int32_t>(c_.head_size);
    if (c_.activation_bits != 1) {
      const int32_t top = (1 << c_.attention_bits) - 1;
      add(Kind::kRate, 1);
      tensors_.push_back({Kind::kFalling, c_.heads, static_cast<size_t>(top), head_size * top});
    } else if (c_.score_thresholds != 0) {
      tensors_.push_back({Kind::kIntegers, c_.heads, 1, head_size + 1});
    }
    add_site(BIBERT_THRESHOLD_CONTEXT, inner_);
    add_linear(hidden_);
    add_norm();
    add_site(BIBERT_THRESHOLD_FFN_INPUT, hidden_);
    add_linear(wide_);
    add_site(BIBERT_THRESHOLD_FFN_HIDDEN, wide_);
    add_linear(hidden_);
    add_norm();
  }

  const bibert_config c_;
  const size_t hidden_, inner_, wide_;
  std::vector<Tensor> tensors_;
};

// The numbers of valid data: any finite ones, or small ones that keep all activations in range.
enum class Numbers { kAnyFinite, kSmall };

inline float small_number(uint32_t bits, Kind kind) {
  switch (kind) {
    case Kind::kScales:
      return static_cast<float>(bits % 256) / 2048.0F;
    case Kind::kEdges:  // mostly negative, so that all indices occur
      return static_cast<float>(bits % 256) / 64.0F - 3.0F;
    case Kind::kRate:
      return static_cast<float>(1 + bits % 256) / 64.0F;
    default:
      return static_cast<float>(static_cast<int8_t>(bits)) / 64.0F;
  }
}

inline uint32_t valid_number(uint32_t bits, const Tensor& tensor, Numbers numbers) {
  if (tensor.kind == Kind::kIntegers) {
    const uint32_t most = static_cast<uint32_t>(tensor.most);
    return numbers == Numbers::kSmall ? bits % std::min(8U, most + 1) : bits % (2 * most + 1) - most;
  }
  if (tensor.kind == Kind::kFalling) {  // make_valid sorts them
    return numbers == Numbers::kSmall ? bits % (static_cast<uint32_t>(tensor.most) + 1) : bits & 0x7FFFFFFF;
  }
  if (numbers == Numbers::kSmall) {
    const float small = small_number(bits, tensor.kind);
    std::memcpy(&bits, &small, sizeof(bits));
    return bits;
  }
  constexpr uint32_t kExponent = 0x7F800000, kSign = 0x80000000;
  if ((bits & kExponent) == kExponent) bits ^= 0x40000000;  // infinity and NaN become ordinary numbers
  if (tensor.kind == Kind::kRate && (bits & ~kSign) == 0) bits = 1;
  return tensor.kind == Kind::kScales || tensor.kind == Kind::kRate ? bits & ~kSign : bits;
}

// Turns schema.bytes() arbitrary bytes at any address into data that bibert_model_create accepts.
inline void make_valid(const Schema& schema, Numbers numbers, unsigned char* at) {
  for (const Tensor& tensor : schema.tensors()) {
    if (tensor.kind == Kind::kBits) {
      const size_t row_bytes = (tensor.columns + 63) / 64 * 8;
      for (size_t row = 0; row < tensor.rows; ++row, at += row_bytes) {
        for (size_t bit = tensor.columns; bit < row_bytes * 8; ++bit) {
          at[bit / 8] = static_cast<unsigned char>(at[bit / 8] & ~(1U << bit % 8));
        }
      }
    } else {
      std::vector<uint32_t> row(tensor.columns);
      for (size_t i = 0; i < tensor.rows; ++i, at += tensor.columns * 4) {
        std::memcpy(row.data(), at, tensor.columns * 4);
        for (uint32_t& bits : row) bits = valid_number(bits, tensor, numbers);
        if (tensor.kind == Kind::kFalling) std::sort(row.rbegin(), row.rend());
        std::memcpy(at, row.data(), tensor.columns * 4);
      }
    }
  }
}

}  // namespace sample

#endif
