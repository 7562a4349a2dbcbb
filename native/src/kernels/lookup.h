// The product of weight bits and indices by table look-up, as far as it is the same on every instruction set. For a few
// inputs of a row, a table holds the sums of all their subsets, and the weight bits of a channel select one. So the
// cost does not depend on the bits of an activation. From the sum S of the indices u of a row where the weight is +1:
//
//   dot = 4 · S - 2 · sum of u - top · sum of w   at signed sites, 2 · S - sum of u at the unsigned one.
//
// A few rows are processed together: their tables for a slice of the inputs stay in the first-level cache while all
// weights pass. An instruction set provides a struct Isa with
//
//   kStepInputs   inputs of a step; a step has one byte of weights per channel
//   kStepBytes    bytes of the tables of a step
//   kSliceSteps   steps of a slice
//   kRows         rows that are processed together
//   kBlocks       blocks of 64 output channels that are processed together
//   place(c)      the place of channel c in the 64 bytes of a step
//   sum_of_row, compute_tile
//   make_tables   from indices, the number of them up to the end of the row, and the number of steps
//
// Everything is static, since each file compiles it for its own instruction set.
#ifndef BIBERT_LOOKUP_H
#define BIBERT_LOOKUP_H

#include <cstring>

#include "levels.h"

namespace bibert {
namespace {

constexpr size_t kBlock = 64;  // output channels of a block

// A few rows and blocks, and one slice of the inputs.
struct Tile {
  const uint8_t* tables;   // [row][kSliceSteps][kStepBytes]
  const uint8_t* weights;  // of the slice in the first block
  size_t block_stride;
  size_t steps;
  uint16_t* sums;  // rows of kBlocks · kBlock
};

// The sums of a few rows and one block, and what turns them into dot products.
struct BlockSums {
  const uint16_t* sums;  // rows of sums_stride
  size_t sums_stride;
  int32_t* before;  // over the slices before; rows of before_stride
  size_t before_stride;
  const int32_t* offsets;  // of the channels: top · sum of w, or 0
  const int32_t* of_rows;  // 2 · sum of u, or the sum
  int32_t shift;
  size_t rows;
  size_t row;      // the first row of the output
  size_t channel;  // the first channel of the output
};

template <class Isa>
struct Lookup {
  // An even number; the last one may have no inputs.
  static size_t steps_for(size_t inputs) { return (inputs + 2 * Isa::kStepInputs - 1) / (2 * Isa::kStepInputs) * 2; }
  static size_t block_bytes(size_t inputs) { return kBlock * (sizeof(int32_t) + steps_for(inputs)); }
  static size_t panel_bytes(size_t outputs, size_t inputs) { return words_for(outputs) * block_bytes(inputs); }

  static uint8_t step_bits(const uint64_t* row, size_t words, size_t first) {
    const size_t word = first / kWordBits;
    const size_t shift = first % kWordBits;
    uint64_t bits = row[word] >> shift;
    if (shift > kWordBits - Isa::kStepInputs && word + 1 < words) bits |= row[word + 1] << (kWordBits - shift);
    return static_cast<uint8_t>(bits & ((1U << Isa::kStepInputs) - 1));
  }

  // [block of 64 channels][32-bit centre · sum of w of each channel, then bytes [step][place]]
  static void pack_panels(const uint64_t* bits, size_t outputs, size_t inputs, int32_t centre, void* panels) {
    const size_t words = words_for(inputs);
    std::memset(panels, 0, panel_bytes(outputs, inputs));
    for (size_t channel = 0; channel < outputs; ++channel) {
      uint8_t* const block = static_cast<uint8_t*>(panels) + channel / kBlock * block_bytes(inputs);
      const uint64_t* const row = bits + channel * words;
      int32_t ones = 0;
      for (size_t word = 0; word < words; ++word) ones += __builtin_popcountll(row[word]);
      const int32_t offset = centre * (2 * ones - static_cast<int32_t>(inputs));
      std::memcpy(block + channel % kBlock * sizeof(offset), &offset, sizeof(offset));
      uint8_t* out = block + kBlock * sizeof(offset) + Isa::place(channel % kBlock);
      for (size_t first = 0; first < inputs; first += Isa::kStepInputs, out += kBlock)
        *out = step_bits(row, words, first);
    }
  }

