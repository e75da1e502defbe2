// exp: every instruction set equals ref on all floats of the working range and the special ones; error against
// std::exp.
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "backends/cpu/dispatch.h"
#include "check.h"
#include "guarded_buffer.h"
#include "kernel_tables.h"

using namespace tcim_lite;
using namespace tcim_lite::cpu;

namespace {

// docs/numerics.md section 5.
constexpr long double kBoundUlp = 0.9L;

// Error in units of the last place of the correctly rounded fp32 result.
long double error_ulp(float x, float y) {
  const long double exact = std::exp((long double)(x));
  const int exponent = std::max(std::ilogb(exact), -126);
  return std::fabs((long double)(y)-exact) / std::ldexp(1.0L, exponent - 23);
}

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

}  // namespace

// With an argument: that step through the bit patterns; 1 is exhaustive (minutes).
int main(int argc, char** argv) {
  const uint32_t step = argc > 1 ? uint32_t(std::atoi(argv[1])) : 251;
  const KernelTable& ref = tables().front();

  long double worst = 0.0L;
  float worst_x = 0.0f;
  std::vector<float> x;
  std::vector<float> y(1 << 16), z(1 << 16);
  const auto flush = [&] {
    ref.exp(x.data(), y.data(), int64_t(x.size()));
    for (const KernelTable& table : tables()) {
      table.exp(x.data(), z.data(), int64_t(x.size()));
      for (size_t i = 0; i < x.size(); ++i) {
        if (!same(y[i], z[i]))
          report_failure(__FILE__, __LINE__, concat("exp(", x[i], ") on ", table.isa, ": ", z[i], ", ref ", y[i]));
        if (g_check_failures > 10) return;
      }
    }
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] < -87.336f || x[i] > 88.0f || std::isnan(x[i])) continue;
      const long double error = error_ulp(x[i], y[i]);
      if (error > worst) worst = error, worst_x = x[i];
    }
    x.clear();
  };
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += step) {
    x.push_back(std::bit_cast<float>(uint32_t(bits)));
    if (x.size() == y.size()) flush();
  }
  flush();
  std::printf("exp: largest error %.4Lf ulp at %a\n", worst, double(worst_x));
  CHECK(worst <= kBoundUlp);

  const float infinity = std::numeric_limits<float>::infinity();
  const auto one = [&](float value) {
    float result;
    ref.exp(&value, &result, 1);
    return result;
  };
  CHECK_EQ(one(0.0f), 1.0f);
  CHECK_EQ(one(-0.0f), 1.0f);
  CHECK_EQ(one(-infinity), 0.0f);
  CHECK_EQ(one(-87.34f), 0.0f);
  CHECK(one(-0x1.5d589ep+6f) > 0.0f);
  CHECK_EQ(one(infinity), one(88.0f));
  CHECK_EQ(one(1e30f), one(88.0f));
  CHECK(std::isfinite(one(infinity)));
  CHECK(std::isnan(one(std::nanf(""))));

  for (const KernelTable& table : tables()) {
    for (int64_t count = 0; count <= 40; ++count) {
      GuardedBuffer<float> in(count), out(count);
      for (int64_t i = 0; i < count; ++i) in[i] = -float(i);
      table.exp(in.data(), out.data(), count);
      for (int64_t i = 0; i < count; ++i) CHECK(same(out[i], one(in[i])));
    }
  }
  return check_result();
}
