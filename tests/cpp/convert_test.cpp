// The vector paths of float32 <-> float16 against the scalar conversions: every fp16, the borders of rounding, every
// tail, unaligned.
#include "runtime/convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/half.h"
#include "check.h"
#include "guarded_buffer.h"

using namespace tcim_lite;

namespace {

// Converts through buffers that start `offset` bytes off and end at a guard page.
template <typename From, typename To>
std::vector<To> convert(DType from, DType to, const std::vector<From>& values, int64_t offset) {
  const int64_t count = int64_t(values.size());
  const GuardedBuffer<std::byte> source(count * int64_t(sizeof(From)) + offset), target(count * int64_t(sizeof(To)));
  const std::byte* bytes = reinterpret_cast<const std::byte*>(values.data());
  std::copy_n(bytes, values.size() * sizeof(From), source.data() + offset);
  conversion(from, to).convert(source.data() + offset, target.data(), count);
  std::vector<To> result(values.size());
  std::copy_n(target.data(), values.size() * sizeof(To), reinterpret_cast<std::byte*>(result.data()));
  return result;
}

TEST(every_half_widens_exactly) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = uint16_t(i);
  const std::vector<float> floats = convert<uint16_t, float>(DType::Float16, DType::Float32, halves, 0);
  for (size_t i = 0; i < halves.size(); ++i) {
    const float expected = half_to_float(halves[i]);
    if (std::isnan(expected))
      CHECK(std::isnan(floats[i]));
    else
      CHECK_EQ(std::bit_cast<uint32_t>(floats[i]), std::bit_cast<uint32_t>(expected));
  }
}

TEST(floats_round_to_the_nearest_half) {
  std::vector<float> floats;
  for (uint32_t half = 0; half < 0x7c00; ++half) {
    const float low = half_to_float(uint16_t(half)),
                high = half == 0x7bff ? 65536.0f : half_to_float(uint16_t(half + 1));
    const float middle = (low + high) / 2;
    for (const float value : {low, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      floats.insert(floats.end(), {value, -value});
    }
  }
  const float infinity = std::numeric_limits<float>::infinity();
  floats.insert(floats.end(), {1e6f, -1e6f, infinity, -infinity, 1e-45f, -1e-45f, std::nanf("")});
  const std::vector<uint16_t> halves = convert<float, uint16_t>(DType::Float32, DType::Float16, floats, 0);
  for (size_t i = 0; i + 1 < floats.size(); ++i) CHECK_EQ(halves[i], float_to_half(floats[i]));
  CHECK(std::isnan(half_to_float(halves.back())));
}

TEST(tails_and_unaligned_sources) {
  for (size_t count = 0; count <= 20; ++count) {
    std::vector<float> floats(count);
    for (size_t i = 0; i < count; ++i) floats[i] = 0.1f * float(i + 1);
    for (const int64_t offset : {0, 1, 2, 3}) {
      const std::vector<uint16_t> halves = convert<float, uint16_t>(DType::Float32, DType::Float16, floats, offset);
      const std::vector<float> back = convert<uint16_t, float>(DType::Float16, DType::Float32, halves, offset);
      for (size_t i = 0; i < count; ++i) {
        CHECK_EQ(halves[i], float_to_half(floats[i]));
        CHECK_EQ(back[i], half_to_float(halves[i]));
      }
    }
  }
}

}  // namespace

int main() { return run_tests(); }
