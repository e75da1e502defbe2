// Conversion of contiguous elements between dtypes.
//
// float -> narrower float: nearest even, overflow to infinity. integer -> integer: the value is kept or refused, but
// uint8 <-> int8 reinterprets (xh1 images). float -> int8: nearest even, saturating. float -> another integer: exact
// values only. integer -> float: nearest even. Sources may be unaligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.h"

namespace tcim_lite {

// source and target hold `count` elements and do not overlap.
using ConvertRun = void (*)(const std::byte* source, std::byte* target, int64_t count);
// The index of the first element the target dtype cannot take, or -1.
using FindMisfit = int64_t (*)(const std::byte* source, int64_t count);

struct Conversion {
  ConvertRun convert;
  FindMisfit find_misfit;  // null: every value can be converted
};

// `to` is one of the eight device dtypes.
Conversion conversion(DType from, DType to);

// One element as text, for messages.
std::string element_text(DType dtype, const std::byte* element);

// Whether one element is a number that is not whole.
bool has_fraction(DType dtype, const std::byte* element);

}  // namespace tcim_lite
