#include "layers/record/fingerprint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace tcim_lite::layers {
namespace {

static_assert(std::endian::native == std::endian::little, "words of a recording are little-endian");

constexpr size_t kBlock = 1024;  // words of 8 bytes
constexpr uint64_t kPrime = 0x9E3779B97F4A7C15;

// splitmix64 of 0, 1, 2 and so on, made odd.
constexpr std::array<uint64_t, kBlock> make_multipliers() {
  std::array<uint64_t, kBlock> made{};
  for (size_t i = 0; i < kBlock; ++i) {
    uint64_t word = (i + 1) * kPrime;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
    made[i] = (word ^ (word >> 31)) | 1;
  }
  return made;
}
constexpr std::array<uint64_t, kBlock> kMultipliers = make_multipliers();

// Folded, because the product of the top bit alone is the same for every odd multiplier; by 29, so that no sign bit
// falls on another one.
uint64_t product(uint64_t word, size_t index) { return (word ^ (word >> 29)) * kMultipliers[index]; }

}  // namespace

uint64_t fingerprint(std::span<const std::byte> content) {
  uint64_t hashed = uint64_t(content.size()) * kPrime;
  const size_t words = (content.size() + 7) / 8;
  for (size_t begin = 0; begin < words; begin += kBlock) {
    const size_t count = std::min(kBlock, words - begin);
    const size_t whole = std::min(count, content.size() / 8 - begin);
    uint64_t total = 0, word = 0;
    for (size_t i = 0; i < whole; ++i) {
      std::memcpy(&word, content.data() + (begin + i) * 8, 8);
      total += product(word, i);
    }
    if (whole < count) {
      word = 0;
      std::memcpy(&word, content.data() + (begin + whole) * 8, content.size() % 8);
      total += product(word, whole);
    }
    hashed = std::rotl(hashed ^ total, 29) * kPrime;
  }
  return hashed ^ (hashed >> 32);
}

}  // namespace tcim_lite::layers
