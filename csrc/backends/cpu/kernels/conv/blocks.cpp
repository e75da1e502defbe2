// Windows over blocks of channels, for convolutions channel by channel and pools: lanes are channels, so that no tap is
// moved between lanes and planes of any size fill them.
#include "backends/cpu/kernels/conv/conv_end.h"

namespace tcim_lite::cpu {
namespace {

// Neighbouring outputs of a tile, whose results leave registers for the weights of a tap.
#if defined(__AVX512F__)
constexpr int kTile = 8;
#else
constexpr int kTile = 4;
#endif

constexpr int64_t at_least(int64_t a, int64_t b) { return a < b ? b : a; }
constexpr int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

// Of a Conv: sums from 0.
struct Sums {
  static constexpr float kOutside = 0.0f;
  const float* weights;

  Vec factor(int64_t tap) const { return load(weights + tap * kBlock); }
  static Vec take(bool, Vec factor, Vec value, Vec sum) { return fma(factor, value, sum); }
};

// Of a pool: the first tap, then what is larger.
struct Largest {
  static constexpr float kOutside = -__builtin_inff();

  static Vec factor(int64_t) { return broadcast(0.0f); }
  static Vec take(bool first, Vec, Vec value, Vec largest) { return first ? value : larger(largest, value); }
};

// What is read outside the input: as many elements as a tile reads of a row.
constexpr int kOutsideFloats = (2 * (kTile - 1) + 3) * int(kBlock);

template <typename Fold, typename Store>
struct Rows {
  BlockWindow window;  // a copy, which no store can change
  const float* x;
  const float* outside;  // [kOutsideFloats]
  Fold fold;
  Store store_all;  // of results and where they lie

  int64_t place(int64_t row, int64_t column) const { return (row * window.cols + column) * kBlock; }

  // Count outputs from `column` on; Inside: all their taps' columns are.
  template <int Count, bool Inside>
  void outputs(int64_t row, int64_t column) const {
    const auto &h = window.h, &w = window.w;
    const int64_t top = (window.first + row) * h.stride - h.pad, left = column * w.stride - w.pad;
    Vec results[Count];
#pragma GCC unroll 8
    for (int p = 0; p < Count; ++p) results[p] = broadcast(0.0f);
    for (int64_t i = 0; i < h.kernel; ++i) {
      const int64_t in_row = top + i * h.dilation;
      const bool inside = in_row >= 0 && in_row < h.in;
      const float* from = inside ? x + (in_row * w.in + left) * kBlock : outside;
      const int64_t to_tap = inside ? w.dilation * kBlock : 0, to_pixel = inside ? w.stride * kBlock : 0;
      for (int64_t j = 0; j < w.kernel; ++j) {
        const Vec factor = fold.factor(i * w.kernel + j);
        const int64_t in_column = left + j * w.dilation;
        const float* taps = Inside || (in_column >= 0 && in_column < w.in) ? from + j * to_tap : outside;
#pragma GCC unroll 8
        for (int p = 0; p < Count; ++p)
          results[p] = Fold::take(i == 0 && j == 0, factor, load(taps + p * to_pixel), results[p]);
      }
    }
    store_all(results, place(row, column));
  }

  // Columns whose taps all lie inside: [first, second).
  void inner_columns(int64_t& first, int64_t& second) const {
    const auto& w = window.w;
    first = at_most((at_least(w.pad, 0) + w.stride - 1) / w.stride, window.cols);
    const int64_t reach = w.in - 1 - (w.kernel - 1) * w.dilation + w.pad;
    second = reach < 0 ? first : at_least(first, at_most(reach / w.stride + 1, window.cols));
  }

  void run() const {
    int64_t first, second;
    inner_columns(first, second);
    for (int64_t row = 0; row < window.rows; ++row) {
      int64_t column = 0;
      for (; column < first; ++column) outputs<1, false>(row, column);
      for (; column + kTile <= second; column += kTile) outputs<kTile, true>(row, column);
      if constexpr (kTile > 4) {
        for (; column + 4 <= second; column += 4) outputs<4, true>(row, column);
      }
      for (; column + 2 <= second; column += 2) outputs<2, true>(row, column);
      for (; column < second; ++column) outputs<1, true>(row, column);
      for (; column < window.cols; ++column) outputs<1, false>(row, column);
    }
  }

