// Attention kernels: every instruction set against ref bit for bit, and ref against softmax in double.
#include <bit>
#include <cmath>
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

std::mt19937 g_random(13);
int uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(g_random); }
// From a table, because drawing them would take longer than the kernels.
float normal() {
  static const std::vector<float> drawn = [] {
    std::vector<float> values(65521);
    std::normal_distribution<float> distribution;
    for (float& value : values) value = distribution(g_random);
    return values;
  }();
  static size_t next = 0;
  return drawn[next++ % drawn.size()];
}

// NaN and infinities too.
template <typename T>
T exactly(float value) {
  if constexpr (sizeof(T) == 2)
    return std::isnan(value) ? 0x7e00 : value > 0 ? 0x7c00 : 0xfc00;
  else
    return value;
}
float from(uint16_t value) { return half_to_float(value); }
float from(float value) { return value; }
template <typename T>
constexpr Elem kElem = sizeof(T) == 2 ? kF16 : kF32;

struct Result {
  GuardedBuffer<float> m, l, o;
  Result(int64_t rows, int64_t dim) : m(rows), l(rows), o(rows * dim) {}
  bool same_bytes(const Result& other) const {
    return m.same_bytes(other.m) && l.same_bytes(other.l) && o.same_bytes(other.o);
  }
};

// The kinds of input: usual; scores that vanish in the softmax; zeros of both signs and subnormals, where a sum can be
// -0. MinusZero: every product underflows to -0, so every score is -0 and m must still be +0.
enum class Values { Usual, Far, Tiny, MinusZero };

float value(Values values) {
  switch (values) {
    case Values::Usual:
      return normal();
    case Values::Far:
      return 8.0f * normal();
    case Values::MinusZero:
      return 0x1p-24f;
    case Values::Tiny:
      break;
  }
  const int kind = uniform(0, 3);
  return kind == 0 ? -0.0f : kind == 1 ? 0.0f : (kind == 2 ? -1.0f : 1.0f) * std::ldexp(1.0f, uniform(-24, -15));
}

// Row r sees `window` keys before keys[r]; 0: all. With hidden_poison the rows of K and V that only the last row sees
// hold NaN, and with a window those that no row sees. With `masked` every row sees all keys, with a mask on the scores,
// which a softcap caps before.
template <typename T>
void check_block(int64_t rows, int64_t dim, int64_t most_keys, int64_t heads_per_token, Values values,
                 bool hidden_poison, int64_t window = 0, bool masked = false, float softcap = 0) {
  const GuardedBuffer<float> q(rows * dim);
  const GuardedBuffer<T> k(most_keys * dim), v(most_keys * dim);
  const GuardedBuffer<int32_t> keys(rows), begins(rows);
  const GuardedBuffer<float> mask(most_keys);
  constexpr float kMasks[] = {0.0f, -1.5f, 2.25f, -65504.0f};
  for (float& x : mask) x = masked ? kMasks[uniform(0, 3)] : 0.0f;
  if (masked) mask[0] = 0;
  for (float& x : q) {
    x = value(values);
    if (values == Values::Tiny)
      x *= 0x1p-110f;
    else if (values == Values::MinusZero)
      x *= -0x1p-110f;
    else
      x /= std::sqrt(float(dim)) * (softcap > 0 ? softcap : 1.0f);
  }
  for (T& x : k) x = to<T>(value(values));
  for (T& x : v) x = to<T>(value(values));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t tokens_after = (rows - 1) / heads_per_token - row / heads_per_token;
    keys[row] = masked ? int32_t(most_keys) : int32_t(std::max<int64_t>(1, most_keys - tokens_after));
    begins[row] = window == 0 ? 0 : int32_t(std::max<int64_t>(0, keys[row] - window));
  }
  for (int64_t i = 0; i < begins[0] * dim; ++i) k[i] = v[i] = to<T>(std::nanf(""));
  if (hidden_poison && keys[0] < most_keys) {
    for (int64_t i = (most_keys - 1) * dim; i < most_keys * dim; ++i) {
      k[i] = to<T>(std::nanf(""));
      v[i] = to<T>(std::nanf(""));
    }
  }
  const std::vector<KernelTable>& all = tables();
  const Result expected(rows, dim);
  for (const KernelTable& table : all) {
    const Result own(rows, dim);
    const Result& result = &table == &all[0] ? expected : own;
    const GuardedBuffer<float> scores(rows * kAttentionBlock);
    int64_t used = rows;
    while (hidden_poison && used > 1 && keys[used - 1] == most_keys) --used;  // the rows that must not see the NaN
    const bool finite = table.attention_block[kElem<T>](
        {q.data(), k.data(), v.data(), keys.data(), result.m.data(), result.l.data(), result.o.data(), scores.data(),
         rows, dim, window == 0 ? nullptr : begins.data(), masked ? mask.data() : nullptr, nullptr, softcap});
    if (!finite) report_failure(__FILE__, __LINE__, concat("what row 0 sees is finite, also on ", table.isa));
    if (hidden_poison) {
      for (int64_t i = 0; i < used * dim; ++i) {
        if (std::bit_cast<uint32_t>(result.o[i]) != std::bit_cast<uint32_t>(expected.o[i]) ||
            (keys[0] < most_keys && std::isnan(result.o[i]))) {
          report_failure(__FILE__, __LINE__, concat("hidden NaN leaks on ", table.isa));
          break;
        }
      }
    } else if (!result.same_bytes(expected)) {
      report_failure(
          __FILE__, __LINE__,
          concat("attention_block on ", table.isa, ": rows ", rows, ", dim ", dim, ", keys ", most_keys, ", window ",
                 window, ", masked ", masked, ", softcap ", softcap, ", T ", sizeof(T), ", values ", int(values)));
    }
  }
  if (values == Values::MinusZero) CHECK_EQ(std::bit_cast<uint32_t>(expected.m[0]), 0u);
  if (hidden_poison || values == Values::Tiny || values == Values::MinusZero) return;
  // Softmax in double for the last row.
  const int64_t row = rows - 1;
  std::vector<double> p(most_keys);
  double high = -1e300, sum = 0;
  for (int64_t key = begins[row]; key < keys[row]; ++key) {
    for (int64_t d = 0; d < dim; ++d) p[key] += double(q[row * dim + d]) * from(k[key * dim + d]);
    if (softcap > 0) p[key] = softcap * std::tanh(p[key]);
    p[key] += mask[key];
    high = std::max(high, p[key]);
  }
  for (int64_t key = begins[row]; key < keys[row]; ++key) sum += p[key] = std::exp(p[key] - high);
  CHECK(std::fabs(expected.m[row] - high) <= 1e-5 * (1 + std::fabs(high)));
  CHECK(std::fabs(expected.l[row] - sum) <= 3e-4 * sum);
  for (int64_t d = 0; d < dim; ++d) {
    double o = 0, size = 0;
    for (int64_t key = begins[row]; key < keys[row]; ++key) {
      o += p[key] * from(v[key * dim + d]);
      size += p[key] * std::fabs(from(v[key * dim + d]));
    }
    CHECK(std::fabs(expected.o[row * dim + d] - o) <= 3e-4 * size + 1e-30);
  }
}

