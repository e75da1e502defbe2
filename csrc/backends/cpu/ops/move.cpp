// Copies boxes of elements.
#include <algorithm>
#include <cstring>

#include "backends/cpu/ops/dense_steps.h"

namespace tcim_lite::cpu {
namespace {

template <typename T>
void copy_row(const T* x, T* y, int64_t count, int64_t x_stride, int64_t y_stride) {
  if (x_stride == 1 && y_stride == 1) {
    std::memcpy(y, x, size_t(count) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < count; ++i) y[i * y_stride] = x[i * x_stride];
}

// The box with the axis last along which x lies, if the last one is so short that finding each row takes longer than
// copying it, as where pixels of several planes are put side by side.
Box with_long_rows(Box box) {
  constexpr int64_t kShort = 8;
  const int last = box.axes - 1;
  if (last < 1 || box.extents[last] >= kShort || box.x_strides[last] == 1) return box;
  const auto along = int(std::find(box.x_strides, box.x_strides + last, 1) - box.x_strides);
  if (box.extents[along] > box.extents[last]) {
    std::swap(box.extents[along], box.extents[last]);
    std::swap(box.x_strides[along], box.x_strides[last]);
    std::swap(box.y_strides[along], box.y_strides[last]);
  }
  return box;
}

template <typename T>
void copy_box(const RunContext& context, const Box& given, const std::byte* source, std::byte* target) {
  constexpr int64_t kChunk = 4096;
  const Box box = with_long_rows(given);
  const int last = box.axes - 1;
  const int64_t cols = last < 0 ? 1 : box.extents[last];
  int64_t rows = 1;
  for (int axis = 0; axis < last; ++axis) rows *= box.extents[axis];
  const auto* x = reinterpret_cast<const T*>(source) + box.x_offset;
  auto* y = reinterpret_cast<T*>(target) + box.y_offset;
  const int64_t chunk = std::max<int64_t>(1, kChunk / cols);
  context.pool.parallel_for((rows + chunk - 1) / chunk, [&](int64_t index, int) {
    for (int64_t row = index * chunk; row < std::min(index * chunk + chunk, rows); ++row) {
      int64_t rest = row, x_at = 0, y_at = 0;
      for (int axis = last; axis-- > 0; rest /= box.extents[axis]) {
        x_at += rest % box.extents[axis] * box.x_strides[axis];
        y_at += rest % box.extents[axis] * box.y_strides[axis];
      }
      copy_row(x + x_at, y + y_at, cols, last < 0 ? 1 : box.x_strides[last], last < 0 ? 1 : box.y_strides[last]);
    }
  });
}

template <typename T>
void move(const RunContext& context, const MoveStep& step) {
  auto* y = reinterpret_cast<T*>(context.at(step.y));
  if (step.fills) std::fill_n(y, step.count, T(step.fill));
  for (size_t i = 0; i < step.boxes.size(); ++i)
    copy_box<T>(context, step.boxes[i], step.sources[i].at(context), context.at(step.y));
}

}  // namespace

void MoveStep::run(const RunContext& context) const {
  switch (bytes) {
    case 1:
      return move<uint8_t>(context, *this);
    case 2:
      return move<uint16_t>(context, *this);
    case 4:
      return move<uint32_t>(context, *this);
    default:
      return move<uint64_t>(context, *this);
  }
}

}  // namespace tcim_lite::cpu
