// The kernels of networks from ONNX: every instruction set against ref bit for bit, over sizes around the vectors, with
// guard pages behind operands and results, and results poisoned before.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/dispatch.h"
#include "base/half.h"
#include "check.h"
#include "guarded_buffer.h"

using namespace tcim_lite;
using namespace tcim_lite::cpu;

namespace {

std::mt19937 g_random(17);
int uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(g_random); }

template <typename T>
constexpr Elem kElem = sizeof(T) == 2 ? kF16 : kF32;

template <typename T>
T to(float value) {
  if constexpr (sizeof(T) == 2)
    return float_to_half_saturate(value);
  else
    return value;
}

// Numbers of every size that matters: near 0, around the limits of the functions, large; no NaN, whose payload is free.
float any_number() {
  const float sign = uniform(0, 1) ? 1.0f : -1.0f;
  switch (uniform(0, 7)) {
    case 0:
      return sign * 0.0f;
    case 1:
      return sign * std::ldexp(1.0f + float(uniform(0, 1023)) / 1024, uniform(-24, 15));
    case 2:
      return sign * float(uniform(0, 40)) / 2;
    default:
      return std::normal_distribution<float>(0, 2)(g_random);
  }
}

template <typename T>
struct Numbers : GuardedBuffer<T> {
  explicit Numbers(int64_t count, bool positive = false) : GuardedBuffer<T>(count) {
    for (int64_t i = 0; i < count; ++i) {
      const float value = any_number();
      (*this)[i] = to<T>(positive ? std::fabs(value) + 1e-3f : value);
    }
  }
};

const std::vector<KernelTable>& tables() {
  static const std::vector<KernelTable> all = [] {
    std::vector<KernelTable> list;
    for (const std::string& isa : available_isas()) list.push_back(make_table(isa));
    return list;
  }();
  return all;
}

// run(table, y) with y of `count` poisoned elements, once per instruction set; all must leave the same bytes.
template <typename T, typename Run>
void same_everywhere(const std::string& what, int64_t count, const Run& run) {
  GuardedBuffer<T> expected(count);
  for (const KernelTable& table : tables()) {
    GuardedBuffer<T> y(count);
    std::memset(y.data(), 0xa5, size_t(count) * sizeof(T));
    run(table, y.data());
    if (&table == &tables()[0]) {
      std::memcpy(expected.data(), y.data(), size_t(count) * sizeof(T));
      continue;
    }
    if (std::memcmp(y.data(), expected.data(), size_t(count) * sizeof(T)) != 0)
      report_failure(__FILE__, __LINE__, concat(what, " on ", table.isa, ": ", count, " elements, T ", sizeof(T)));
  }
}

template <typename T>
void check_unary(int64_t count) {
  for (int op = 0; op < kUnaryOps; ++op) {
    const bool positive = op == kLog || op == kSqrt || op == kReciprocal;
    const Numbers<T> x(count, positive);
    same_everywhere<T>(concat("unary op ", op), count, [&](const KernelTable& table, T* y) {
      table.unary[op][kElem<T>]({x.data(), y, count, 0.25f, 1.5f});
    });
  }
}

template <typename T>
void check_elementwise(int64_t count) {
  const Numbers<T> a(count, true), b(count, true), c(count);
  for (int form = 0; form < 8; ++form) {
    const bool first = form & 1, second = form & 2, third = form & 4;
    same_everywhere<T>("where", count, [&](const KernelTable& table, T* y) {
      table.where[kElem<T>]({c.data(), a.data(), b.data(), y, count, third, first, second});
    });
    for (int op = 0; third && op < kElementwiseOps; ++op) {
      same_everywhere<T>(concat("repeating op ", op), count, [&](const KernelTable& table, T* y) {
        table.elementwise[op][kElem<T>]({a.data(), b.data(), y, 1, count, 0, 0, 0, first, second});
      });
    }
  }
}

