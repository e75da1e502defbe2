// The kernels over rows of elements: every instruction set against ref bit for bit, over sizes around the vectors, with
// guard pages behind operands and results, and results poisoned before.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu/dispatch.h"
#include "base/half.h"
#include "check.h"
#include "guarded_buffer.h"
#include "same_everywhere.h"

using namespace tcim_lite;
using namespace tcim_lite::cpu;

namespace {

template <typename T>
void check_unary(int64_t count) {
  for (int op = 0; op < kUnaryOps; ++op) {
    const bool positive = op == kLog || op == kSqrt || op == kReciprocal;
    Numbers<T> x(count, positive);
    if constexpr (sizeof(T) == 4) {  // angles that are reduced in either way
      for (int64_t i = 0; (op == kSin || op == kCos) && i < count; ++i) x[i] = std::ldexp(x[i], uniform(-10, 120));
    }
    same_everywhere<T>(concat("unary op ", op), count, [&](const KernelTable& table, T* y) {
      table.unary[op][kElem<T>]({x.data(), y, count, 0.25f, 1.5f});
    });
  }
}

// Codes of grids that quantisers write, and others: numbers in the middle of two codes, beside it by some ulps, at the
// limits and far beyond; in rows, in place, and as fp32 of what fp16 holds.
template <typename T>
void check_fake_quantize(int64_t count) {
  for (int grid = 0; grid < 24; ++grid) {
    float alpha = std::ldexp(1.0f + std::ldexp(float(uniform(0, (1 << 23) - 1)), -23), uniform(-12, 3));
    if (grid == 0) alpha = 1.0f;
    if (grid == 1) alpha = std::ldexp(1.5f, uniform(0, 1) ? -100 : 90);
    if (grid == 2) alpha = 0.0f;
    const float beta = grid == 3 ? 1.5f : grid == 4 ? -1e6f : -float(uniform(0, 255));
    const int64_t rows = uniform(1, 3), stride = count + uniform(0, 5), all = (rows - 1) * stride + count;
    GuardedBuffer<T> x(all);
    for (int64_t i = 0; i < all; ++i) {
      float value = alpha * (float(uniform(-300, 300)) + (uniform(0, 3) == 0 ? 0.0f : 0.5f));
      for (int ulps = uniform(-2, 2); ulps != 0; ulps -= ulps > 0 ? 1 : -1)
        value = std::nextafter(value, ulps > 0 ? INFINITY : -INFINITY);
      if (uniform(0, 9) == 0) value = alpha == 0 ? 1.0f : any_number() * 1e30f;
      if (uniform(0, 19) == 0) value = alpha == 0 ? 1.0f : std::copysign(uniform(0, 1) ? 0.0f : INFINITY, any_number());
      x[i] = to<T>(alpha == 0 && value == 0 ? 1.0f : value);
    }
    for (const bool to_half : {false, true}) {
      if (to_half && sizeof(T) == 2) continue;
      same_everywhere<T>(concat("codes of ", alpha, ", ", beta), all, [&](const KernelTable& table, T* y) {
        std::memcpy(y, x.data(), size_t(all) * sizeof(T));
        table.unary[kFakeQuantize][kElem<T>]({y, y, count, alpha, beta, rows, stride, stride, to_half});
      });
    }
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

// Words of any bits: signalling NaN too keeps its own.
template <typename T>
void check_transpose(int64_t rows, int64_t cols, int64_t most_between) {
  const int64_t x_stride = cols + uniform(0, most_between), y_stride = rows + uniform(0, most_between);
  GuardedBuffer<T> x((rows - 1) * x_stride + cols);
  for (int64_t i = 0; i < (rows - 1) * x_stride + cols; ++i) {
    const uint32_t bits = uniform(0, 3) == 0 ? 0x7f817d01u : uint32_t(g_random());
    std::memcpy(&x[i], &bits, sizeof(T));
  }
  same_everywhere<T>(concat(rows, " x ", cols, " transposed"), (cols - 1) * y_stride + rows,
                     [&](const KernelTable& table, T* y) {
                       table.transpose[sizeof(T) / 4]({x.data(), y, rows, cols, x_stride, y_stride});
                     });
}

// One power of a row of numbers, with and without a logarithm.
template <typename T>
void check_powers(int64_t count) {
  const Numbers<T> numbers(count), positive(count, true);
  for (const float power : {0.5f, 1.0f, 2.0f, 3.0f, 64.0f, -1.0f, -2.0f, 65.0f, 0.0f, 2.5f}) {
    GuardedBuffer<T> b(1);
    b[0] = to<T>(power);
    const T* const a = power == std::rint(power) ? numbers.data() : positive.data();  // no NaN
    same_everywhere<T>(concat("power ", power), count, [&](const KernelTable& table, T* y) {
      table.elementwise[kPow][kElem<T>]({a, b.data(), y, 1, count, 0, 0, 0, false, true});
    });
  }
}

template <typename T>
void check_rows(int64_t cols) {
  const int64_t rows = uniform(1, 40);
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

// Integers around 0 and at both ends, whose sums, products and quotients leave int32.
struct Integers : GuardedBuffer<int32_t> {
  explicit Integers(int64_t count) : GuardedBuffer<int32_t>(count) {
    constexpr int32_t kEnds[] = {INT32_MIN, INT32_MIN + 1, -1, 0, 1, INT32_MAX};
    for (int64_t i = 0; i < count; ++i)
      (*this)[i] = uniform(0, 2) == 0 ? kEnds[uniform(0, 5)] : uniform(0, 1) ? uniform(-5, 5) : int32_t(g_random());
  }
};

// In 64 bits, of which the low 32 stay: the kernels of all sets, ref's among them, are one source.
int32_t result_of(ElementwiseOp op, int64_t a, int64_t b) {
  const auto low_bits = [](int64_t x) { return int32_t(uint32_t(uint64_t(x))); };
  if (op == kAdd) return low_bits(a + b);
  if (op == kSub) return low_bits(a - b);
  if (op == kMul) return low_bits(a * b);
  if (op == kDiv) return b == 0 ? 0 : low_bits(a / b);
  if (op == kMax) return int32_t(std::max(a, b));
  if (op == kMin) return int32_t(std::min(a, b));
  return op == kEqual ? a == b : a < b;
}

void check_integers(int64_t count) {
  const Integers a(count), b(count), condition(count);
  for (int form = 0; form < 8; ++form) {
    const bool first = form & 1, second = form & 2, third = form & 4;
    same_everywhere<int32_t>("where of integers", count, [&](const KernelTable& table, int32_t* y) {
      table.where[kI32]({condition.data(), a.data(), b.data(), y, count, third, first, second});
      for (int64_t i = 0; i < count; ++i)
        CHECK_EQ(y[i], condition[third ? 0 : i] != 0 ? a[first ? 0 : i] : b[second ? 0 : i]);
    });
    for (int op = 0; !third && op < kElementwiseOps; ++op) {
      if (!has_integers(ElementwiseOp(op))) continue;
      same_everywhere<int32_t>(concat("op ", op, " of integers"), count, [&](const KernelTable& table, int32_t* y) {
        table.elementwise[op][kI32]({a.data(), b.data(), y, 1, count, 0, 0, 0, first, second});
        for (int64_t i = 0; i < count; ++i)
          CHECK_EQ(y[i], result_of(ElementwiseOp(op), a[first ? 0 : i], b[second ? 0 : i]));
      });
    }
  }
  const int64_t rows = uniform(1, 4);
  const Integers x(rows * count);
  for (int op = 0; op < kReduceOps; ++op) {
    if (!has_integers(ReduceOp(op))) continue;
    same_everywhere<int32_t>(concat("reduction ", op, " of integers"), rows, [&](const KernelTable& table, int32_t* y) {
      table.reduce[op][kI32]({x.data(), y, rows, count});
      for (int64_t row = 0; row < rows; ++row) {
        int32_t expected = x[row * count];
        for (int64_t i = 1; i < count; ++i)
          expected = result_of(step_of_integers(ReduceOp(op)), expected, x[row * count + i]);
        CHECK_EQ(y[row], expected);
      }
    });
  }
}

template <typename T>
void check_all(int64_t size) {
  check_unary<T>(size);
  check_fake_quantize<T>(size);
  check_elementwise<T>(size);
  check_powers<T>(size);
  check_transpose<T>(uniform(1, 40), size, 9);
  for (const int64_t side : {1, 2, 3, 4, 5}) {
    for (const int64_t most_between : {0, 1}) {
      check_transpose<T>(size, side, most_between);
      check_transpose<T>(side, size, most_between);
    }
  }
  check_rows<T>(size);
}

}  // namespace

int main() {
  for (const int64_t size : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 1000}) {
    check_all<uint16_t>(size);
    check_all<float>(size);
    check_integers(size);
  }
  return check_result();
}
