// Measures the linear kernels of each instruction set, for 1, 2 and 4 bits per activation, in products of a weight and
// an activation per clock cycle. The packing of activations and the output are included. The clock is measured too: a
// chain of dependent additions, one cycle each, runs between the rounds. Usage: bench_kernels [rounds [isa]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "dispatch.h"
#include "levels.h"

namespace {

using bibert::Buffer;
using bibert::Kernels;
using bibert::Product;

struct Shape {
  size_t rows, inputs, outputs;
};

constexpr Shape kShapes[] = {{64, 768, 768},  {64, 768, 3072}, {64, 3072, 768}, {64, 384, 1536}, {64, 1536, 384},
                             {64, 312, 1200}, {64, 1200, 312}, {32, 768, 768},  {16, 768, 768},  {1, 768, 768}};

template <class Function>
double seconds(const Function& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Seconds per cycle, from steps that take one cycle each.
double cycle_seconds() {
  constexpr long kSteps = 200000;
  const double taken = seconds([] {
    unsigned long chain = 0;
    for (long i = 0; i < kSteps / 8; ++i) {
#if defined(__x86_64__)
      __asm__ volatile("add %1,%0;add %1,%0;add %1,%0;add %1,%0;add %1,%0;add %1,%0;add %1,%0;add %1,%0"
                       : "+r"(chain)
                       : "r"(i));
#else
      __asm__ volatile(
          "add %0,%0,%1\nadd %0,%0,%1\nadd %0,%0,%1\nadd %0,%0,%1\nadd %0,%0,%1\nadd %0,%0,%1\nadd %0,%0,%1\n"
          "add %0,%0,%1"
          : "+r"(chain)
          : "r"(i));
#endif
    }
  });
  return taken / kSteps;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void fill(uint64_t* words, size_t count, std::mt19937_64& random) {
  for (size_t i = 0; i < count; ++i) words[i] = random();
}

// Weights and parameters that do not depend on the number of bits.
struct Layer {
  explicit Layer(const Shape& shape)
      : weights(shape.outputs * bibert::words_for(shape.inputs)),
        scale(bibert::padded(shape.outputs)),
        bias(bibert::padded(shape.outputs)),
        values(shape.rows * bibert::padded(shape.outputs)) {
    std::mt19937_64 random(1);
    fill(weights.data(), weights.size(), random);
  }

  Buffer<uint64_t> weights;
  Buffer<float> scale, bias, values;
};

// Prints how fast both functions are; `to_narrow` has bits or indices as output, `to_floats` floats.
template <class ToNarrow, class ToFloats>
void measure(const Kernels& kernels, int bits, const Shape& shape, int rounds, const ToNarrow& to_narrow,
             const ToFloats& to_floats) {
  std::vector<double> cycles, narrow, floats;
  for (int round = 0; round < rounds; ++round) {
    cycles.push_back(cycle_seconds());
    narrow.push_back(seconds(to_narrow));
    floats.push_back(seconds(to_floats));
  }
  const double cycle = *std::min_element(cycles.begin(), cycles.end());
  const double products = static_cast<double>(shape.rows * shape.inputs * shape.outputs);
  const auto rate = [&](double taken) { return products * cycle / taken; };
  std::printf("%-10s %4d %5zu %6zu %7zu   %6.1f %6.1f   %6.1f %6.1f   %5.2f\n", kernels.name, bits, shape.rows,
              shape.inputs, shape.outputs, rate(*std::min_element(narrow.begin(), narrow.end())), rate(median(narrow)),
              rate(*std::min_element(floats.begin(), floats.end())), rate(median(floats)), 1e-9 / cycle);
}

void measure_bits(const Kernels& kernels, const Shape& shape, int rounds) {
  Layer layer(shape);
  Buffer<uint64_t> rows(shape.rows * bibert::words_for(shape.inputs));
  std::mt19937_64 random(2);
  fill(rows.data(), rows.size(), random);
  Buffer<uint8_t> panels(kernels.panel_bytes(shape.outputs, shape.inputs));
  Buffer<uint8_t> tiles(kernels.tile_bytes(shape.rows, shape.inputs));
  kernels.pack_panels(layer.weights.data(), shape.outputs, shape.inputs, panels.data());
  Buffer<int32_t> most(bibert::padded(shape.outputs)), base(bibert::padded(shape.outputs));
  std::fill_n(most.data(), most.size(), static_cast<int32_t>(shape.inputs / 2));
  Buffer<uint64_t> bits(shape.rows * bibert::words_for(shape.outputs));
  const Product product{panels.data(), tiles.data(), shape.rows, shape.outputs, shape.inputs};
  const auto pack = [&] { kernels.pack_tiles(rows.data(), shape.rows, shape.inputs, tiles.data()); };
  float* const values = layer.values.data();
  measure(
      kernels, 1, shape, rounds,
      [&] {
        pack();
        kernels.linear_bits(product, most.data(), bits.data());
      },
      [&] {
        pack();
        kernels.linear_floats(product, {layer.scale.data(), layer.bias.data(), base.data(), 2, values}, values);
      });
}

void measure_levels(const Kernels& kernels, int bits, const Shape& shape, int rounds) {
  const bibert::LevelKernels& levels = *kernels.levels;
  const uint8_t top = static_cast<uint8_t>((1 << bits) - 1);
  Layer layer(shape);
  Buffer<uint8_t> rows(shape.rows * bibert::padded(shape.inputs));
  std::mt19937_64 random(2);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint8_t>(random() & top);
  Buffer<uint8_t> panels(levels.panel_bytes(shape.outputs, shape.inputs));
  Buffer<uint8_t> scratch(levels.scratch_bytes(shape.outputs, shape.inputs));
  levels.pack_panels(layer.weights.data(), shape.outputs, shape.inputs, top, panels.data());
  Buffer<float> edge(bibert::padded(shape.outputs)), rate(bibert::padded(shape.outputs));
  const size_t stride = bibert::padded(shape.outputs);
  Buffer<uint8_t> indices(shape.rows * stride);
  const bibert::LevelProduct product{panels.data(), rows.data(), shape.rows, shape.outputs,
                                     shape.inputs,  top,         true,       scratch.data()};
  float* const values = layer.values.data();
  measure(
      kernels, bits, shape, rounds,
      [&] {
        levels.linear_indices(product, {layer.scale.data(), layer.bias.data(), nullptr},
                              {{edge.data(), rate.data(), top}, indices.data(), stride});
      },
      [&] {
        levels.linear_floats(product, {layer.scale.data(), layer.bias.data(), values}, values);
      });
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 200;
  std::printf("products per cycle (best, median)\n%-10s %4s %5s %6s %7s   %13s   %13s   %5s\n", "isa", "bits", "rows",
              "inputs", "outputs", "to bits", "to floats", "GHz");
  for (const Kernels* kernels : bibert::available_kernels()) {
    if (argc > 2 && std::strcmp(argv[2], kernels->name) != 0) continue;
    const int times = kernels == &bibert::kReference ? 3 : rounds;
    for (const Shape& shape : kShapes) {
      measure_bits(*kernels, shape, times);
      for (const int bits : {2, 4}) measure_levels(*kernels, bits, shape, times);
    }
  }
  return 0;
}
