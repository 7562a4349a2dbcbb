// Runs the fuzz target on random inputs, for compilers without libFuzzer. Input n is the same on every machine.
//
//   fuzz_api [inputs] [first]    20,000 inputs by default
//
// A failed expectation or a sanitizer ends the program; every thousandth input is told before it.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "harness.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

int main(int count, char** arguments) {
  const uint64_t inputs = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 20000;
  const uint64_t first = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 0;
  for (uint64_t number = first; number < first + inputs; ++number) {
    harness::Random random(number);
    std::vector<uint8_t> bytes(random.between(0, 400));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.word());
    if (number % 1000 == 0) std::fprintf(stderr, "input %llu\n", static_cast<unsigned long long>(number));
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("fuzz_api: %llu inputs, 0 failures\n", static_cast<unsigned long long>(inputs));
}
