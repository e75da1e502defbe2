// What the kernels over vpdpbusd share: it takes the stored codes as its unsigned operand and four activations
// broadcast from memory. Everything has internal linkage.
#pragma once

#include <immintrin.h>

#include "backends/cpu/kernels/linear_tile.h"

namespace tcim_lite::cpu {
namespace {

// use(i) for i from 0 on, N times. Inlined, i is a constant before gcc 12 decides what stays in registers: it keeps
// arrays in memory that loops index, unrolled or not. Halves, because one level a step would inline again all that the
// levels below it inlined; one function of i, because one for each i takes the compiler twice the time.
template <int N, int First = 0, typename Use>
__attribute__((always_inline)) inline void unrolled(const Use& use) {
  if constexpr (N == 1) {
    use(First);
  } else {
    unrolled<N / 2, First>(use);
    unrolled<N - N / 2, First + N / 2>(use);
  }
}

inline int32_t four_codes(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof(four));
  return four;
}

// Into the second cache, and from there into the first (benchmarks/notes/log/cpu-kernels.md). Bytes ahead; 0: not at
// all. Always inline: gcc 12 drops calls to a function that only fetches, because it changes nothing.
template <int64_t Far, int64_t Near = 0>
__attribute__((always_inline)) inline void prefetch(const uint8_t* p) {
  if constexpr (Far > 0) _mm_prefetch(reinterpret_cast<const char*>(p + Far), _MM_HINT_T1);
  if constexpr (Near > 0) _mm_prefetch(reinterpret_cast<const char*>(p + Near), _MM_HINT_T0);
}

// Scales behind a block are a stream of their own that the hardware finds too late, so those of the next block are
// fetched one block ahead; this fetches those of the first.
template <typename Format>
void prefetch_first_scales(const LinearQuantArgs& args) {
  if constexpr (Format::kScalesBehindBlock) {
    const uint8_t* scales = args.weights + Format::scales_at(args.groups * Format::kParts, 0);
    for (int64_t at = 0; at < scale_bytes(Format::kLayout, args.groups * kGroup); at += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(scales + at), _MM_HINT_T1);
    }
  }
}

// In the loop over groups: scales that lie among the codes are fetched as these are.
template <typename Format, int64_t Far, int64_t Near = 0>
void prefetch_scales(const uint8_t* scales, int64_t block_stride) {
  if constexpr (Format::kScalesBehindBlock) {
    _mm_prefetch(reinterpret_cast<const char*>(scales + block_stride), _MM_HINT_T1);
  } else {
    prefetch<Far, Near>(scales);
  }
}

// Into the first cache: part `index` of `parts` of `bytes`. Many rows fetch so the codes that they will all take next,
// a part in front of each tile (benchmarks/notes/log/cpu-avx512.md).
__attribute__((always_inline)) inline void prefetch_part(const uint8_t* p, int64_t bytes, int64_t index,
                                                         int64_t parts) {
  const int64_t lines = bytes / kLineBytes;
  for (int64_t line = lines * index / parts; line < lines * (index + 1) / parts; ++line)
    _mm_prefetch(reinterpret_cast<const char*>(p + kLineBytes * line), _MM_HINT_T0);
}

}  // namespace
}  // namespace tcim_lite::cpu
