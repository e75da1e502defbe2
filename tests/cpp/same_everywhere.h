// Random operands, and the comparison of every instruction set's kernels with ref's, bit for bit.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "base/half.h"
#include "check.h"
#include "guarded_buffer.h"
#include "kernel_tables.h"

namespace tcim_lite::cpu {
namespace {

std::mt19937 g_random(17);
int uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(g_random); }

template <typename T>
constexpr Elem kElem = sizeof(T) == 2 ? kF16 : kF32;

const char* name_of(Elem elem) { return elem == kF16 ? "fp16" : "fp32"; }

// Numbers of every size that matters: near 0, around the limits of the functions, large; no NaN, whose payload is free.
float any_number() {
  const float sign = uniform(0, 1) ? 1.0f : -1.0f;
  switch (uniform(0, 7)) {
    case 0:
      return sign * 0.0f;
    case 1:
      return sign * std::ldexp(1.0f + float(uniform(0, 1023)) / 1024, uniform(-27, 15));
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

}  // namespace
}  // namespace tcim_lite::cpu
