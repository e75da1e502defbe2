// CRC-32C: 8 table lookups per 8 bytes anywhere; with the instruction of SSE4.2 or ARMv8.1 three interleaved streams,
// because it takes 3 cycles and starts every cycle. The streams are joined by moving a register over a block of zeros,
// a linear map.
#include <array>
#include <cstring>

#include "hmm/reader.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define TCIM_LITE_CRC32C_TARGET __attribute__((target("sse4.2")))
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__GNUC__) && (!defined(__clang__) || __clang_major__ >= 16)
#define TCIM_LITE_CRC32C_TARGET __attribute__((target("+crc")))
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace tcim_lite::hmm {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // bit-reversed

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: byte b followed by k zero bytes.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = tables[0][tables[k - 1][byte] & 255] ^ (tables[k - 1][byte] >> 8);
  }
  return tables;
}
constexpr Tables kTables = make_tables();

uint64_t load64(const uint8_t* data) {
  uint64_t word;
  std::memcpy(&word, data, 8);
  return word;
}

uint32_t advance_by_table(uint32_t crc, const uint8_t* data, size_t bytes) {
  for (; bytes >= 8; data += 8, bytes -= 8) {
    const uint64_t word = load64(data) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 255];
  }
  for (; bytes != 0; ++data, --bytes) crc = kTables[0][(crc ^ *data) & 255] ^ (crc >> 8);
  return crc;
}

#ifdef TCIM_LITE_CRC32C_TARGET
#if defined(__x86_64__)
bool has_instruction() { return __builtin_cpu_supports("sse4.2"); }
using Register = uint64_t;  // the upper half is 0
TCIM_LITE_CRC32C_TARGET inline Register step(Register crc, uint64_t word) { return _mm_crc32_u64(crc, word); }
TCIM_LITE_CRC32C_TARGET inline Register step(Register crc, uint8_t byte) { return _mm_crc32_u8(uint32_t(crc), byte); }
#else
bool has_instruction() { return getauxval(AT_HWCAP) & (1ul << 7); }  // HWCAP_CRC32
using Register = uint32_t;
TCIM_LITE_CRC32C_TARGET inline Register step(Register crc, uint64_t word) { return __crc32cd(crc, word); }
TCIM_LITE_CRC32C_TARGET inline Register step(Register crc, uint8_t byte) { return __crc32cb(crc, byte); }
#endif

constexpr size_t kStreamBytes = 4096;

// The map of a register over kStreamBytes zero bytes, by byte of the register.
using ZerosMap = std::array<std::array<uint32_t, 256>, 4>;

ZerosMap make_zeros_map() {
  ZerosMap map{};
  const std::array<uint8_t, kStreamBytes> zeros{};
  for (size_t k = 0; k < 4; ++k) {
    for (size_t bit = 0; bit < 8; ++bit)
      map[k][size_t{1} << bit] = advance_by_table(1u << (8 * k + bit), zeros.data(), zeros.size());
    for (size_t byte = 1; byte < 256; ++byte) map[k][byte] = map[k][byte & (byte - 1)] ^ map[k][byte & -byte];
  }
  return map;
}

TCIM_LITE_CRC32C_TARGET uint32_t advance_by_instruction(uint32_t crc, const uint8_t* data, size_t bytes) {
  static const ZerosMap zeros = make_zeros_map();
  const auto over_zeros = [](uint32_t c) {
    return zeros[0][c & 255] ^ zeros[1][(c >> 8) & 255] ^ zeros[2][(c >> 16) & 255] ^ zeros[3][c >> 24];
  };
  for (; bytes >= 3 * kStreamBytes; data += 3 * kStreamBytes, bytes -= 3 * kStreamBytes) {
    Register a = crc, b = 0, c = 0;
    for (size_t i = 0; i < kStreamBytes; i += 8) {
      a = step(a, load64(data + i));
      b = step(b, load64(data + kStreamBytes + i));
      c = step(c, load64(data + 2 * kStreamBytes + i));
    }
    crc = over_zeros(over_zeros(uint32_t(a)) ^ uint32_t(b)) ^ uint32_t(c);
  }
  Register tail = crc;
  for (; bytes >= 8; data += 8, bytes -= 8) tail = step(tail, load64(data));
  for (; bytes != 0; ++data, --bytes) tail = step(tail, *data);
  return uint32_t(tail);
}
#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
#ifdef TCIM_LITE_CRC32C_TARGET
  static const bool present = has_instruction();
  if (present) return ~advance_by_instruction(~seed, data, bytes.size());
#endif
  return crc32c_by_table(bytes, seed);
}

uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t seed) {
  return ~advance_by_table(~seed, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace tcim_lite::hmm
