// Measures the linear kernels of each instruction set in products of bits per clock cycle. The clock is measured too: a
// chain of dependent additions, one cycle each, runs between the rounds. Usage: bench_kernels [rounds]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "dispatch.h"

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

void measure(const Kernels& kernels, const Shape& shape, int rounds) {
  std::mt19937_64 random(1);
  Buffer<uint64_t> weights(shape.outputs * bibert::words_for(shape.inputs));
  Buffer<uint64_t> rows(shape.rows * bibert::words_for(shape.inputs));
  fill(weights.data(), weights.size(), random);
  fill(rows.data(), rows.size(), random);
  Buffer<uint8_t> panels(kernels.panel_bytes(shape.outputs, shape.inputs));
  Buffer<uint8_t> tiles(kernels.tile_bytes(shape.rows, shape.inputs));
  kernels.pack_panels(weights.data(), shape.outputs, shape.inputs, panels.data());
  Buffer<int32_t> most(bibert::padded(shape.outputs));
  std::fill_n(most.data(), most.size(), static_cast<int32_t>(shape.inputs / 2));
  Buffer<int32_t> base(bibert::padded(shape.outputs));
  Buffer<float> scale(bibert::padded(shape.outputs)), bias(bibert::padded(shape.outputs));
  Buffer<float> values(shape.rows * bibert::padded(shape.outputs));
  Buffer<uint64_t> bits(shape.rows * bibert::words_for(shape.outputs));
  const Product product{panels.data(), tiles.data(), shape.rows, shape.outputs, shape.inputs};
  std::vector<double> cycles, to_bits, to_floats;
  for (int round = 0; round < rounds; ++round) {
    cycles.push_back(cycle_seconds());
    to_bits.push_back(seconds([&] {
      kernels.pack_tiles(rows.data(), shape.rows, shape.inputs, tiles.data());
      kernels.linear_bits(product, most.data(), bits.data());
    }));
    to_floats.push_back(seconds([&] {
      kernels.pack_tiles(rows.data(), shape.rows, shape.inputs, tiles.data());
      kernels.linear_floats(product, {scale.data(), bias.data(), base.data(), 2, values.data()}, values.data());
    }));
  }
  const double cycle = *std::min_element(cycles.begin(), cycles.end());
  const double products = static_cast<double>(shape.rows * shape.inputs * shape.outputs);
  const auto rate = [&](double taken) { return products * cycle / taken; };
  std::printf("%-10s %5zu %6zu %7zu   %6.1f %6.1f   %6.1f %6.1f   %5.2f\n", kernels.name, shape.rows, shape.inputs,
              shape.outputs, rate(*std::min_element(to_bits.begin(), to_bits.end())), rate(median(to_bits)),
              rate(*std::min_element(to_floats.begin(), to_floats.end())), rate(median(to_floats)), 1e-9 / cycle);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 200;
  std::printf("products of bits per cycle (best, median)\n%-10s %5s %6s %7s   %13s   %13s   %5s\n", "isa", "rows",
              "inputs", "outputs", "to bits", "to floats", "GHz");
  for (const Kernels* kernels : bibert::available_kernels()) {
    for (const Shape& shape : kShapes) measure(*kernels, shape, kernels == &bibert::kReference ? 5 : rounds);
  }
  return 0;
}
