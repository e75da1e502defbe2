// The kernels that work row by row: every instruction set against ref bit for bit over widths around the vectors,
// strided rows, guard pages and special values; and ref against straight-line computations.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "backends/cpu/dispatch.h"
#include "base/half.h"
#include "check.h"
#include "guarded_buffer.h"
#include "kernel_tables.h"

using namespace tcim_lite;
using namespace tcim_lite::cpu;

namespace {

std::mt19937 g_random(11);
int uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(g_random); }

float from(uint16_t value) { return half_to_float(value); }
float from(float value) { return value; }
template <typename T>
float rounded(float value) {
  return from(to<T>(value));
}

// Values of every size a tensor may hold: normal ones, zeros of both signs, subnormals, the largest.
template <typename T>
T special(int kind) {
  const float sign = uniform(0, 1) ? 1.0f : -1.0f;
  switch (kind) {
    case 0:
      return to<T>(sign * 0.0f);
    case 1:
      return to<T>(sign * 65504.0f);
    case 2:
      return to<T>(sign * std::ldexp(float(uniform(1, 1023)), -24));
    case 3:
      return to<T>(sign * std::ldexp(1.0f + float(uniform(0, 1023)) / 1024, uniform(-14, 15)));
    case 4:
      if constexpr (sizeof(T) == 4) return sign * std::ldexp(1.0f, uniform(-149, -100));
      [[fallthrough]];
    default:
      return to<T>(std::normal_distribution<float>()(g_random));
  }
}

// [rows, cols] with a stride; what lies between the rows is poison. The last row ends at a guard page.
template <typename T>
struct Matrix {
  int64_t rows, cols, stride;
  GuardedBuffer<T> buffer;

  Matrix(int64_t rows_, int64_t cols_, int64_t gap)
      : rows(rows_), cols(cols_), stride(cols_ + gap), buffer((rows - 1) * stride + cols) {}
  T& at(int64_t row, int64_t i) const { return buffer[row * stride + i]; }
  T* data() const { return buffer.data(); }
  // Normal values; a quarter are of the kinds 0 to wildest of special().
  void fill(int wildest) const {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < cols; ++i)
        at(row, i) = special<T>(wildest >= 0 && uniform(0, 3) == 0 ? uniform(0, wildest) : 9);
    }
  }
};

// run(table, y) once per instruction set; all must leave the same bytes in y. Returns ref's through `expected`.
template <typename T>
void same_everywhere(const std::string& what, const Matrix<T>& expected,
                     const std::function<void(const KernelTable&, const Matrix<T>&)>& run) {
  for (const KernelTable& table : tables()) {
    if (&table == &tables()[0]) {
      run(table, expected);
      continue;
    }
    const Matrix<T> y(expected.rows, expected.cols, expected.stride - expected.cols);
    run(table, y);
    if (!y.buffer.same_bytes(expected.buffer)) {
      report_failure(__FILE__, __LINE__,
                     concat(what, " on ", table.isa, ": rows ", y.rows, ", cols ", y.cols, ", T ", sizeof(T)));
    }
  }
}

template <typename T>
constexpr Elem kElem = sizeof(T) == 2 ? kF16 : kF32;

template <typename T>
void check_equal(const char* what, T got, float expected) {
  if (std::bit_cast<uint32_t>(from(got)) != std::bit_cast<uint32_t>(rounded<T>(expected))) {
    report_failure(__FILE__, __LINE__, concat("ref ", what, ": ", from(got), ", by the text ", rounded<T>(expected)));
  }
}

template <typename T>
void check_norm(int64_t rows, int64_t cols, int wildest) {
  const Matrix<T> x(rows, cols, uniform(0, 3)), y(rows, cols, uniform(0, 3));
  const Matrix<float> weight(1, cols, 0);
  x.fill(wildest);
  weight.fill(-1);
  same_everywhere<T>("rms_norm", y, [&](const KernelTable& table, const Matrix<T>& out) {
    table.rms_norm[kElem<T>]({x.data(), out.data(), weight.data(), rows, cols, x.stride, out.stride, 1e-6f});
  });
  std::vector<float> sums(16, 0.0f);
  for (int64_t i = 0; i < cols; ++i) sums[i % 16] = std::fma(from(x.at(0, i)), from(x.at(0, i)), sums[i % 16]);
  float half[8];
  for (int i = 0; i < 8; ++i) half[i] = sums[i] + sums[i + 8];
  const float sum = ((half[0] + half[4]) + (half[2] + half[6])) + ((half[1] + half[5]) + (half[3] + half[7]));
  const float inverse = 1.0f / std::sqrt(sum / float(cols) + 1e-6f);
  for (int64_t i = 0; i < cols; ++i) check_equal("rms_norm", y.at(0, i), from(x.at(0, i)) * inverse * weight.at(0, i));
}

