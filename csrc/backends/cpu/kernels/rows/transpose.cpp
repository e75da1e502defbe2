#include "backends/cpu/kernels/vector/simd.h"

namespace tcim_lite::cpu {
namespace {

// Words are moved as floats, whose bits loads and stores keep. Of a tile of 16 x 16, or what there is of it, end(col,
// column) takes each column; address(i) is that of row i.
template <typename Address, typename End>
inline void turn_words(int64_t rows, int64_t cols, Address address, End end) {
  for_lanes(cols, [&](int64_t col, auto lanes) {
    const int64_t count = cols - col < kLanes ? cols - col : kLanes;
#ifdef TCIM_LITE_SIMD_TURN
    if (rows == kLanes && count == kLanes) {
      alignas(64) float turned[kLanes * kLanes];
      turn([&](int64_t i) { return address(i) + col; }, turned);
      for (int64_t j = 0; j < kLanes; ++j) end(col + j, load(turned + j * kLanes));
      return;
    }
#endif
    Vec tile[kLanes];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) tile[i] = i < rows ? load(address(i) + col, lanes) : broadcast(0.0f);
    transpose(tile);
    if (count == kLanes) {
#pragma GCC unroll 16
      for (int64_t j = 0; j < kLanes; ++j) end(col + j, tile[j]);
    } else {
      for (int64_t j = 0; j < count; ++j) end(col + j, tile[j]);
    }
  });
}

void transpose_words(const TransposeArgs& args) {
  const auto* x = static_cast<const float*>(args.x);
  auto* y = static_cast<float*>(args.y);
  for (int64_t row = 0; row < args.rows; row += kLanes, x += kLanes * args.x_stride, y += kLanes) {
    const int64_t rows = args.rows - row < kLanes ? args.rows - row : kLanes;
    turn_words(
        rows, args.cols, [&](int64_t i) { return x + i * args.x_stride; },
        [&](int64_t col, Vec column) {
          float* const to = y + col * args.y_stride;
          if (rows == kLanes) {
            store(to, column);
          } else {
            store(to, column, Tail(rows));
          }
        });
  }
}

// Two columns at a time are words.
void transpose_halves(const TransposeArgs& args) {
  const auto* x = static_cast<const uint16_t*>(args.x);
  auto* y = static_cast<uint16_t*>(args.y);
  for (int64_t row = 0; row < args.rows; row += kLanes, x += kLanes * args.x_stride, y += kLanes) {
    const int64_t rows = args.rows - row < kLanes ? args.rows - row : kLanes;
    const auto address = [&](int64_t i) { return reinterpret_cast<const float*>(x + i * args.x_stride); };
    turn_words(rows, args.cols / 2, address, [&](int64_t pair, Vec column) {
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

}  // namespace

void TCIM_LITE_USE(transpose)(KernelTable& table) {
  table.transpose[0] = transpose_halves;
  table.transpose[1] = transpose_words;
}

}  // namespace tcim_lite::cpu
