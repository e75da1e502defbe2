// Random rows with a stride, and the comparison of every instruction set's kernels with ref's, bit for bit.
#pragma once

#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "base/half.h"
#include "check.h"
#include "guarded_buffer.h"
#include "kernel_tables.h"

namespace tcim_lite::cpu {
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

}  // namespace
}  // namespace tcim_lite::cpu
