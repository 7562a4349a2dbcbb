// Compares the kernels for 2 and 4 bits of every instruction set with the reference, bit for bit: linear layers,
// LayerNorm with indices, attention. The comparison includes the padding of the outputs, and guard bytes around them.
//
//   levels_test [rounds]    random rounds after the fixed shapes, 20 by default; round n is the same on all machines
//
// Prints each difference, and exits with 1 if there is one.
#include "levels.h"

#include <cmath>

#include "compare.h"

namespace {

using bibert::Buffer;
using bibert::IndexRows;
using bibert::kMaxRows;
using bibert::LayerNorm;
using bibert::LevelAffine;
using bibert::LevelKernels;
using bibert::LevelProduct;
using bibert::Levels;
using compare::Context;
using compare::expect_same;
using compare::Guarded;
using compare::kReference;
using compare::padded;
using compare::Random;
using compare::random_parameter;
using compare::random_parameters;
using compare::random_rows;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint8_t kTops[] = {3, 15};

// Indices with zero padding in rows of `stride`. Sometimes all are `top`, for the largest sums.
Guarded<uint8_t> random_indices(Random& random, size_t rows, size_t channels, size_t stride, uint8_t top) {
  Guarded<uint8_t> indices(rows * stride, 0, random.up_to(7));
  const bool all_top = random.chance(4);
  for (size_t i = 0; i < indices.size(); ++i) {
    if (i % stride < channels) indices[i] = all_top ? top : static_cast<uint8_t>(random.up_to(top));
  }
  return indices;
}

// Edges and rates of a site, of which most values reach all indices if the values have magnitudes about `size`.
struct RandomSite {
  RandomSite(Random& random, size_t channels, float size, uint8_t top)
      : edge(padded(channels)), rate(padded(channels)), levels{edge.data(), rate.data(), top} {
    for (size_t c = 0; c < padded(channels); ++c) {
      rate[c] = random.chance(16) ? random.one_of({1e-45F, 1e-30F, 3e38F, 1.0F})
                                  : static_cast<float>(top + 1) / (2.0F * size) * (1.5F + random.real(1.0F));
      edge[c] = c >= channels       ? kInfinity
                : random.chance(16) ? random.one_of({0.0F, -0.0F, 3e38F, -3e38F, 1e-40F})
                                    : -size + random.real(size / 2.0F);
    }
  }

  Guarded<float> edge, rate;
  Levels levels;
};

struct Shape {
  size_t rows, outputs, inputs;
};

// A matrix in the layout of one table, with its scratch memory.
struct Packed {
  Guarded<unsigned char> panels, scratch;
  LevelProduct product;