  // The same with a kernel of 3 x 3 and one element of padding: all addresses of a tile are constants
  // behind those of its three rows. Edge: the tap whose column lies outside, or -1.
  template <int Count, int Stride, int Edge>
  void square(const float* const (&rows)[3], const int64_t (&steps)[3], int64_t row, int64_t column) const {
    Vec results[Count];
#pragma GCC unroll 8
    for (int p = 0; p < Count; ++p) results[p] = broadcast(0.0f);
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) {
      const float* from = rows[i] + column * steps[i];
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) {
        const Vec factor = fold.factor(i * 3 + j);
#pragma GCC unroll 8
        for (int p = 0; p < Count; ++p) {
          const float* tap = j == Edge ? outside : from + (j + p * Stride) * int(kBlock);
          results[p] = Fold::take(i == 0 && j == 0, factor, load(tap), results[p]);
        }
      }
    }
    store_all(results, place(row, column));
  }

  template <int Stride>
  void run_square() const {
    const int64_t in_row = window.w.in * kBlock;
    int64_t first, second;
    inner_columns(first, second);
    for (int64_t row = 0; row < window.rows; ++row) {
      const float* rows[3];
      int64_t steps[3];
      for (int i = 0; i < 3; ++i) {
        const int64_t at = (window.first + row) * Stride - 1 + i;
        const bool inside = at >= 0 && at < window.h.in;
        rows[i] = inside ? x + at * in_row - kBlock : outside;
        steps[i] = inside ? Stride * kBlock : 0;
      }
      int64_t column = 0;
      for (; column < first; ++column) square<1, Stride, 0>(rows, steps, row, column);
      for (; column + kTile <= second; column += kTile) square<kTile, Stride, -1>(rows, steps, row, column);
      if constexpr (kTile > 4) {
        for (; column + 4 <= second; column += 4) square<4, Stride, -1>(rows, steps, row, column);
      }
      for (; column + 2 <= second; column += 2) square<2, Stride, -1>(rows, steps, row, column);
      for (; column < second; ++column) square<1, Stride, -1>(rows, steps, row, column);
      for (; column < window.cols; ++column) square<1, Stride, 2>(rows, steps, row, column);
    }
  }
};

// One element of padding in front, and behind at most: no output has both ends of a row outside.
bool is_square(const BlockWindow& window) {
  const auto fits = [](const BlockWindow::Axis& axis) {
    return axis.kernel == 3 && axis.pad == 1 && axis.dilation == 1 && axis.in >= 2;
  };
  const bool ends_inside = (window.cols - 1) * window.w.stride + 1 <= window.w.in;
  return fits(window.h) && fits(window.w) && ends_inside;
}

template <typename Fold, typename Store>
void over(const BlockWindow& window, const float* x, const Fold& fold, const Store& store_all) {
  float outside[kOutsideFloats];
  for (float& element : outside) element = Fold::kOutside;
  const Rows<Fold, Store> rows{window, x, outside, fold, store_all};
  if (is_square(window) && window.h.stride == 1 && window.w.stride == 1) return rows.template run_square<1>();
  if (is_square(window) && window.h.stride == 2 && window.w.stride == 2) return rows.template run_square<2>();
  rows.run();
}

void depthwise_block(const DepthwiseBlockArgs& args) {
  const BlockEnd end(args.end, args.elem);
  const float* residual = args.residual;
  float* y = args.y;
  const bool biased = args.bias != nullptr;
  const Vec bias = biased ? load_bias(args.bias, args.channels) : broadcast(0.0f);
  const auto store_all = [=]<int Count>(Vec(&sums)[Count], int64_t at) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int p = 0; biased && p < Count; ++p) sums[p] = sums[p] + bias;
    end.store_all(sums, residual ? residual + at : nullptr, y + at);
  };
  over(args.window, args.x, Sums{args.weights}, store_all);
}

void pool_block(const PoolBlockArgs& args) {
  const auto store_all = [y = args.y]<int Count>(const Vec(&largest)[Count], int64_t at) {
#pragma GCC unroll 8
    for (int p = 0; p < Count; ++p) store(y + at + p * kBlock, largest[p]);
  };
  over(args.window, args.x, Largest{}, store_all);
}

}  // namespace

void TCIM_LITE_USE(blocks)(KernelTable& table) {
  table.depthwise_block = depthwise_block;
  table.pool_block = pool_block;
}

}  // namespace tcim_lite::cpu