template <typename T>
void check_rope(int64_t heads, int64_t dim) {
  const Matrix<T> x(heads, dim, uniform(0, 3)), y(heads, dim, uniform(0, 3));
  const Matrix<float> cos(1, dim / 2, 0), sin(1, dim / 2, 0);
  x.fill(3);
  cos.fill(0);
  sin.fill(0);
  same_everywhere<T>("rope", y, [&](const KernelTable& table, const Matrix<T>& out) {
    table.rope[kElem<T>]({x.data(), out.data(), cos.data(), sin.data(), heads, dim, x.stride, out.stride});
  });
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float x1 = from(x.at(0, i)), x2 = from(x.at(0, i + dim / 2)), c = cos.at(0, i), s = sin.at(0, i);
    check_equal("rope", y.at(0, i), std::fma(-x2, s, x1 * c));
    check_equal("rope", y.at(0, i + dim / 2), std::fma(x1, s, x2 * c));
  }
  // In place.
  for (const KernelTable& table : tables()) {
    const Matrix<T> z(heads, dim, x.stride - dim);
    for (int64_t head = 0; head < heads; ++head) std::copy_n(&x.at(head, 0), dim, &z.at(head, 0));
    table.rope[kElem<T>]({z.data(), z.data(), cos.data(), sin.data(), heads, dim, z.stride, z.stride});
    for (int64_t i = 0; i < dim; ++i) check_equal("rope in place", z.at(heads - 1, i), from(y.at(heads - 1, i)));
  }
}

// A code of docs/numerics.md section 3, in double. Hidden: of the format with hidden exponents.
int code_of(double scaled, int64_t element, bool hidden) {
  const double step = hidden && element % 32 >= 16 && element % 2 == 0 ? 2 : 1;
  const double low = hidden ? -128 : -127, high = step == 2 ? 126 : 127;
  return int(std::clamp(std::nearbyint(scaled / step) * step, low, high));
}

template <typename T>
void check_quantize(int64_t rows, int64_t groups, int wildest, bool hidden) {
  const Matrix<T> x(rows, 64 * groups, 0);
  x.fill(wildest);
  for (int64_t group = 0; group < groups; ++group) {  // groups of one size each: zero, tiny, huge, ties
    const int kind = uniform(-1, 4);
    for (int64_t i = 0; i < 64 && kind >= 0; ++i) {
      x.at(0, group * 64 + i) = kind == 4 ? to<T>(float(uniform(-255, 255)) / 2) : special<T>(kind);
    }
  }
  const GuardedBuffer<int8_t> codes(rows * 64 * groups, 64);
  const GuardedBuffer<float> scales(rows * groups);
  const GuardedBuffer<int32_t> sums(rows * groups);
  for (const KernelTable& table : tables()) {
    const GuardedBuffer<int8_t> own_codes(codes.size(), 64);
    const GuardedBuffer<float> own_scales(scales.size());
    const GuardedBuffer<int32_t> own_sums(sums.size());
    const bool ref = &table == &tables()[0];
    const auto& c = ref ? codes : own_codes;
    const auto& s = ref ? scales : own_scales;
    const auto& t = ref ? sums : own_sums;
    const auto quantize = hidden ? table.quantize_hidden : table.quantize[kElem<T>];
    quantize({x.data(), c.data(), s.data(), t.data(), rows, groups, x.stride});
    if (!c.same_bytes(codes) || !s.same_bytes(scales) || !t.same_bytes(sums)) {
      report_failure(
          __FILE__, __LINE__,
          concat("quantize on ", table.isa, ": rows ", rows, ", groups ", groups, hidden ? ", hidden exponents" : ""));
    }
  }
  const int lowest = hidden ? -20 : -30;
  for (int64_t index = 0; index < rows * groups; ++index) {
    double amax = 0;
    for (int64_t i = 0; i < 64; ++i)
      amax = std::max(amax, std::fabs(double(from(x.at(index / groups, index % groups * 64 + i)))));
    const int exponent = amax == 0 ? lowest : std::clamp(std::ilogb(amax) - 6, lowest, 9);
    int sum = 0;
    for (int64_t i = 0; i < 64; ++i) {
      const double scaled = std::ldexp(double(from(x.at(index / groups, index % groups * 64 + i))), -exponent);
      const int code = code_of(scaled, i, hidden);
      CHECK_EQ(int(codes[index * 64 + i]), code);
      sum += code;
    }
    CHECK_EQ(scales[index], std::ldexp(1.0f, exponent));
    CHECK_EQ(sums[index], sum);
  }
}

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

