// Products of few rows, whose right side is read once from where it lies, not copied into panels first.
#include "backends/cpu/kernels/vector/simd.h"

namespace tcim_lite::cpu {
namespace {

constexpr int kVecs = 4;                         // of columns at a time: sums that hide most of an fma's latency
constexpr int64_t kColumns = kVecs * kLanes;     // the same in elements
constexpr int64_t kTerms = 64, kRowsAtOnce = 8;  // of the right side that stay in the first cache while rows share them

// `count` elements of each row, which are needed later; a fetch of what does not exist has no effect.
// Inlined always: gcc 12 drops calls to a function that only fetches.
template <typename T>
inline __attribute__((always_inline)) void fetch(const T* from, int64_t rows, int64_t stride, int64_t count) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < count; i += 64 / int64_t(sizeof(T))) prefetch_near(from + row * stride + i);
  }
}

// sums[v] += terms of one row by V vectors of columns of b, the last of which has `lanes`.
template <int V, typename T, typename Lanes>
void add_terms(const float* a, const T* b, int64_t stride, int64_t terms, float* sums, Lanes lanes) {
  Vec acc[V];
  for (int v = 0; v < V; ++v) acc[v] = load(sums + v * kLanes);
  for (int64_t k = 0; k < terms; ++k, b += stride) {
    const Vec factor = broadcast(a[k]);
#pragma GCC unroll 4
    for (int v = 0; v + 1 < V; ++v) acc[v] = fma(factor, load(b + v * kLanes), acc[v]);
    acc[V - 1] = fma(factor, load(b + (V - 1) * kLanes, lanes), acc[V - 1]);
  }
  for (int v = 0; v < V; ++v) store(sums + v * kLanes, acc[v]);
}

// The same of `cols` columns, at most kColumns. Whole vectors and what is left of one are added apart.
template <typename T>
void add_terms(const float* a, const T* b, int64_t stride, int64_t terms, int64_t cols, float* sums) {
  const int64_t whole = cols / kLanes * kLanes;
  switch (cols / kLanes) {
    case 4:
      return add_terms<4>(a, b, stride, terms, sums, Full{});
    case 3:
      add_terms<3>(a, b, stride, terms, sums, Full{});
      break;
    case 2:
      add_terms<2>(a, b, stride, terms, sums, Full{});
      break;
    case 1:
      add_terms<1>(a, b, stride, terms, sums, Full{});
      break;
  }
  if (whole < cols) add_terms<1>(a, b + whole, stride, terms, sums + whole, Tail(cols - whole));
}

// to[k, column] = b[column, k], with whole vectors of columns. What lies `ahead` of them is fetched meanwhile.
template <typename T>
void turn_columns(const T* b, int64_t stride, int64_t cols, int64_t terms, int64_t ahead, float* to) {
  for (int64_t col = 0; col < cols; col += kLanes) {
    const T* first = b + col * stride;
    fetch(first + ahead, kLanes, stride, terms);
    turn_rows(
        cols - col < kLanes ? cols - col : kLanes, terms, [=](int64_t i) { return first + i * stride; }, to + col,
        kColumns);
  }
}

// Of up to kRowsAtOnce rows and kColumns columns, b at the first of them.
template <typename T>
void multiply(const FewRowsArgs& args, const float* a, int64_t rows, const T* b, int64_t cols, T* y) {
  alignas(64) float sums[kRowsAtOnce][kColumns], turned[kTerms * kColumns];
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < kColumns; i += kLanes) store(sums[row] + i, broadcast(0.0f));
  }
  for (int64_t k = 0; k < args.k; k += kTerms) {
    const int64_t terms = args.k - k < kTerms ? args.k - k : kTerms;
    if (args.turned)
      turn_columns(b + k, args.b_stride, cols, terms, k + kTerms < args.k ? kTerms : kColumns * args.b_stride - k,
                   turned);
    else if (cols < args.b_stride)
      fetch(b + k * args.b_stride + kColumns, terms, args.b_stride, cols);
    for (int64_t row = 0; row < rows; ++row) {
      const float* factors = a + row * args.k + k;
      if (args.turned)
        add_terms(factors, turned, kColumns, terms, (cols + kLanes - 1) / kLanes * kLanes, sums[row]);
      else
        add_terms(factors, b + k * args.b_stride, args.b_stride, terms, cols, sums[row]);
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    for_lanes(cols, [&](int64_t i, auto lanes) { store(y + row * args.y_stride + i, load(sums[row] + i), lanes); });
  }
}

template <typename T>
void few_rows(const FewRowsArgs& args) {
  const T* b = static_cast<const T*>(args.b);
  T* y = static_cast<T*>(args.y);
  const int64_t step = args.turned ? args.b_stride : 1;  // from one column of b to the next
  for (int64_t row = 0; row < args.rows; row += kRowsAtOnce) {
    const int64_t rows = args.rows - row < kRowsAtOnce ? args.rows - row : kRowsAtOnce;
    for (int64_t col = 0; col < args.cols; col += kColumns) {
      const int64_t cols = args.cols - col < kColumns ? args.cols - col : kColumns;
      multiply(args, args.a + row * args.k, rows, b + col * step, cols, y + row * args.y_stride + col);
    }
  }
}

}  // namespace

void TCIM_LITE_USE(few_rows)(KernelTable& table) { enter(table.few_rows, few_rows<uint16_t>, few_rows<float>); }

}  // namespace tcim_lite::cpu
