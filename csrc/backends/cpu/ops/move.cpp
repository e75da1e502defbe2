// Copies boxes of elements.
#include <algorithm>
#include <cstring>

#include "backends/cpu/ops/dense_steps.h"
#include "backends/cpu/ops/units.h"

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

void swap_axes(Box& box, int a, int b) {
  std::swap(box.extents[a], box.extents[b]);
  std::swap(box.x_strides[a], box.x_strides[b]);
  std::swap(box.y_strides[a], box.y_strides[b]);
}

struct Place {
  int64_t x, y;
};

// Of index `index` of the first `axes` axes.
Place place_of(const Box& box, int axes, int64_t index) {
  Place place{box.x_offset, box.y_offset};
  for (int axis = axes; axis-- > 0; index /= box.extents[axis]) {
    place.x += index % box.extents[axis] * box.x_strides[axis];
    place.y += index % box.extents[axis] * box.y_strides[axis];
  }
  return place;
}

int64_t count_of(const Box& box, int axes) {
  int64_t count = 1;
  for (int axis = 0; axis < axes; ++axis) count *= box.extents[axis];
  return count;
}

// The box with the axis last along which x lies, if the last one is so short that finding each row takes longer than
// copying it, as where pixels of several planes are put side by side.
Box with_long_rows(Box box) {
  constexpr int64_t kShort = 8;
  const int last = box.axes - 1;
  if (last < 1 || box.extents[last] >= kShort || box.x_strides[last] == 1) return box;
  const auto along = int(std::find(box.x_strides, box.x_strides + last, 1) - box.x_strides);
  if (box.extents[along] > box.extents[last]) swap_axes(box, along, last);
  return box;
}

// The axis along which elements lie side by side; -1: none.
int contiguous(const Box& box, const int64_t (&strides)[kMaxAxes]) {
  for (int axis = 0; axis < box.axes; ++axis) {
    if (strides[axis] == 1 && box.extents[axis] > 1) return axis;
  }
  return -1;
}

// Whether x and y have lines along different axes, which become the last two: that of y, that of x.
bool turn_axes(Box& box) {
  constexpr int64_t kShort = 16;  // shorter lines are copied as quickly one by one
  const int along_y = contiguous(box, box.y_strides), along_x = contiguous(box, box.x_strides);
  if (along_y < 0 || along_x < 0 || along_y == along_x || box.extents[along_y] < kShort ||
      box.extents[along_x] < kShort)
    return false;
  swap_axes(box, along_x, box.axes - 1);
  swap_axes(box, along_y == box.axes - 1 ? along_x : along_y, box.axes - 2);
  return true;
}

// Matrices of the last two axes, transposed.
template <typename T>
void turn_box(const RunContext& context, const Box& box, const T* x, T* y) {
  constexpr int64_t kCols = 512, kElements = 8192;  // of a task, about
  const int down = box.axes - 2, across = box.axes - 1;
  const int64_t rows = box.extents[down], cols = box.extents[across];
  const int64_t piece = std::min(cols, kCols), pieces = (cols + piece - 1) / piece;
  const int64_t strip = std::max<int64_t>(1, kElements / piece / 16) * 16, strips = (rows + strip - 1) / strip;
  context.pool.parallel_for(count_of(box, down) * strips * pieces, [&](int64_t index, int) {
    const int64_t col = index % pieces * piece, row = index / pieces % strips * strip;
    const Place place = place_of(box, down, index / pieces / strips);
    context.kernels.transpose[sizeof(T) / 4](
        {x + place.x + row * box.x_strides[down] + col, y + place.y + row + col * box.y_strides[across],
         std::min(strip, rows - row), std::min(piece, cols - col), box.x_strides[down], box.y_strides[across]});
  });
}

// Whether every element goes where it is.
bool is_in_place(const Box& box, const std::byte* x, const std::byte* y, int64_t bytes) {
  return x + box.x_offset * bytes == y + box.y_offset * bytes &&
         std::equal(box.x_strides, box.x_strides + box.axes, box.y_strides);
}

template <typename T>
void copy_box(const RunContext& context, Box box, const std::byte* source, std::byte* target) {
  constexpr int64_t kChunk = 4096;
  if (is_in_place(box, source, target, sizeof(T))) return;
  const auto* x = reinterpret_cast<const T*>(source);
  auto* y = reinterpret_cast<T*>(target);
  if constexpr (sizeof(T) == 2 || sizeof(T) == 4) {
    if (turn_axes(box)) return turn_box(context, box, x, y);
  }
  box = with_long_rows(box);
  const int last = box.axes - 1;
  const int64_t cols = last < 0 ? 1 : box.extents[last], rows = count_of(box, last);
  // Long rows, as of whole operands that are put behind each other, are cut.
  const int64_t piece = std::min(cols, kChunk), pieces = parts_of(cols, piece);
  const int64_t chunk = std::max<int64_t>(1, kChunk / piece);
  context.pool.parallel_runs(parts_of(rows * pieces, chunk), [&](int64_t index, int) {
    for (int64_t i = index * chunk, end = std::min(i + chunk, rows * pieces); i < end; ++i) {
      const Place place = place_of(box, last, i / pieces);
      const int64_t first = i % pieces * piece, x_stride = last < 0 ? 1 : box.x_strides[last],
                    y_stride = last < 0 ? 1 : box.y_strides[last];
      copy_row(x + place.x + first * x_stride, y + place.y + first * y_stride, std::min(piece, cols - first), x_stride,
               y_stride);
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
  if (is_in_blocks) return;
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