// One element of a row of K or V that row 0 sees is NaN or infinite.
template <typename T>
void check_odd_row(int64_t rows, int64_t dim, int64_t most_keys) {
  const GuardedBuffer<float> q(rows * dim);
  const GuardedBuffer<T> k(most_keys * dim), v(most_keys * dim);
  const GuardedBuffer<int32_t> keys(rows);
  for (float& x : q) x = normal();
  for (T& x : k) x = to<T>(normal());
  for (T& x : v) x = to<T>(normal());
  for (int64_t row = 0; row < rows; ++row) keys[row] = int32_t(std::max<int64_t>(1, most_keys - (rows - 1 - row)));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const T odds[] = {exactly<T>(std::nanf("")), exactly<T>(kInfinity), exactly<T>(-kInfinity)};
  const bool in_keys = uniform(0, 1) == 1;
  T& place = (in_keys ? k : v)[uniform(0, keys[0] - 1) * dim + uniform(0, int(dim) - 1)];
  place = odds[uniform(0, 2)];
  const Result result(rows, dim);
  const GuardedBuffer<float> scores(rows * kAttentionBlock);
  for (const KernelTable& table : tables()) {
    if (table.attention_block[kElem<T>]({q.data(), k.data(), v.data(), keys.data(), result.m.data(), result.l.data(),
                                         result.o.data(), scores.data(), rows, dim}))
      report_failure(__FILE__, __LINE__,
                     concat(from(place), " in ", in_keys ? "K" : "V", " goes unnoticed on ", table.isa, ": rows ", rows,
                            ", dim ", dim, ", keys ", most_keys));
  }
}

