// Operations of single elements, weighted sums and gates: every instruction set against ref bit for bit over widths
// around the vectors, strided rows, guard pages and special values; and ref against straight-line computations.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "backends/cpu/dispatch.h"
#include "base/half.h"
#include "check.h"
#include "same_rows.h"

using namespace tcim_lite;
using namespace tcim_lite::cpu;

namespace {

// What an ElementwiseOp is, before the rounding.
float combine(ElementwiseOp op, float a, float b) {
  switch (op) {
    case kAdd:
      return a + b;
    case kMul:
      return a * b;
    case kSub:
      return a - b;
    case kDiv:
      return a / b;
    case kMax:
      return a < b ? b : a;
    case kMin:
      return b < a ? b : a;
    case kPRelu:
      return a < 0 ? a * b : a;
    case kEqual:
      return a == b ? 1.0f : 0.0f;
    case kLess:
      return a < b ? 1.0f : 0.0f;
    case kPow:  // has no one-line text: tests/onnx/test_functions.py bounds it
    case kElementwiseOps:
      break;
  }
  std::abort();
}

template <typename T>
void check_elementwise(int64_t rows, int64_t cols, int wildest) {
  const Matrix<T> a(rows, cols, uniform(0, 3)), b(rows, cols, uniform(0, 3)), y(rows, cols, uniform(0, 3));
  const Matrix<float> acc(rows, cols, uniform(0, 3)), bias(1, cols, 0), wide(rows, cols, 1);
  a.fill(wildest);
  b.fill(wildest);
  acc.fill(wildest);
  bias.fill(3);
  for (int64_t i = 0; i < cols; ++i) {
    if (uniform(0, 4) == 0)
      acc.at(0, i) =
          (uniform(0, 1) ? 1.0f : -1.0f) * std::ldexp(1.0f + float(uniform(0, 8191)) / 8192, uniform(14, 40));
  }
  for (int index = 0; index < kElementwiseOps; ++index) {
    const auto op = ElementwiseOp(index);
    if (op == kPow) continue;
    if (op == kDiv) {  // 0 / 0 is NaN, whose payload is not defined
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < cols; ++i) {
          if (from(b.at(row, i)) == 0) b.at(row, i) = to<T>(3);
        }
      }
    }
    const std::string name = concat("elementwise op ", index);
    same_everywhere<T>(name, y, [&](const KernelTable& table, const Matrix<T>& out) {
      table.elementwise[op][kElem<T>]({a.data(), b.data(), out.data(), rows, cols, a.stride, b.stride, out.stride});
    });
    for (int64_t i = 0; i < cols; ++i) {
      check_equal(name.c_str(), y.at(0, i), combine(op, from(a.at(0, i)), from(b.at(0, i))));
    }
  }
  same_everywhere<T>("narrow", y, [&](const KernelTable& table, const Matrix<T>& out) {
    table.narrow[kElem<T>]({acc.data(), out.data(), rows, cols, acc.stride, out.stride});
  });
  for (int64_t i = 0; i < cols; ++i) check_equal("narrow", y.at(0, i), acc.at(0, i));
  same_everywhere<float>("widen", wide, [&](const KernelTable& table, const Matrix<float>& out) {
    table.widen[kElem<T>]({a.data(), out.data(), rows, cols, a.stride, out.stride, 0.08838834764f});
  });
  for (int64_t i = 0; i < cols; ++i) check_equal("widen", wide.at(0, i), from(a.at(0, i)) * 0.08838834764f);
  for (int form = 0; form < 4; ++form) {
    const bool with_bias = form & 1, with_residual = form & 2;
    same_everywhere<T>("store", y, [&](const KernelTable& table, const Matrix<T>& out) {
      table.store[kElem<T>]({acc.data(), with_bias ? bias.data() : nullptr, with_residual ? b.data() : nullptr,
                             out.data(), rows, cols, acc.stride, b.stride, out.stride});
    });
    for (int64_t i = 0; i < cols; ++i) {
      float value = with_bias ? acc.at(0, i) + bias.at(0, i) : acc.at(0, i);
      if (with_residual) value = from(b.at(0, i)) + rounded<T>(value);
      check_equal("store", y.at(0, i), value);
    }
  }
  const T not_finite[] = {to<T>(0.0f), T(sizeof(T) == 2 ? 0x7c00 : 0), T(sizeof(T) == 2 ? 0xfe01 : 0)};
  const float wide_not_finite[] = {0.0f, -std::numeric_limits<float>::infinity(), std::nanf("")};
  for (const KernelTable& table : tables()) {
    const FiniteArgs args{a.data(), rows, cols, a.stride};
    CHECK(table.all_finite[kElem<T>](args));
    for (int kind = 1; kind < 3; ++kind) {
      T& hit = a.at(uniform(0, int(rows) - 1), uniform(0, 2) ? uniform(0, int(cols) - 1) : cols - 1);
      const T kept = hit;
      if constexpr (sizeof(T) == 2)
        hit = not_finite[kind];
      else
        hit = wide_not_finite[kind];
      CHECK(!table.all_finite[kElem<T>](args));
      hit = kept;
    }
  }
}

