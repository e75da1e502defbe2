// Norms, rotations, quantised rows and conversions: every instruction set against ref bit for bit over widths around
// the vectors, strided rows, guard pages and special values; and ref against straight-line computations.
#include <algorithm>
#include <cmath>
#include <cstdio>
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
      for (const int wildest : {-1, 4}) check_norm<T>(rows, cols, wildest);
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