template <typename T>
void check_rows(int64_t cols) {
  const int64_t rows = uniform(1, 4);
  const Numbers<T> x(rows * cols);
  const Numbers<float> weight(cols), bias(cols);
  for (int op = 0; op < kReduceOps; ++op) {
    same_everywhere<T>(concat("reduction ", op), rows,
                       [&](const KernelTable& table, T* y) { table.reduce[op][kElem<T>]({x.data(), y, rows, cols}); });
  }
  for (const bool log : {false, true}) {
    same_everywhere<T>("softmax", rows * cols, [&](const KernelTable& table, T* y) {
      const GuardedBuffer<float> scratch(cols);
      table.softmax[kElem<T>]({x.data(), y, scratch.data(), rows, cols, log});
    });
  }
  for (int form = 0; form < 3; ++form) {
    same_everywhere<T>("layer norm", rows * cols, [&](const KernelTable& table, T* y) {
      table.layer_norm[kElem<T>](
          {x.data(), y, form > 0 ? weight.data() : nullptr, form > 1 ? bias.data() : nullptr, rows, cols, 1e-5f});
    });
  }
}

void check_gemm(int64_t rows, int64_t k) {
  const Numbers<float> a(rows * k), b(k * kPanel);
  same_everywhere<float>(concat("gemm of ", rows, " x ", k), rows * kPanel,
                         [&](const KernelTable& table, float* y) { table.gemm({a.data(), b.data(), y, rows, k, k}); });
}

template <typename T>
void check_store(int64_t rows, int64_t cols) {
  const Numbers<float> acc(rows * kPanel), bias(rows);
  const int64_t stride = cols + uniform(0, 5), count = (rows - 1) * stride + cols;
  const Numbers<T> residual(count);
  for (int form = 0; form < 4; ++form) {
    same_everywhere<T>("gemm store", count, [&](const KernelTable& table, T* y) {
      table.gemm_store[kElem<T>](
          {acc.data(), form & 1 ? bias.data() : nullptr, form & 2 ? residual.data() : nullptr, y, rows, cols, stride});
    });
  }
}

template <typename T>
void check_windows(int64_t taps, int64_t cols, int64_t inner) {
  Numbers<float> panel(taps * kPanel);
  if (taps > 1) panel[0] = -std::numeric_limits<float>::infinity();
  GuardedBuffer<float> counts(kPanel);
  for (int64_t i = 0; i < kPanel; ++i) counts[i] = float(uniform(1, 9));
  for (const bool mean : {false, true}) {
    panel[0] = mean ? 0.0f : panel[0];
    same_everywhere<T>(mean ? "mean of taps" : "largest tap", cols, [&](const KernelTable& table, T* y) {
      table.pool[kElem<T>]({panel.data(), mean ? counts.data() : nullptr, y, taps, cols});
    });
  }
  const int64_t count = uniform(1, 3), extent = 5;
  const Numbers<T> x(extent * inner);
  GuardedBuffer<int32_t> indices(count * taps);
  for (int64_t i = 0; i < count * taps; ++i) indices[i] = uniform(0, int(extent) - 1);
  const Numbers<float> weights(count * taps);
  same_everywhere<T>("resample", count * inner, [&](const KernelTable& table, T* y) {
    table.resample[kElem<T>]({x.data(), indices.data(), weights.data(), y, count, taps, inner});
  });
}

template <typename T>
void check_all(int64_t size) {
  check_unary<T>(size);
  check_elementwise<T>(size);
  check_rows<T>(size);
  if (size <= kPanel) check_store<T>(uniform(1, 5), size);
  if (size <= kPanel) check_windows<T>(uniform(1, 9), size, size);
}

}  // namespace

int main() {
  for (const int64_t size : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 1000}) {
    check_all<uint16_t>(size);
    check_all<float>(size);
  }
  for (const int64_t rows : {1, 2, 5, 6, 7, 11, 12, 13, 24, 25, 48}) {
    for (const int64_t k : {1, 2, 27, 147, 576}) check_gemm(rows, k);
  }
  return check_result();
}
