// The bounds of Reader: a read past the end of a region, and data left at the end, are errors with both numbers.
// The data is allocated with its exact size, so AddressSanitizer sees a read past its end. Exits with 1 on failure.
#include "reader.h"

#include <functional>

#include "harness.h"

namespace {

using bibert::Error;
using bibert::Reader;
using bibert::Sizes;

harness::Checks checks;

// What `call` throws, or "" if it returns.
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    checks.expect(error.status() == BIBERT_BAD_MODEL, std::string("another status: ") + error.what());
    return error.what();
  }
  return "";
}

void expect_error(const std::string& found, const std::vector<std::string>& facts) {
  for (const std::string& fact : facts) {
    checks.expect(found.find(fact) != std::string::npos, "'" + found + "' does not say '" + fact + "'");
  }
}

// Every kind of tensor, for each number of entries that are left: what fits is read, and one entry more is an error.
void test_reads_end_with_their_region() {
  using Read = std::function<void(Reader&, size_t count)>;
  const std::pair<size_t, Read> reads[] = {
      {8, [](Reader& reader, size_t count) { reader.bits("t", count, 64); }},
      {4, [](Reader& reader, size_t count) { reader.floats("t", count); }},
      {4, [](Reader& reader, size_t count) { reader.scales("t", count); }},
      {4, [](Reader& reader, size_t count) { reader.table("t", count, 1); }},
      {4, [](Reader& reader, size_t count) { reader.thresholds("t", count, true); }},
      {4, [](Reader& reader, size_t count) { reader.integers("t", count, 1, true); }},
      {4, [](Reader& reader, size_t count) { reader.falling("t", count, 1, 1); }},
  };
  for (const auto& [entry, read] : reads) {
    for (size_t present = 1; present < 6; ++present) {
      const Sizes sizes = entry == 8 ? Sizes{present, 0} : Sizes{0, present};
      const harness::Bytes data(sizes.bytes());
      Reader whole(data.data(), data.size(), sizes);
      checks.expect(error_of([&, &read = read] { read(whole, present); }).empty(), "what fits is read");
      checks.expect(error_of([&] { whole.finish(); }).empty(), "everything has been read");
      Reader beyond(data.data(), data.size(), sizes);
      checks.expect(!error_of([&, &read = read] { read(beyond, present + 1); }).empty(),
                    "one entry too many is an error");
    }
  }
}

void test_an_error_names_the_tensor_and_both_numbers() {
  const Sizes sizes{2, 3};
  const harness::Bytes data(sizes.bytes());
  Reader reader(data.data(), data.size(), sizes);
  reader.bits("a", 1, 64);
  expect_error(error_of([&] { reader.bits("b", 2, 64); }), {"b:", "16 bytes", "8 left"});
  reader.floats("c", 2);
  expect_error(error_of([&] { reader.table("d", 2, 1); }), {"d:", "4 bytes", "0 left"});
}

void test_a_single_number_must_be_present_and_above_0() {
  const float numbers[] = {0.5F, 0.0F};
  const Sizes sizes{0, 2};
  Reader reader(numbers, sizeof(numbers), sizes);
  checks.expect(reader.positive("a") == 0.5F, "a positive number is read");
  expect_error(error_of([&] { reader.positive("b"); }), {"b:", "0", "above 0"});
  expect_error(error_of([&] { reader.positive("c"); }), {"c:", "0 left"});
}

void test_falling_integers_are_cut() {
  const int32_t numbers[] = {9, 9, 2, 7, 0, 0};
  Reader reader(numbers, sizeof(numbers), Sizes{0, 6});
  const bibert::Buffer<int32_t> read = reader.falling("a", 2, 3, 8);
  checks.expect(read[0] == 8 && read[1] == 8 && read[2] == 2 && read[3] == 7,
                "the greatest value replaces greater ones");
}

void test_unread_data_is_an_error() {
  const Sizes sizes{2, 3};
  const harness::Bytes data(sizes.bytes());
  Reader reader(data.data(), data.size(), sizes);
  expect_error(error_of([&] { reader.finish(); }), {"16 bytes", "12 bytes"});
  reader.bits("a", 2, 64);
  expect_error(error_of([&] { reader.finish(); }), {"0 bytes", "12 bytes"});
}

}  // namespace

int main() {
  test_reads_end_with_their_region();
  test_an_error_names_the_tensor_and_both_numbers();
  test_a_single_number_must_be_present_and_above_0();
  test_falling_integers_are_cut();
  test_unread_data_is_an_error();
  return checks.finish("reader_test");
}
