// Element types. 1..8 are the runtime's own and the codes of the container; the rest exist only
// on the host side of a copy. Their names are in base/dtype.h: <string_view> takes the compiler 0.4 s, and every kernel
// file includes this.
#pragma once

#include <cstdint>

namespace tcim_lite {

enum class DType : uint8_t {
  Int8 = 1,
  UInt8 = 2,
  Int16 = 3,
  UInt16 = 4,
  Int32 = 5,
  UInt32 = 6,
  Float16 = 7,
  Float32 = 8,
  Int64 = 9,
  UInt64 = 10,
  Float64 = 11,
  Bool = 12,
};

constexpr bool is_device_dtype(uint8_t code) { return code >= 1 && code <= 8; }

constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::Int8:
    case DType::UInt8:
    case DType::Bool:
      return 1;
    case DType::Int16:
    case DType::UInt16:
    case DType::Float16:
      return 2;
    case DType::Int32:
    case DType::UInt32:
    case DType::Float32:
      return 4;
    case DType::Int64:
    case DType::UInt64:
    case DType::Float64:
      return 8;
  }
  return 0;
}

}  // namespace tcim_lite
