// Matrices of 2- and 4-byte elements, transposed in squares of 16 x 16 words.
#include "backends/cpu/kernels/vector/simd.h"

namespace tcim_lite::cpu {
namespace {

// take(column, its elements) for the columns of up to 16 rows.
template <typename Row, typename Take>
inline void for_columns(int64_t rows, int64_t cols, Row row, Take take) {
  for_lanes(cols, [&](int64_t col, auto lanes) {
    Vec turned[kLanes];
    load_turned([&](int64_t i) { return row(i < rows ? i : rows - 1) + col; }, lanes, turned);
    for (int64_t j = 0; j < kLanes && col + j < cols; ++j) take(col + j, turned[j]);
  });
}

// kSide columns, side by side in x, become rows. Most of a square would be empty, and for so few the compiler has
// moves.
template <int64_t kSide, typename T>
void split(const T* __restrict x, T* y, int64_t count, int64_t stride) {
  T* __restrict rows[kSide];
  for (int64_t j = 0; j < kSide; ++j) rows[j] = y + j * stride;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < kSide; ++j) rows[j][i] = x[i * kSide + j];
}

// The other way.
template <int64_t kSide, typename T>
void weave(const T* x, T* __restrict y, int64_t count, int64_t stride) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < kSide; ++j) y[i * kSide + j] = x[j * stride + i];
}

// Whether it was so narrow, and is done.
template <int64_t kSide, typename T>
bool narrow(const TransposeArgs& args) {
  const auto* x = static_cast<const T*>(args.x);
  auto* y = static_cast<T*>(args.y);
  if (args.cols == kSide && args.x_stride == kSide) {
    split<kSide>(x, y, args.rows, args.y_stride);
  } else if (args.rows == kSide && args.y_stride == kSide) {
    weave<kSide>(x, y, args.cols, args.x_stride);
  } else {
    return false;
  }
  return true;
}

// Words are moved as floats, whose bits loads and stores keep.
void transpose_words(const TransposeArgs& args) {
  const auto* x = static_cast<const float*>(args.x);
  auto* y = static_cast<float*>(args.y);
  const int64_t stride = args.x_stride;
  for (int64_t row = 0; row < args.rows; row += kLanes, x += kLanes * stride, y += kLanes) {
    const auto row_at = [=](int64_t i) { return x + i * stride; };
    const int64_t rows = args.rows - row;
    if (rows >= kLanes) {
      turn_rows(kLanes, args.cols, row_at, y, args.y_stride);
    } else {
      for_columns(rows, args.cols, row_at,
                  [&](int64_t col, Vec column) { store(y + col * args.y_stride, column, Tail(rows)); });
    }
  }
}

// Two columns at a time are words.
void transpose_halves(const TransposeArgs& args) {
  const auto* x = static_cast<const uint16_t*>(args.x);
  auto* y = static_cast<uint16_t*>(args.y);
  for (int64_t row = 0; row < args.rows; row += kLanes, x += kLanes * args.x_stride, y += kLanes) {
    const int64_t rows = args.rows - row < kLanes ? args.rows - row : kLanes;
    const auto address = [&](int64_t i) { return reinterpret_cast<const float*>(x + i * args.x_stride); };
    for_columns(rows, args.cols / 2, address, [&](int64_t pair, Vec column) {
      uint16_t halves[2 * kLanes], first[kLanes], second[kLanes];
      store(reinterpret_cast<float*>(halves), column);
      for (int i = 0; i < kLanes; ++i) first[i] = halves[2 * i], second[i] = halves[2 * i + 1];
      uint16_t* const to = y + 2 * pair * args.y_stride;
      if (rows == kLanes) {
        __builtin_memcpy(to, first, sizeof first);
        __builtin_memcpy(to + args.y_stride, second, sizeof second);
      } else {
        __builtin_memcpy(to, first, size_t(rows) * sizeof *to);
        __builtin_memcpy(to + args.y_stride, second, size_t(rows) * sizeof *to);
      }
    });
    if (const int64_t last = args.cols - 1; last % 2 == 0) {
      for (int64_t i = 0; i < rows; ++i) y[last * args.y_stride + i] = x[i * args.x_stride + last];
    }
  }
}

template <typename T, void (*kSquares)(const TransposeArgs&)>
void transpose(const TransposeArgs& args) {
  if (!narrow<2, T>(args) && !narrow<3, T>(args) && !narrow<4, T>(args)) kSquares(args);
}

}  // namespace

void TCIM_LITE_USE(transpose)(KernelTable& table) {
  table.transpose[0] = transpose<uint16_t, transpose_halves>;
  table.transpose[1] = transpose<uint32_t, transpose_words>;
}

}  // namespace tcim_lite::cpu
