// The 64-bit fingerprint of recordings (docs/recording.md, section 3). tcim_lite/replay/fingerprint.py is its twin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tcim_lite::layers {

uint64_t fingerprint(std::span<const std::byte> content);

}  // namespace tcim_lite::layers