  struct Scratch {
    alignas(64) uint8_t tables[Isa::kRows * Isa::kSliceSteps * Isa::kStepBytes];
    alignas(64) uint16_t sums[Isa::kRows * Isa::kBlocks * kBlock];
    // Then sums over the slices before the current one: rows of padded(outputs).
    int32_t* before() { return reinterpret_cast<int32_t*>(this + 1); }
  };

  static size_t scratch_bytes(size_t outputs, size_t inputs) {
    const bool has_slices = steps_for(inputs) > Isa::kSliceSteps;
    return sizeof(Scratch) + (has_slices ? Isa::kRows * padded(outputs) * sizeof(int32_t) : 0);
  }
};

template <size_t kCount>
void add_slice(const BlockSums& block, bool is_first) {
  for (size_t r = 0; r < block.rows; ++r) {
    const uint16_t* const from = block.sums + r * block.sums_stride;
    int32_t* const to = block.before + r * block.before_stride;
    if (is_first) {
      for (size_t i = 0; i < kCount; ++i) to[i] = from[i];
    } else {
      for (size_t i = 0; i < kCount; ++i) to[i] += from[i];
    }
  }
}

// `Output` has store<has slices before>(BlockSums).
template <class Isa, class Output>
class Multiplication {
 public:
  Multiplication(const LevelProduct& product, const Output& output)
      : product_(product),
        output_(output),
        scratch_(*static_cast<Scratch*>(product.scratch)),
        stride_(padded(product.inputs)),
        outputs_(padded(product.outputs)),
        steps_(Lookup<Isa>::steps_for(product.inputs)),
        block_(Lookup<Isa>::block_bytes(product.inputs)) {}

  void run() {
    for (size_t row = 0; row < product_.rows; row += Isa::kRows) {
      const size_t rows = lesser(Isa::kRows, product_.rows - row);
      const uint8_t* const indices = product_.indices + row * stride_;
      for (size_t r = 0; r < rows; ++r) {
        const int32_t sum = Isa::sum_of_row(indices + r * stride_, product_.inputs);
        of_rows_[r] = product_.is_signed ? 2 * sum : sum;
      }
      for (size_t first = 0; first < steps_; first += Isa::kSliceSteps) {
        const size_t count = lesser(Isa::kSliceSteps, steps_ - first);
        for (size_t r = 0; r < rows; ++r) {
          const size_t start = first * Isa::kStepInputs;
          Isa::make_tables(indices + r * stride_ + start, stride_ - start, count,
                           scratch_.tables + r * Isa::kSliceSteps * Isa::kStepBytes);
        }
        run_slice(row, rows, first, count);
      }
    }
  }

 private:
  using Scratch = typename Lookup<Isa>::Scratch;

  void run_slice(size_t row, size_t rows, size_t first, size_t count) {
    for (size_t channel = 0; channel < outputs_; channel += Isa::kBlocks * kBlock) {
      const size_t blocks = lesser(Isa::kBlocks, (outputs_ - channel) / kBlock);
      const uint8_t* const panel = static_cast<const uint8_t*>(product_.panels) + channel / kBlock * block_;
      Isa::compute_tile({scratch_.tables, panel + kBlock * (sizeof(int32_t) + first), block_, count, scratch_.sums},
                        rows, blocks, product_.top);
      for (size_t b = 0; b < blocks; ++b) {
        const size_t at = channel + b * kBlock;
        const int32_t* const offsets = reinterpret_cast<const int32_t*>(panel + b * block_);
        const BlockSums sums{scratch_.sums + b * kBlock,
                             Isa::kBlocks * kBlock,
                             scratch_.before() + at,
                             outputs_,
                             offsets,
                             of_rows_,
                             product_.is_signed ? 2 : 1,
                             rows,
                             row,
                             at};
        if (first + count < steps_) {
          add_slice<kBlock>(sums, first == 0);
        } else if (first == 0) {
          output_.template store<false>(sums);
        } else {
          output_.template store<true>(sums);
        }
      }
    }
  }

  const LevelProduct& product_;
  const Output& output_;
  Scratch& scratch_;
  const size_t stride_, outputs_, steps_, block_;
  int32_t of_rows_[Isa::kRows] = {};
};

}  // namespace
}  // namespace bibert

#endif