template <typename T>
void check_weighted_sum(int64_t count, int64_t cols, int wildest) {
  const Matrix<T> x(1, count * cols, 0), residual(1, cols, 0), y(1, cols, 0);
  const Matrix<float> weights(1, count, 0);
  x.fill(wildest);
  residual.fill(wildest);
  weights.fill(-1);
  for (const bool adds : {false, true}) {
    same_everywhere<T>("weighted_sum", y, [&](const KernelTable& table, const Matrix<T>& out) {
      table.weighted_sum[kElem<T>](
          {x.data(), weights.data(), adds ? residual.data() : nullptr, out.data(), count, cols});
    });
    for (int64_t i = 0; i < cols; ++i) {
      float sum = 0;
      for (int64_t k = 0; k < count; ++k) sum = std::fma(weights.at(0, k), from(x.at(0, k * cols + i)), sum);
      check_equal("weighted_sum", y.at(0, i), adds ? from(residual.at(0, i)) + rounded<T>(sum) : sum);
    }
  }
}

template <typename T>
void check_gated(int64_t rows, int64_t cols, int wildest) {
  const Matrix<T> x(rows, 2 * cols, uniform(0, 3)), y(rows, cols, uniform(0, 3));
  const Matrix<float> acc(rows, 2 * cols, 0), bias(1, 2 * cols, 0);
  x.fill(wildest);
  acc.fill(wildest);
  bias.fill(3);
  const KernelTable& ref = tables()[0];
  const auto swish = [&](float g, float alpha) {
    float minus = -(alpha * g), e;
    ref.exp(&minus, &e, 1);
    return g / (1.0f + e);
  };
  const auto silu = [&](float g) { return swish(g, 1.0f); };
  same_everywhere<T>("silu_mul", y, [&](const KernelTable& table, const Matrix<T>& out) {
    table.silu_mul[kElem<T>]({x.data(), out.data(), rows, cols, x.stride, out.stride});
  });
  for (int64_t i = 0; i < cols; ++i) {
    const float g = from(x.at(0, i / 16 * 32 + i % 16)), u = from(x.at(0, i / 16 * 32 + 16 + i % 16));
    check_equal("silu_mul", y.at(0, i), silu(g) * u);
    const double exact = double(g) / (1 + std::exp(-double(g)));
    // exp stops at exp(88) = 1 / 6.05e-39, so silu of less than -88 does not fall below 6.05e-39 |g|.
    CHECK(std::fabs(silu(g) - exact) <= 4e-7 * std::fabs(exact) + 6.1e-39 * std::fabs(g) + 0x1p-149);
  }
  same_everywhere<T>("gelu_mul", y, [&](const KernelTable& table, const Matrix<T>& out) {
    table.gelu_mul[kElem<T>]({x.data(), out.data(), rows, cols, x.stride, out.stride});
  });
  constexpr float kAlpha = 1.702f, kLimit = 1.25f;
  same_everywhere<T>("clamped_glu", y, [&](const KernelTable& table, const Matrix<T>& out) {
    table.clamped_glu[kElem<T>]({{x.data(), out.data(), rows, cols, x.stride, out.stride}, kAlpha, kLimit});
  });
  for (int64_t i = 0; i < cols; ++i) {
    const float g = from(x.at(0, i / 16 * 32 + i % 16)), u = from(x.at(0, i / 16 * 32 + 16 + i % 16));
    check_equal("clamped_glu", y.at(0, i),
                (std::clamp(u, -kLimit, kLimit) + 1.0f) * swish(std::min(g, kLimit), kAlpha));
  }
  for (const bool with_bias : {false, true}) {
    same_everywhere<T>("silu_mul_store", y, [&](const KernelTable& table, const Matrix<T>& out) {
      table.silu_mul_store[kElem<T>](
          {acc.data(), with_bias ? bias.data() : nullptr, out.data(), rows, cols, acc.stride, out.stride});
    });
    for (int64_t i = 0; i < cols; ++i) {
      const int64_t gate = i / 16 * 32 + i % 16, up = gate + 16;
      const float g = rounded<T>(with_bias ? acc.at(0, gate) + bias.at(0, gate) : acc.at(0, gate));
      const float u = rounded<T>(with_bias ? acc.at(0, up) + bias.at(0, up) : acc.at(0, up));
      check_equal("silu_mul_store", y.at(0, i), silu(g) * u);
    }
  }
}

template <typename T>
void check_all() {
  for (const int64_t cols : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 80, 96, 100, 127, 128, 129, 1024, 3072}) {
    for (const int64_t rows : {1, 2, 3, 17}) {
      for (const int wildest : {-1, 4}) {
        check_elementwise<T>(rows, cols, wildest);
        check_weighted_sum<T>(rows, cols, wildest);
        if (cols % 16 == 0) check_gated<T>(rows, cols, wildest);
      }
    }
  }
}

}  // namespace

int main() {
  check_all<uint16_t>();
  check_all<float>();
  return check_result();
}
