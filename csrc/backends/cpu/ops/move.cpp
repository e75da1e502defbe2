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

// The axis along which elements lie side by side; -1: none.
int contiguous(const Box& box, const int64_t (&strides)[kMaxAxes]) {
  for (int axis = 0; axis < box.axes; ++axis) {
    if (strides[axis] == 1 && box.extents[axis] > 1) return axis;
  }
  return -1;
}

// A box of which x and y have lines along different axes: matrices [rows, cols] that change places.
struct Matrices {
  int rows, cols;  // axes: along y and along x
};
Matrices matrices_of(const Box& box) {
  constexpr int64_t kShort = 16;  // shorter lines are copied as quickly one by one
  const Matrices axes{contiguous(box, box.y_strides), contiguous(box, box.x_strides)};
  const bool turned = axes.rows >= 0 && axes.cols >= 0 && axes.rows != axes.cols && box.extents[axes.rows] >= kShort &&
                      box.extents[axes.cols] >= kShort;
  return turned ? axes : Matrices{-1, -1};
}

template <typename T>
void turn_box(const RunContext& context, const Box& box, Matrices axes, const T* x, T* y) {
  constexpr int64_t kCols = 512, kElements = 8192;  // of a task, about
  const int64_t rows = box.extents[axes.rows], cols = box.extents[axes.cols];
  const int64_t piece = std::min(cols, kCols), pieces = (cols + piece - 1) / piece;
  const int64_t strip = std::max<int64_t>(1, kElements / piece / 16) * 16, strips = (rows + strip - 1) / strip;
  int64_t count = strips * pieces;
  for (int axis = 0; axis < box.axes; ++axis) count *= axis == axes.rows || axis == axes.cols ? 1 : box.extents[axis];
  context.pool.parallel_for(count, [&](int64_t index, int) {
    const int64_t col = index % pieces * piece, row = index / pieces % strips * strip;
    int64_t rest = index / pieces / strips;
    int64_t x_at = row * box.x_strides[axes.rows] + col, y_at = row + col * box.y_strides[axes.cols];
    for (int axis = box.axes; axis-- > 0;) {
      if (axis == axes.rows || axis == axes.cols) continue;
      x_at += rest % box.extents[axis] * box.x_strides[axis];
      y_at += rest % box.extents[axis] * box.y_strides[axis];
      rest /= box.extents[axis];
    }
    context.kernels.transpose[sizeof(T) / 4]({x + x_at, y + y_at, std::min(strip, rows - row),
                                              std::min(piece, cols - col), box.x_strides[axes.rows],
                                              box.y_strides[axes.cols]});
  });
}

template <typename T>
void copy_box(const RunContext& context, const Box& given, const std::byte* source, std::byte* target) {
  if constexpr (sizeof(T) == 2 || sizeof(T) == 4) {
    if (const Matrices axes = matrices_of(given); axes.rows >= 0) {
      return turn_box(context, given, axes, reinterpret_cast<const T*>(source) + given.x_offset,
                      reinterpret_cast<T*>(target) + given.y_offset);
    }
  }
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
