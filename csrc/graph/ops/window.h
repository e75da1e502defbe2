// The attributes of ops whose windows move over the last two axes.
#pragma once

#include "graph/ops/dense.h"

namespace tcim_lite::ops {

// Reads kernel, strides, pads, dilations and upsample of a checked op over x [N, C, H, W] with results [N, M, OH, OW].
Window window_of(const Op& op, const Shape& x, const Shape& y);
// Checks them. The result may be smaller than what fits, and larger, where windows then read nothing.
void check_window(const OpCheck& op, const Value& x, const Value& y);

#define TCIM_LITE_WINDOW_ATTRIBUTES "kernel", "strides", "pads", "dilations", "upsample"

}  // namespace tcim_lite::ops
