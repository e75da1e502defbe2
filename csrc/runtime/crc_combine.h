// Checksums of pieces joined: lets one large weight be checked by several threads.
#pragma once

#include <cstdint>

namespace tcim_lite {

// CRC-32C of A followed by B, from the checksums of both and the length of B.
inline uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t bytes_b) {
  constexpr uint32_t kPolynomial = 0x82f63b78u;  // reflected: bit 31 is x^0
  const auto multiply = [](uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
      if (a & bit) product ^= b;
      b = (b & 1u) ? (b >> 1) ^ kPolynomial : b >> 1;
    }
    return product;
  };
  // x^(8 * bytes_b) by squaring, starting from x^8.
  uint32_t power = 0x80000000u;
  uint32_t square = 0x00800000u;
  for (uint64_t count = bytes_b; count != 0; count >>= 1) {
    if (count & 1) power = multiply(power, square);
    square = multiply(square, square);
  }
  return multiply(power, crc_a) ^ crc_b;
}

}  // namespace tcim_lite
