// SHA-256 (FIPS 180-4), for the id of a container: a few MB at most.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tcim_lite::hmm {

class Sha256 {
 public:
  void update(std::span<const std::byte> bytes) noexcept;
  std::array<uint8_t, 32> finish() noexcept;

 private:
  void block(const uint8_t* data) noexcept;

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_{};
  uint64_t bytes_ = 0;
};

}  // namespace tcim_lite::hmm
