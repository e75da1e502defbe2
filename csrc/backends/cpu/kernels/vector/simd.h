// Sixteen fp32 lanes, the same on every instruction set: the 16 partial sums of docs/numerics.md and the 16 outputs of
// a weight block are one Vec. A kernel file written over this is built once per instruction set.
//
// Everything here and in simd_<isa>.h has internal linkage: of an external inline function the linker keeps one copy
// for all files, and that could be the copy with instructions a CPU lacks. tests/test_kernel_symbols.py looks for such
// symbols.
//
// Each simd_<isa>.h defines
//   Vec, Ints                 16 floats, 16 int32
//   Full, Tail                all 16 lanes of memory, or the first `count` of them (1 to 15; the others load as 0)
//   kSums                     how many Vecs fit the registers as sums beside operands
//   broadcast, load, store    from and to float and fp16 (uint16_t, saturating at 65504); store_bytes narrows Ints
//   store_from                as fp16, 0 where a < limit; a is at most 65504, and limit at least -65504
//   + - * / fma abs           fma is a * b + c with one rounding
//   min, max                  b where a is NaN; of Ints too
//   clamp                     a between low and high; NaN stays
//   zero_where_below          0 where x < limit, else a
//   where_less                a where x < limit, else b
//   whole, sqrt               whole rounds to the nearest whole number, ties to even
//   first_lanes               a in the lanes of a Tail, `others` behind them
//   bits, from_bits, nearest, shift_left   between Vec and Ints; nearest rounds to even
//   powers                    the exponent bits, in place, of what bits() gave
//   to_floats                 exact up to 2^24
//   low_bytes                 four lanes' lowest bytes as one, the first the lowest; load and store take int32_t too
//   round_to_half             one rounding to fp16, kept in fp32
//   round_to_any_half         the same, but infinite beyond 65504
//   first_lane, tree_sum, largest, any_nan   of all lanes; tree_sum adds i with i + 8, + 4, + 2, + 1
//   tree_sums, all_largest    out[n] = tree_sum(sums[n]); out[n] = largest(values[n])
//   transpose                 rows[i] lane j becomes rows[j] lane i, of 16 Vecs
//   prefetch_near, prefetch_far   into the first cache, into the second; may do nothing
//   moved_up, moved_down      lanes one further on, behind the last lane of another Vec; one further down, before its
//   first split                     of 32 lanes in two Vecs, those of even and of odd index
#pragma once

#include "backends/cpu/kernel_table.h"
#include "backends/cpu/kernels/vector/functions_one.h"

#if defined(__AVX512F__)
#include "backends/cpu/kernels/vector/simd_avx512.h"
#elif defined(__AVX2__)
#include "backends/cpu/kernels/vector/simd_avx2.h"
#elif defined(__ARM_NEON)
#include "backends/cpu/kernels/vector/simd_neon.h"
#else
#error "simd.h has no vector header for this instruction set"
#endif

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kLanes = 16;

inline Vec like(Vec, float value) { return broadcast(value); }

// body(i, Full) for every 16 of `count`, then body(i, Tail) for the rest.
template <typename Body>
inline void for_lanes(int64_t count, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, Full{});
  if (i < count) body(i, Tail(count - i));
}

#ifndef TCIM_LITE_SIMD_STORE_FROM
template <typename Lanes>
inline void store_from(uint16_t* p, Vec a, Vec limit, Lanes lanes) {
  store(p, zero_where_below(a, a, limit), lanes);
}
#endif

// Of 16 rows at the addresses row(i), the columns of `lanes`; `turned` has the lanes of a row for each.
template <typename Row, typename Lanes>
inline void load_turned(Row row, Lanes lanes, Vec (&turned)[kLanes]) {
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) turned[i] = load(row(i), lanes);
  transpose(turned);
}

#ifndef TCIM_LITE_SIMD_TURN
// The same to to[column * stride].
template <typename Row>
inline void turn(Row row, float* to, int64_t stride) {
  Vec turned[kLanes];
  load_turned(row, Full{}, turned);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) store(to + i * stride, turned[i]);
}
#endif

// The same of `cols` columns of up to 16 rows. Lanes behind `rows` repeat the last row.
template <typename Row>
inline void turn_rows(int64_t rows, int64_t cols, Row row, float* to, int64_t stride) {
  const auto row_at = [=](int64_t i) { return row(i < rows ? i : rows - 1); };
  int64_t col = 0;
  for (; col + kLanes <= cols; col += kLanes)
    turn([=](int64_t i) { return row_at(i) + col; }, to + col * stride, stride);
  if (col == cols) return;
  Vec turned[kLanes];
  load_turned([=](int64_t i) { return row_at(i) + col; }, Tail(cols - col), turned);
  for (int64_t i = 0; col + i < cols; ++i) store(to + (col + i) * stride, turned[i]);
}

// One rounding to T, kept in fp32.
template <typename T>
inline Vec round_to(Vec a) {
  if constexpr (sizeof(T) == 2) return round_to_half(a);
  return a;
}

// Whether no element is NaN or infinite: of those x - x is NaN, and stays so in a sum.
template <typename T>
inline bool are_finite(const T* x, int64_t count) {
  Vec differences = broadcast(0.0f);
  for_lanes(count, [&](int64_t i, auto lanes) {
    const Vec value = load(x + i, lanes);
    differences = differences + (value - value);
  });
  return !any_nan(differences);
}

// exp_ref of reference/activation.cpp.
inline Vec exp(Vec x) {
  const Vec lowest = broadcast(-0x1.5d589ep+6f), magic = broadcast(0x1.8p+23f);
  const Vec clamped = clamp(x, lowest, broadcast(88.0f));
  const Vec shifted = fma(clamped, broadcast(0x1.715476p+0f), magic);
  const Vec n = shifted - magic;
  Vec r = fma(n, broadcast(-0x1.62e430p-1f), clamped);
  r = fma(n, broadcast(0x1.05c610p-29f), r);
  const Ints power = shift_left<23>(bits(shifted)) + broadcast(int32_t{0x3f800000});
  return zero_where_below(exp_of_rest(r) * from_bits(power), x, lowest);
}

}  // namespace
}  // namespace tcim_lite::cpu