  Packed(Context& context, const LevelKernels& kernels, const Shape& shape, Guarded<uint64_t>& weights,
         Guarded<uint8_t>& indices, uint8_t top, bool is_signed)
      : panels(kernels.panel_bytes(shape.outputs, shape.inputs), 0xCC),
        scratch(kernels.scratch_bytes(shape.outputs, shape.inputs), 0xCC),
        product{panels.data(), indices.data(), shape.rows,    shape.outputs, shape.inputs,
                top,           is_signed,      scratch.data()} {
    kernels.pack_panels(weights.data(), shape.outputs, shape.inputs, is_signed ? top : 0, panels.data());
    if (!panels.intact()) context.fail("pack_panels wrote outside panel_bytes");
  }
};

void test_indices(Context& context, Random& random, const Shape& shape, Packed& packed, Packed& reference) {
  context.function = "linear_indices";
  const uint8_t top = random.one_of<uint8_t>({3, 15});
  const float size = std::sqrt(static_cast<float>(shape.inputs)) * 4.0F;
  Guarded<float> scale = random_parameters(random, shape.outputs), bias = random_parameters(random, shape.outputs);
  for (size_t n = 0; n < shape.outputs; ++n) scale[n] = std::fabs(scale[n]);
  const RandomSite site(random, shape.outputs, size, top);
  const size_t stride = padded(shape.outputs) + 64 * random.up_to(2);
  Guarded<uint8_t> found(shape.rows * stride, 0xCC, random.up_to(7)), wanted(shape.rows * stride, 0xCC);
  const LevelAffine affine{scale.data(), bias.data(), nullptr};
  context.kernels->levels->linear_indices(packed.product, affine, {site.levels, found.data(), stride});
  kReference.levels->linear_indices(reference.product, affine, {site.levels, wanted.data(), stride});
  expect_same(context, found, wanted);
}

void test_floats(Context& context, Random& random, const Shape& shape, Packed& packed, Packed& reference) {
  context.function = "linear_floats";
  const size_t stride = padded(shape.outputs);
  Guarded<float> scale = random_parameters(random, shape.outputs), bias = random_parameters(random, shape.outputs);
  Guarded<float> residual(shape.rows * stride), wanted(shape.rows * stride, 0xEE);
  for (size_t i = 0; i < residual.size(); ++i)
    if (i % stride < shape.outputs) residual[i] = random_parameter(random);
  for (const bool has_residual : {false, true}) {
    LevelAffine affine{scale.data(), bias.data(), has_residual ? residual.data() : nullptr};
    Guarded<float> found(residual.size(), 0xCC);
    kReference.levels->linear_floats(reference.product, affine, wanted.data());
    context.kernels->levels->linear_floats(packed.product, affine, found.data());
    expect_same(context, found, wanted);
    if (!has_residual) continue;
    found.fill_from(residual);
    affine.residual = found.data();
    context.kernels->levels->linear_floats(packed.product, affine, found.data());
    expect_same(context, found, wanted);
  }
}

void test_linear(Context& context, Random& random, const Shape& shape) {
  for (const uint8_t top : kTops) {
    for (const bool is_signed : {true, false}) {
      std::snprintf(context.shape, sizeof context.shape, "rows %zu, outputs %zu, inputs %zu, top %d, signed %d",
                    shape.rows, shape.outputs, shape.inputs, top, is_signed);
      context.function = "packing";
      Guarded<uint64_t> weights = random_rows(random, shape.outputs, shape.inputs);
      Guarded<uint8_t> indices = random_indices(random, shape.rows, shape.inputs, padded(shape.inputs), top);
      Packed packed(context, *context.kernels->levels, shape, weights, indices, top, is_signed);
      Packed reference(context, *kReference.levels, shape, weights, indices, top, is_signed);
      test_indices(context, random, shape, packed, reference);
      test_floats(context, random, shape, packed, reference);
      if (!packed.scratch.intact()) context.fail("wrote outside scratch_bytes");
    }
  }
}

void test_layer_norm(Context& context, Random& random, size_t rows, size_t channels) {
  context.function = "layer_norm";
  std::snprintf(context.shape, sizeof context.shape, "rows %zu, channels %zu", rows, channels);
  const size_t stride = padded(channels);
  Guarded<float> input(rows * stride), found(rows * stride, 0xCC), wanted(rows * stride, 0xEE);
  for (size_t i = 0; i < input.size(); ++i)
    if (i % stride < channels) input[i] = random.real(4.0F);
  Guarded<float> weight = random_parameters(random, channels), bias = random_parameters(random, channels);
  const RandomSite site(random, channels, 1.0F, random.one_of<uint8_t>({3, 15}));
  Guarded<uint8_t> indices(rows * stride, 0xCC, random.up_to(7)), wanted_indices(rows * stride, 0xEE);
  LayerNorm norm{input.data(), weight.data(), bias.data(),          nullptr, 1e-12, rows, channels, wanted.data(),
                 nullptr,      site.levels,   wanted_indices.data()};
  kReference.layer_norm(norm);
  norm.output = found.data();
  norm.indices = indices.data();
  if (!context.kernels->layer_norm(norm)) context.fail("rejected values inside the range");
  expect_same(context, found, wanted);
  expect_same(context, indices, wanted_indices);
}

struct HeadShape {
  size_t queries, keys, channels;
};

// Thresholds that cut a normal number of keys off, or few, or all but the greatest score.
Guarded<int32_t> random_thresholds(Random& random, size_t channels, uint8_t top) {
  const size_t most = channels * top * top;
  const size_t usual =
      random.one_of<size_t>({most, most / 4, 4 * top * static_cast<size_t>(std::sqrt(channels)), 1, 0});
  Guarded<int32_t> thresholds(top);
  for (size_t j = 0; j < top; ++j) thresholds[j] = static_cast<int32_t>(random.up_to(std::min(most, usual)));
  std::sort(thresholds.data(), thresholds.data() + top, std::greater<>());
  return thresholds;
}

void test_attention(Context& context, Random& random, const HeadShape& shape) {
  context.function = "attend";
  for (const uint8_t top : kTops) {
    std::snprintf(context.shape, sizeof context.shape, "queries %zu, keys %zu, channels %zu, top %d", shape.queries,
                  shape.keys, shape.channels, top);
    const size_t stride = shape.channels + random.up_to(200);
    Guarded<uint8_t> queries = random_indices(random, shape.queries, stride, stride, top);
    Guarded<uint8_t> keys = random_indices(random, shape.keys, stride, stride, top);
    Guarded<uint8_t> values = random_indices(random, shape.keys, stride, stride, top);
    Guarded<int32_t> thresholds = random_thresholds(random, shape.channels, top);
    const RandomSite site(random, shape.channels, 8.0F, random.one_of<uint8_t>({3, 15}));
    const size_t context_stride = shape.channels + random.up_to(100);
    Guarded<uint8_t> found(shape.queries * context_stride, 0xCC), wanted(found.size(), 0xCC);
    Guarded<unsigned char> scratch(context.kernels->levels->head_bytes(shape.keys, shape.channels), 0xCC);
    Buffer<unsigned char> reference_scratch(kReference.levels->head_bytes(shape.keys, shape.channels));
    bibert::Head head{queries.data(),    keys.data(),
                      values.data(),     stride,
                      shape.queries,     shape.keys,
                      shape.channels,    top,
                      thresholds.data(), 1.0F + random.real(0.9F),
                      site.levels,       wanted.data(),
                      context_stride,    reference_scratch.data()};
    kReference.levels->attend(head);
    head.contexts = found.data();
    head.scratch = scratch.data();
    context.kernels->levels->attend(head);
    expect_same(context, found, wanted);
    if (!scratch.intact()) context.fail("wrote outside head_bytes");
  }
}

using Sizes = std::initializer_list<size_t>;

void test_fixed_shapes(Context& context, Random& random) {
  for (const size_t outputs : Sizes{1, 26, 63, 64, 65, 128, 312})
    for (const size_t rows : Sizes{1, 2, 3, 4, 5, 7}) test_linear(context, random, {rows, outputs, outputs});
  for (const size_t inputs : Sizes{1, 2, 5, 6, 7, 23, 24, 25, 63, 64, 65, 383, 384, 385, 768, 1200, 1536, 3071, 16384})
    test_linear(context, random, {random.between(1, 9), 65, inputs});
  test_linear(context, random, {kMaxRows, 384, 384});
  for (const size_t channels : Sizes{1, 63, 64, 65, 384, 768}) test_layer_norm(context, random, 6, channels);
  for (const size_t channels : Sizes{1, 2, 3, 4, 5, 26, 31, 32, 33, 63, 64})
    for (const size_t keys : Sizes{1, 2, 7, 8, 15, 16, 17, 33, 130})
      test_attention(context, random, {5, keys, channels});
  test_attention(context, random, {2, 8192, 64});
}

void test_random_shapes(Context& context, Random& random) {
  test_linear(context, random, {random.between(1, kMaxRows), random.between(1, 130), random.between(1, 800)});
  test_linear(context, random, {random.between(1, 5), random.between(1, 70), random.between(1, 3072)});
  test_layer_norm(context, random, random.between(1, 9), random.between(1, 800));
  test_attention(context, random, {random.between(1, 70), random.between(1, 140), random.between(1, 64)});
  test_attention(context, random, {1, random.between(1, 600), random.between(1, 64)});
}

}  // namespace

int main(int count, char** arguments) {
  const unsigned long rounds = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 20;
  return compare::run("levels_test", rounds, test_fixed_shapes, test_random_shapes);
}