// Every fp16 pattern widens exactly, and fp32 values around every rounding border narrow to the nearest.
void check_conversions() {
  const Matrix<uint16_t> all(1, 65536, 0);
  for (int64_t i = 0; i < 65536; ++i) all.at(0, i) = uint16_t(i);
  std::vector<float> borders;
  for (uint32_t half = 0; half < 0x7c00; ++half) {
    const float low = half_to_float(uint16_t(half)),
                high = half == 0x7bff ? 65536.0f : half_to_float(uint16_t(half + 1));
    const float middle = (low + high) / 2;
    for (const float value : {low, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      borders.push_back(value);
      borders.push_back(-value);
    }
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {65520.0f, 1e6f, 3.4e38f, infinity, 1e-45f, 1e-30f})
    borders.insert(borders.end(), {value, -value});
  const Matrix<uint16_t> expected(1, int64_t(borders.size()), 0);
  same_everywhere<uint16_t>("narrow borders", expected, [&](const KernelTable& table, const Matrix<uint16_t>& out) {
    table.narrow[kF16]({borders.data(), out.data(), 1, out.cols, out.cols, out.cols});
  });
  for (size_t i = 0; i < borders.size(); ++i) {
    CHECK_EQ(expected.at(0, int64_t(i)), float_to_half_saturate(borders[i]));
    CHECK((expected.at(0, int64_t(i)) & 0x7fff) < 0x7c00);
  }
  for (const KernelTable& table : tables()) {
    std::vector<float> wide(65536);
    table.widen[kF16]({all.data(), wide.data(), 1, 65536, 65536, 65536, 1.0f});
    for (int64_t i = 0; i < 65536; ++i) {
      const float expected_value = half_to_float(uint16_t(i));
      if (std::isnan(expected_value))
        CHECK(std::isnan(wide[i]));
      else
        CHECK_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(expected_value));
    }
    const float nan = std::nanf("");
    uint16_t half;
    table.narrow[kF16]({&nan, &half, 1, 1, 1, 1});
    CHECK(std::isnan(half_to_float(half)));
  }
}

template <typename T>
void check_all() {
  for (const int64_t cols : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 80, 96, 100, 127, 128, 129, 1024, 3072}) {
    for (const int64_t rows : {1, 2, 3, 17}) {
      for (const int wildest : {-1, 4}) {
        check_norm<T>(rows, cols, wildest);
        check_elementwise<T>(rows, cols, wildest);
        check_weighted_sum<T>(rows, cols, wildest);
        if (cols % 16 == 0) check_gated<T>(rows, cols, wildest);
      }
    }
    check_rope<T>(3, 2 * cols);
  }
  for (const int64_t groups : {1, 2, 3, 16, 48}) {
    for (const int64_t rows : {1, 2, 17}) {
      for (const int wildest : {-1, 4}) {
        check_quantize<T>(rows, groups, wildest, false);
        if constexpr (kElem<T> == kF16) check_quantize<T>(rows, groups, wildest, true);
      }
    }
  }
}

// The tuning of a CPU follows from what it is, whatever instruction sets it shows.
void check_tuning() {
  const auto fetch_of = [](bool intel, bool amd, int family, int model) {
    CpuInfo cpu;
    cpu.intel = intel, cpu.amd = amd, cpu.family = family, cpu.model = model;
    return tuning_of(cpu).fetch;
  };
  CHECK(fetch_of(true, false, 6, 0xcf) == WeightFetch::PastPage);    // Emerald Rapids
  CHECK(fetch_of(true, false, 6, 0x6a) == WeightFetch::Usual);       // Ice Lake
  CHECK(fetch_of(false, true, 26, 0x02) == WeightFetch::IntoFirst);  // Zen 5
  CHECK(fetch_of(false, true, 25, 0x11) == WeightFetch::Usual);      // Zen 4
  CHECK(fetch_of(false, false, 26, 0x02) == WeightFetch::Usual);
  CHECK(fetch_of(false, false, 6, 0xcf) == WeightFetch::Usual);
  CHECK(fetch_of(false, false, 0, 0) == WeightFetch::Usual);
}

}  // namespace

int main() {
  std::string sets;
  for (const KernelTable& table : tables()) sets += (sets.empty() ? "" : ", ") + std::string(table.isa);
  std::printf("instruction sets: %s\n", sets.c_str());
  check_conversions();
  check_tuning();
  check_all<uint16_t>();
  check_all<float>();
  CHECK_ERROR(make_table("sse9"), "this machine has ref");
  return check_result();
}
