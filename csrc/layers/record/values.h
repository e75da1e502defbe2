// The bytes of arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/strided_copy.h"

namespace tcim_lite::layers {

// Of a single integer, such as a length.
std::optional<int64_t> only_value(DType dtype, std::span<const std::byte> content);

// The elements in row-major order: in place, or copied into `room`.
std::span<const std::byte> elements_of(const ArrayView& array, std::vector<std::byte>& room);

}  // namespace tcim_lite::layers
