#include "graph/ops/window.h"

namespace tcim_lite::ops {

void check_window(const OpCheck& op, const Value& x, const Value& y) {
  op.rank(x, 4);
  op.rank(y, 4);
  for (const std::string_view key : {"kernel", "strides", "dilations", "upsample"}) {
    for (const int64_t value : numbers(op, key, 2)) {
      if (value < 1 || value > (1 << 20)) op.refuse("attribute '", key, "' has ", value, ", expected 1 to 2^20");
    }
  }
  for (const int64_t value : numbers(op, "pads", 2)) {
    if (value < -(1 << 20) || value > (1 << 20)) op.refuse("attribute 'pads' has ", value, ", expected at most 2^20");
  }
  for (size_t axis : {2, 3}) {
    if (x.shape[axis] <= (1 << 20) && y.shape[axis] <= (1 << 20)) continue;
    op.refuse("'", x.name, "' is ", describe(x), " and '", y.name, "' ", describe(y),
              "; windows move over at most 2^20 rows and columns");
  }
}

Window window_of(const Op& op, const Shape& x, const Shape& y) {
  Window window;
  const auto kernel = numbers_of(op, "kernel"), strides = numbers_of(op, "strides"), pads = numbers_of(op, "pads"),
             dilations = numbers_of(op, "dilations"), upsample = numbers_of(op, "upsample");
  for (size_t i = 0; i < 2; ++i) {
    (i == 0 ? window.h : window.w) =
        Window::Axis{x[2 + i], y[2 + i], kernel[i], strides[i], pads[i], dilations[i], upsample[i]};
  }
  return window;
}

}  // namespace tcim_lite::ops
