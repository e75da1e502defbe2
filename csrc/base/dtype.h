// Names of the element types.
#pragma once

#include <cstddef>
#include <iterator>
#include <string_view>

#include "base/dtype_code.h"

namespace tcim_lite {

// numpy's spelling: "float16". By code.
constexpr std::string_view kDTypeNames[] = {"?",       "int8",    "uint8", "int16",  "uint16",  "int32", "uint32",
                                            "float16", "float32", "int64", "uint64", "float64", "bool"};
constexpr std::string_view name_of(DType dtype) {
  return size_t(dtype) < std::size(kDTypeNames) ? kDTypeNames[size_t(dtype)] : "?";
}

}  // namespace tcim_lite