template <typename T>
void check_merge_and_finish(int64_t rows, int64_t dim) {
  const Result earlier(rows, dim), later(rows, dim);
  for (int64_t row = 0; row < rows; ++row) {
    earlier.m[row] = 4 * normal();
    later.m[row] = uniform(0, 3) ? 4 * normal() : earlier.m[row] + (uniform(0, 1) ? 200.0f : -200.0f);
    earlier.l[row] = 1 + std::fabs(normal());
    later.l[row] = 1 + std::fabs(normal());
  }
  for (float& x : earlier.o) x = normal();
  for (float& x : later.o) x = normal();
  const std::vector<KernelTable>& all = tables();
  const Result expected(rows, dim);
  const int64_t stride = dim + uniform(0, 5);
  const GuardedBuffer<T> expected_y((rows - 1) * stride + dim);
  for (const KernelTable& table : all) {
    const Result own(rows, dim);
    const GuardedBuffer<T> own_y(expected_y.size());
    const bool ref = &table == &all[0];
    const Result& running = ref ? expected : own;
    const GuardedBuffer<T>& y = ref ? expected_y : own_y;
    std::copy(earlier.m.begin(), earlier.m.end(), running.m.data());
    std::copy(earlier.l.begin(), earlier.l.end(), running.l.data());
    std::copy(earlier.o.begin(), earlier.o.end(), running.o.data());
    table.attention_merge({running.m.data(), running.l.data(), running.o.data(), later.m.data(), later.l.data(),
                           later.o.data(), rows, dim});
    table.attention_finish[kElem<T>]({running.l.data(), running.o.data(), y.data(), rows, dim, stride});
    if (!running.same_bytes(expected))
      report_failure(__FILE__, __LINE__, concat("attention_merge on ", table.isa, ", dim ", dim));
    if (!y.same_bytes(expected_y))
      report_failure(__FILE__, __LINE__, concat("attention_finish on ", table.isa, ", dim ", dim));
  }
  for (int64_t row = 0; row < rows; ++row) {
    const double m = std::max(earlier.m[row], later.m[row]);
    const double a = std::exp(earlier.m[row] - m), b = std::exp(later.m[row] - m);
    CHECK_EQ(double(expected.m[row]), m);
    CHECK(std::fabs(expected.l[row] - (earlier.l[row] * a + later.l[row] * b)) < 1e-5 * expected.l[row]);
    for (int64_t d = 0; d < dim; ++d) {
      const int64_t i = row * dim + d;
      const double o = earlier.o[i] * a + later.o[i] * b;
      CHECK(std::fabs(expected.o[i] - o) < 1e-5 * (std::fabs(earlier.o[i]) * a + std::fabs(later.o[i]) * b) + 1e-30);
      CHECK_EQ(from(expected_y[row * stride + d]), from(to<T>(expected.o[i] / expected.l[row])));
    }
  }
}

using Sizes = std::vector<int64_t>;

template <typename T>
void check_all(bool quick) {
  for (const int64_t dim : quick ? Sizes{6, 23, 64, 80} : Sizes{2, 6, 23, 64, 80, 96, 128, 256, 300}) {
    for (const int64_t keys : quick ? Sizes{1, 15, 34} : Sizes{1, 2, 15, 16, 17, 100, 255, 256}) {
      for (const int64_t rows : {1, 2, 3, 4, 7, 17, 35}) check_block<T>(rows, dim, keys, 2, Values::Usual, false);
      check_block<T>(5, dim, keys, 1, Values::Far, false);
      check_block<T>(8, dim, keys, 3, Values::Tiny, false);
      check_block<T>(5, dim, keys, 2, Values::MinusZero, false);
      for (const int64_t rows : {7, 37}) check_block<T>(rows, dim, keys, 2, Values::Usual, true);
      for (const int64_t rows : {1, 3, 8, 23, 34}) check_block<T>(rows, dim, keys, 2, Values::Usual, false, 0, true);
      for (const int64_t rows : {1, 7, 35}) {
        check_block<T>(rows, dim, keys, 2, Values::Usual, false, 13, false, 2.5f);
        check_block<T>(rows, dim, keys, 2, Values::Far, false, 0, true, 20.0f);
      }
      check_block<T>(8, dim, keys, 3, Values::Tiny, false, 0, false, 2.5f);
      for (const int64_t window : {1, 2, 13, 90, 255}) {
        for (const int64_t rows : {1, 4, 7, 23}) check_block<T>(rows, dim, keys, 1, Values::Usual, false, window);
        check_block<T>(38, dim, keys, 3, Values::Usual, false, window);
      }
      for (const int64_t rows : {1, 2, 5, 17, 33}) check_odd_row<T>(rows, dim, keys);
    }
    for (const int64_t rows : {1, 5}) check_merge_and_finish<T>(rows, dim);
  }
  check_block<T>(150, 64, 256, 2, Values::Usual, false);  // more rows than those for which K and V are widened once
  for (int64_t keys = 1; keys <= 256; keys += quick ? 85 : 1) check_block<T>(6, 64, keys, 2, Values::Usual, false);
}

}  // namespace

// With an argument: fewer sizes, for emulators.
int main(int argc, char**) {
  check_all<uint16_t>(argc > 1);
  check_all<float>(argc > 1);
  return check_result();
}
