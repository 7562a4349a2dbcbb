// Compares every table of kernels that this CPU can run with the reference, bit for bit: fixed shapes that are odd or
// belong to real models, then random ones. The comparison includes the padding of the outputs, and guard bytes around
// them.
//
//   kernels_test [rounds]    random rounds after the fixed shapes, 20 by default; round n is the same on all machines
//
// Prints each difference, and exits with 1 if there is one.
#include "kernels.h"

#include <cmath>
#include <limits>
#include <utility>

#include "compare.h"

namespace {

using bibert::Affine;
using bibert::kMaxRows;
using bibert::LayerNorm;
using bibert::Product;
using compare::Context;
using compare::expect_same;
using compare::Guarded;
using compare::Kernels;
using compare::kReference;
using compare::kWordBits;
using compare::padded;
using compare::Random;
using compare::random_parameter;
using compare::random_parameters;
using compare::random_rows;
using compare::words_for;

constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Shape {
  size_t rows, outputs, inputs;
};

// Activations and weights in the layout of one table.
struct Packed {
  Guarded<unsigned char> panels, tiles;
  Product product;

  Packed(Context& context, const Kernels& kernels, const Shape& shape, Guarded<uint64_t>& weights,
         Guarded<uint64_t>& activations)
      : panels(kernels.panel_bytes(shape.outputs, shape.inputs), 0xCC),
        tiles(kernels.tile_bytes(shape.rows, shape.inputs), 0xCC),
        product{panels.data(), tiles.data(), shape.rows, shape.outputs, shape.inputs} {
    kernels.pack_panels(weights.data(), shape.outputs, shape.inputs, panels.data());
    kernels.pack_tiles(activations.data(), shape.rows, shape.inputs, tiles.data());
    if (!panels.intact()) context.fail("pack_panels wrote outside panel_bytes");
    if (!tiles.intact()) context.fail("pack_tiles wrote outside tile_bytes");
  }
};

// Most are near the median of the mismatches; some are at or beyond the ends.
Guarded<int32_t> random_thresholds(Random& random, const Shape& shape) {
  Guarded<int32_t> most(padded(shape.outputs), 0xFF);
  const auto inputs = static_cast<int32_t>(shape.inputs);
  const auto spread = static_cast<size_t>(2 * std::sqrt(static_cast<double>(inputs)) + 2);
  for (size_t n = 0; n < shape.outputs; ++n) {
    const auto usual = static_cast<int32_t>(random.up_to(spread)) + (inputs - static_cast<int32_t>(spread)) / 2;
    const auto extreme = random.one_of<int32_t>({-1, 0, 1, inputs - 1, inputs, kLeast, kMost});
    most[n] = random.chance(8) ? extreme : usual;
  }
  return most;
}

void test_linear_bits(Context& context, Random& random, const Shape& shape, Packed& packed, Packed& reference) {
  context.function = "linear_bits";
  Guarded<int32_t> most = random_thresholds(random, shape);
  const size_t words = shape.rows * words_for(shape.outputs);
  Guarded<uint64_t> found(words, 0xCC, random.up_to(7)), wanted(words, 0xEE);
  context.kernels->linear_bits(packed.product, most.data(), found.data());
  kReference.linear_bits(reference.product, most.data(), wanted.data());
  expect_same(context, found, wanted);
}

enum class Residual { kNone, kOther, kOutput };

void test_linear_floats(Context& context, Random& random, const Shape& shape, Packed& packed, Packed& reference) {
  context.function = "linear_floats";
  const size_t stride = padded(shape.outputs);
  Guarded<float> scale = random_parameters(random, shape.outputs), bias = random_parameters(random, shape.outputs);
  Guarded<float> residual(shape.rows * stride);
  for (size_t i = 0; i < residual.size(); ++i)
    if (i % stride < shape.outputs) residual[i] = random_parameter(random);
  for (const int32_t step : {1, 2}) {
    Guarded<int32_t> base(stride);
    for (size_t n = 0; n < shape.outputs; ++n)
      base[n] = static_cast<int32_t>(step == 2 ? shape.inputs : random.up_to(shape.inputs));
    for (const Residual kind : {Residual::kNone, Residual::kOther, Residual::kOutput}) {
      Guarded<float> found(residual.size(), 0xCC), wanted(residual.size(), 0xEE);
      if (kind == Residual::kOutput) found.fill_from(residual);
      Affine affine{scale.data(), bias.data(), base.data(), step, kind == Residual::kNone ? nullptr : residual.data()};
      kReference.linear_floats(reference.product, affine, wanted.data());
      if (kind == Residual::kOutput) affine.residual = found.data();
      context.kernels->linear_floats(packed.product, affine, found.data());
      expect_same(context, found, wanted);
    }
  }
}

void test_linear(Context& context, Random& random, const Shape& shape) {
  std::snprintf(context.shape, sizeof context.shape, "rows %zu, outputs %zu, inputs %zu", shape.rows, shape.outputs,
                shape.inputs);
  context.function = "packing";
  Guarded<uint64_t> weights = random_rows(random, shape.outputs, shape.inputs);
  Guarded<uint64_t> activations = random_rows(random, shape.rows, shape.inputs);
  Packed packed(context, *context.kernels, shape, weights, activations);
  Packed reference(context, kReference, shape, weights, activations);
  test_linear_bits(context, random, shape, packed, reference);
  test_linear_floats(context, random, shape, packed, reference);
}

// A value of a row of this kind, inside the range.
float random_state(Random& random, size_t kind, float constant) {
  const float near_limit = std::nextafter(bibert::kLayerNormLimit, 0.0F);
  switch (kind) {
    case 0:
      return random.real(4.0F);
    case 1:  // so little variance that rounding may make it negative
      return random.chance(512) ? std::nextafter(constant, 0.0F) : constant;
    case 2:  // half points of the grid, which round to even
      return (static_cast<float>(random.up_to(4000)) - 2000.0F + 0.5F) / 65536.0F;
    case 3:
      return random.one_of({near_limit, -near_limit, 511.99F, -511.99F});  // the squares of a long row wrap around
    case 4:
      return random.one_of({0.0F, -0.0F, 1e-45F, -1e-45F, 1e-38F, -3e-39F, 0.5F / 65536.0F});
    default:
      return random.real(random.chance(8) ? 20000.0F : 511.0F);
  }
}

Guarded<float> random_states(Random& random, size_t rows, size_t channels) {
  Guarded<float> states(rows * padded(channels));
  for (size_t row = 0; row < rows; ++row) {
    const size_t kind = random.up_to(5);
    const float constant = random.real(500.0F);
    for (size_t c = 0; c < channels; ++c) states[row * padded(channels) + c] = random_state(random, kind, constant);
  }
  return states;
}

void test_layer_norm(Context& context, Random& random, size_t rows, size_t channels) {
  context.function = "layer_norm";
  std::snprintf(context.shape, sizeof context.shape, "rows %zu, channels %zu", rows, channels);
  const size_t stride = padded(channels);
  Guarded<float> input = random_states(random, rows, channels);
  Guarded<float> weight = random_parameters(random, channels), bias = random_parameters(random, channels);
  Guarded<float> minimum(stride), wanted(rows * stride, 0xEE);
  Guarded<uint64_t> wanted_bits(rows * words_for(channels), 0xEE);
  for (size_t c = 0; c < stride; ++c) minimum[c] = kInfinity;
  LayerNorm norm{input.data(), weight.data(), bias.data(),   minimum.data(),     random.one_of({1e-12, 1e-5, 1.0}),
                 rows,         channels,      wanted.data(), wanted_bits.data(), {},
                 nullptr};
  kReference.layer_norm(norm);
  // Some thresholds are exactly equal to an output.
  for (size_t c = 0; c < channels; ++c) {
    const float met = wanted[random.up_to(rows - 1) * stride + c];
    minimum[c] = random.one_of({met, met, 0.0F, 0.0F, -0.0F, random.real(1.0F), kInfinity, -kInfinity});
  }
  kReference.layer_norm(norm);
  Guarded<float> apart(wanted.size(), 0xCC), in_place(wanted.size());
  in_place.fill_from(input);
  for (const auto& [from, to] : {std::pair{&input, &apart}, std::pair{&in_place, &in_place}}) {
    Guarded<uint64_t> bits(wanted_bits.size(), 0xCC, random.up_to(7));
    norm.input = from->data();
    norm.output = to->data();
    norm.bits = bits.data();
    if (!context.kernels->layer_norm(norm)) context.fail("rejected values inside the range");
    expect_same(context, *to, wanted);
    expect_same(context, bits, wanted_bits);
  }
  for (const float bad : {std::nanf(""), kInfinity, -kInfinity, 32768.0F, -32768.0F, 1e30F, -40000.0F}) {
    Guarded<float> spoilt(input.size()), output(input.size());
    spoilt.fill_from(input);
    spoilt[random.up_to(rows - 1) * stride + random.up_to(channels - 1)] = bad;
    norm.input = spoilt.data();
    norm.output = output.data();
    norm.bits = wanted_bits.data();
    if (context.kernels->layer_norm(norm) || kReference.layer_norm(norm))
      context.fail("accepted a value outside the range");
    if (!output.intact() || !wanted_bits.intact()) context.fail("wrote outside of its output");
    std::fill_n(spoilt.data(), spoilt.size(), bad);  // overflows the sums
    if (context.kernels->layer_norm(norm)) context.fail("accepted a row outside the range");
  }
}

// By definition: all tables compile the same code.
void test_embed(Context& context, Random& random, size_t channels) {
  context.function = "embed";
  std::snprintf(context.shape, sizeof context.shape, "channels %zu", channels);
  Guarded<uint64_t> bits = random_rows(random, 1, channels);
  Guarded<float> type = random_parameters(random, channels), position = random_parameters(random, channels);
  const float scale = std::fabs(random_parameter(random));
  Guarded<float> found(padded(channels), 0xCC), wanted(padded(channels));
  for (size_t c = 0; c < channels; ++c) {
    const float word = bits[c / kWordBits] >> c % kWordBits & 1 ? scale : -scale;
    const float sum = word + type[c];
    wanted[c] = sum + position[c];
  }
  context.kernels->embed({bits.data(), scale, type.data(), position.data(), channels}, found.data());
  expect_same(context, found, wanted);
}

void test_transpose(Context& context, Random& random) {
  context.function = "transpose";
  std::snprintf(context.shape, sizeof context.shape, "64 x 64");
  Guarded<uint64_t> words = random_rows(random, kWordBits, kWordBits), wanted(kWordBits);
  Guarded<int32_t> ones(kWordBits), wanted_ones(kWordBits);
  for (size_t i = 0; i < kWordBits; ++i) {
    for (size_t j = 0; j < kWordBits; ++j) wanted[i] |= (words[j] >> i & 1) << j;
    ones[i] = static_cast<int32_t>(random.up_to(9)) - 5;
    wanted_ones[i] = ones[i] + __builtin_popcountll(wanted[i]);
  }
  context.kernels->transpose(words.data(), ones.data());
  expect_same(context, words, wanted);
  expect_same(context, ones, wanted_ones);
}

using Sizes = std::initializer_list<size_t>;

void test_fixed_shapes(Context& context, Random& random) {
  for (const size_t outputs : Sizes{1, 26, 63, 64, 65, 312, 384, 768})
    for (const size_t rows : Sizes{1, 2, 3, 4, 5, 7, 64}) test_linear(context, random, {rows, outputs, outputs});
  for (const size_t inputs : Sizes{1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1200, 1536, 3071, 3072, 16384})
    test_linear(context, random, {random.between(1, 9), 65, inputs});
  for (const size_t channels : Sizes{1, 2, 63, 64, 65, 312, 384, 768, 4096})
    test_layer_norm(context, random, 6, channels);
  for (const size_t channels : Sizes{1, 31, 32, 33, 64, 312, 768}) test_embed(context, random, channels);
}

void test_random_shapes(Context& context, Random& random) {
  test_linear(context, random, {random.between(1, kMaxRows), random.between(1, 130), random.between(1, 800)});
  test_linear(context, random, {random.between(1, 8), random.between(1, 800), random.between(1, 300)});
  test_linear(context, random, {random.between(1, 5), random.between(1, 70), random.between(1, 3072)});
  test_layer_norm(context, random, random.between(1, 9), random.between(1, 800));
  test_embed(context, random, random.between(1, 800));
  test_transpose(context, random);
}

}  // namespace

int main(int count, char** arguments) {
  const unsigned long rounds = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 20;
  return compare::run("kernels_test", rounds, test_fixed_shapes, test_random_shapes);
}
