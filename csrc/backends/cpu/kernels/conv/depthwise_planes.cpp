// Convolutions channel by channel with kernels of 3 x 3 and one element of padding, from planes where they lie: a row
// is loaded once, and what its neighbours' taps read is moved by a lane.
#include "backends/cpu/kernels/conv/conv_end.h"
#include "backends/cpu/kernels/conv/neighbours.h"

namespace tcim_lite::cpu {
namespace {

// Outputs [column, ..) of `lanes`, the last of a row unless that is Full; one behind the other.
template <typename T, typename Lanes>
inline Three neighbours(const T* row, int64_t column, bool ends, Lanes lanes) {
  const Vec own = load(row + column, lanes), zero = broadcast(0.0f);
  const Vec up = column == 0 ? moved_up(zero, own) : moved_up(load(row + column - kLanes), own);
  return {up, own, ends ? moved_down(own, zero) : load(row + column + 1)};
}

inline Vec add_row(const Vec* weights, const Three& three, Vec sum) {
#pragma GCC unroll 3
  for (int j = 0; j < 3; ++j) sum = fma(weights[j], three.taps[j], sum);
  return sum;
}

// A plane of a part. Rows outside the input are zeros, and multiplied as such.
template <typename T>
struct Plane {
  const T *x, *residual;
  T* y;
  const float* bias;
  DepthwisePlanesArgs args;  // a copy, which no store can change: it stays in registers
  EndOf<T> end;
  Vec weights[9];

  const T* row_at(int64_t row) const { return row < 0 || row >= args.in_rows ? nullptr : x + row * args.in_cols; }
  template <typename Lanes>
  void store_row(int64_t row, int64_t column, Vec sum, Lanes lanes) const {
    const int64_t at = row * args.cols;
    end.store_sum(sum, bias, residual ? residual + at : nullptr, y + at, column, lanes);
  }

  // Each row of the input adds to three rows of sums.
  template <typename Lanes>
  void columns(int64_t column, bool ends, Lanes lanes) const {
    Vec above = broadcast(0.0f), own = broadcast(0.0f);
    for (int64_t row = -1; row <= args.rows; ++row) {
      const T* from = row_at(args.first + row);
      Three three = {broadcast(0.0f), broadcast(0.0f), broadcast(0.0f)};
      if (from) three = neighbours(from, column, ends, lanes);
      const Vec sum = add_row(weights + 6, three, above);
      above = add_row(weights + 3, three, own);
      own = add_row(weights, three, broadcast(0.0f));
      if (row >= 1) store_row(row - 1, column, sum, lanes);
    }
  }

  // Rows of even index add to one row of sums, the others to two.
  template <typename Lanes, typename Low, typename High>
  void columns_apart(int64_t column, Lanes lanes, Low low, High high) const {
    const auto add = [&](const Vec* factors, int64_t row, Vec sum) __attribute__((always_inline)) {
      const T* from = row_at(row);
      const Vec zero = broadcast(0.0f);
      return add_row(factors, from ? neighbours_apart(from, column, zero, low, high) : Three{zero, zero, zero}, sum);
    };
    Vec sum = add(weights, 2 * args.first - 1, broadcast(0.0f));
    for (int64_t row = 0; row < args.rows; ++row) {
      const int64_t at = 2 * (args.first + row);
      sum = add(weights + 3, at, sum);
      const T* from = row_at(at + 1);
      Three three = {broadcast(0.0f), broadcast(0.0f), broadcast(0.0f)};
      if (from) three = neighbours_apart(from, column, broadcast(0.0f), low, high);
      store_row(row, column, add_row(weights + 6, three, sum), lanes);
      sum = add_row(weights, three, broadcast(0.0f));
    }
  }

  void run() const {
    for_lanes(args.cols, [&](int64_t column, auto lanes) {
      if (args.stride == 1) return columns(column, column + kLanes >= args.cols, lanes);
      split_lanes(args.in_cols - 2 * column, lanes,
                  [&](auto low, auto high) { columns_apart(column, lanes, low, high); });
    });
  }
};

template <typename T>
void depthwise_planes(const DepthwisePlanesArgs& args) {
  const T *x = static_cast<const T*>(args.x), *weights = static_cast<const T*>(args.weights);
  for (int64_t plane = 0; plane < args.planes; ++plane) {
    const int64_t at = plane * args.plane;
    Plane<T> of{x + plane * args.in_rows * args.in_cols,
                args.residual ? static_cast<const T*>(args.residual) + at : nullptr,
                static_cast<T*>(args.y) + at,
                args.bias ? args.bias + plane : nullptr,
                args,
                EndOf<T>(args.end),
                {}};
    alignas(64) float factors[kLanes];
    store(factors, load(weights + 9 * plane, Tail(9)));
#pragma GCC unroll 9
    for (int tap = 0; tap < 9; ++tap) of.weights[tap] = broadcast(factors[tap]);
    of.run();
  }
}

}  // namespace

void TCIM_LITE_USE(depthwise_planes)(KernelTable& table) {
  enter(table.depthwise_planes, depthwise_planes<uint16_t>, depthwise_planes<float>);
}

}  // namespace tcim_lite::cpu
