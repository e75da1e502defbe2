// Windows over blocks of channels, for convolutions channel by channel and pools: lanes are channels, so that no tap is
// moved between lanes and planes of any size fill them.
#include "backends/cpu/kernels/conv_end.h"

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
  const float* weights;

  template <typename T>
  static constexpr T outside() {
    return 0;
  }
  Vec factor(int64_t tap) const { return load(weights + tap * kBlock); }
  static Vec take(bool, Vec factor, Vec value, Vec sum) { return fma(factor, value, sum); }
};

// Of a pool: the first tap, then what is larger.
struct Largest {
  template <typename T>
  static constexpr T outside() {
    return sizeof(T) == 2 ? T(0xfc00) : T(-__builtin_inff());
  }
  static Vec factor(int64_t) { return broadcast(0.0f); }
  static Vec take(bool first, Vec, Vec value, Vec largest) { return first ? value : larger(largest, value); }
};

// What is read outside the input: as many elements as a tile reads of a row.
constexpr int kOutside = (2 * (kTile - 1) + 3) * int(kBlock);

template <typename T, typename Fold, typename Store>
struct Rows {
  BlockWindow window;  // a copy, which no store can change
  const T* x;
  const T* outside;  // [kOutside]
  Fold fold;
  Store store;

  template <int Count, typename Lanes>
  void store_all(const Vec (&results)[Count], int64_t row, int64_t column, Lanes lanes) const {
    const int64_t at = (row * window.cols + column) * window.width;
#pragma GCC unroll 8
    for (int p = 0; p < Count; ++p) store(results[p], at + p * window.width, lanes);
  }

  // Count outputs from `column` on; Inside: all their taps' columns are.
  template <int Count, bool Inside, typename Lanes>
  void outputs(int64_t row, int64_t column, Lanes lanes) const {
    const auto &h = window.h, &w = window.w;
    const int64_t top = (window.first + row) * h.stride - h.pad, left = column * w.stride - w.pad;
    const int64_t width = window.width;
    Vec results[Count];
#pragma GCC unroll 8
    for (int p = 0; p < Count; ++p) results[p] = broadcast(0.0f);
    for (int64_t i = 0; i < h.kernel; ++i) {
      const int64_t in_row = top + i * h.dilation;
      const bool inside = in_row >= 0 && in_row < h.in;
      const T* from = inside ? x + (in_row * w.in + left) * width : outside;
      const int64_t to_tap = inside ? w.dilation * width : 0, to_pixel = inside ? w.stride * width : 0;
      for (int64_t j = 0; j < w.kernel; ++j) {
        const Vec factor = fold.factor(i * w.kernel + j);
        const int64_t in_column = left + j * w.dilation;
        const T* taps = Inside || (in_column >= 0 && in_column < w.in) ? from + j * to_tap : outside;
#pragma GCC unroll 8
        for (int p = 0; p < Count; ++p)
          results[p] = Fold::take(i == 0 && j == 0, factor, load(taps + p * to_pixel, lanes), results[p]);
      }
    }
    store_all(results, row, column, lanes);
  }

  // Columns whose taps all lie inside: [first, second).
  void inner_columns(int64_t& first, int64_t& second) const {
    const auto& w = window.w;
    first = at_most((at_least(w.pad, 0) + w.stride - 1) / w.stride, window.cols);
    const int64_t reach = w.in - 1 - (w.kernel - 1) * w.dilation + w.pad;
    second = reach < 0 ? first : at_least(first, at_most(reach / w.stride + 1, window.cols));
  }

  template <typename Lanes>
  void run(Lanes lanes) const {
    int64_t first, second;
    inner_columns(first, second);
    for (int64_t row = 0; row < window.rows; ++row) {
      int64_t column = 0;
      for (; column < first; ++column) outputs<1, false>(row, column, lanes);
      for (; column + 4 <= second; column += 4) outputs<4, true>(row, column, lanes);
      for (; column < second; ++column) outputs<1, true>(row, column, lanes);
      for (; column < window.cols; ++column) outputs<1, false>(row, column, lanes);
    }
  }

  // The same of whole blocks with a kernel of 3 x 3 and one element of padding: all addresses of a tile are constants
  // behind those of its three rows. Edge: the tap whose column lies outside, or -1.
  template <int Count, int Stride, int Edge>
  void square(const T* const (&rows)[3], const int64_t (&steps)[3], int64_t row, int64_t column) const {
    Vec results[Count];
#pragma GCC unroll 8
    for (int p = 0; p < Count; ++p) results[p] = broadcast(0.0f);
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) {
      const T* from = rows[i] + column * steps[i];
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) {
        const Vec factor = fold.factor(i * 3 + j);
#pragma GCC unroll 8
        for (int p = 0; p < Count; ++p) {
          const T* tap = j == Edge ? outside : from + (j + p * Stride) * int(kBlock);
          results[p] = Fold::take(i == 0 && j == 0, factor, load(tap), results[p]);
        }
      }
    }
    store_all(results, row, column, Full{});
  }

  template <int Stride>
  void run_square() const {
    const int64_t in_row = window.w.in * kBlock;
    int64_t first, second;
    inner_columns(first, second);
    for (int64_t row = 0; row < window.rows; ++row) {
      const T* rows[3];
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
  return window.width == kBlock && fits(window.h) && fits(window.w) && ends_inside;
}

template <typename T, typename Fold, typename Store>
void over(const BlockWindow& window, const void* x, const Fold& fold, const Store& store) {
  T outside[kOutside];
  for (T& element : outside) element = Fold::template outside<T>();
  const Rows<T, Fold, Store> rows{window, static_cast<const T*>(x), outside, fold, store};
  if (is_square(window) && window.h.stride == 1 && window.w.stride == 1) return rows.template run_square<1>();
  if (is_square(window) && window.h.stride == 2 && window.w.stride == 2) return rows.template run_square<2>();
  if (window.width == kLanes) return rows.run(Full{});
  rows.run(Tail(window.width));
}

template <typename T>
void depthwise_block(const DepthwiseBlockArgs& args) {
  with_end<T>(args.end, [&](auto end) {
    const T* residual = static_cast<const T*>(args.residual);
    T* y = static_cast<T*>(args.y);
    const bool biased = args.bias != nullptr;
    Vec bias = broadcast(0.0f);
    if (biased) bias = args.window.width == kLanes ? load(args.bias) : load(args.bias, Tail(args.window.width));
    const auto store_sum = [=](Vec sum, int64_t at, auto lanes) __attribute__((always_inline)) {
      end.store_biased(biased ? sum + bias : sum, residual, y, at, lanes);
    };
    over<T>(args.window, args.x, Sums{args.weights}, store_sum);
  });
}

template <typename T>
void pool_block(const PoolBlockArgs& args) {
  T* y = static_cast<T*>(args.y);
  over<T>(args.window, args.x, Largest{}, [=](Vec largest, int64_t at, auto lanes) { store(y + at, largest, lanes); });
}

}  // namespace

void TCIM_LITE_USE(blocks)(KernelTable& table) {
  enter(table.depthwise_block, depthwise_block<uint16_t>, depthwise_block<float>);
  enter(table.pool_block, pool_block<uint16_t>, pool_block<float>);
}

}  // namespace tcim_lite::cpu
