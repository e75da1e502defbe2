// What the kernels of quantised and float weights share on x86: unrolling, and what they fetch ahead. Everything has
// internal linkage.
#pragma once

#include <immintrin.h>

#include "backends/cpu/kernels/linear/linear_tile.h"

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

// Stops gcc 12 from postponing the additions or repeating the unpacking, either of which makes it run out of registers.
template <typename Ints>
inline void settle(Ints& value) {
  __asm__("" : "+v"(value));
}

// sum + products of unsigned codes, in two instructions: gcc 12 would add products up among themselves first and spill.
template <typename Ints>
inline void add_products(Ints& sum, Ints codes, Ints a) {
  Ints products;
  __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+v"(sum), "=&v"(products) : "v"(codes), "v"(a));
}

// Of a stream that is read line by line, the line to fetch while that at `p` is read: eight pages of 4 KiB are fetched
// abreast while the eight before them are read, each line once. The prefetchers of a core follow a page to its end, and
// several pages at a time, so they keep more lines under way than with one page after the other
// (benchmarks/notes/log/cpu-avx2-neon.md).
inline const char* line_of_next_pages(const uint8_t* p) {
  constexpr uintptr_t kPages = 8, kPageLines = 4096 / kLineBytes, kLines = kPages * kPageLines;
  const uintptr_t line = reinterpret_cast<uintptr_t>(p) / kLineBytes, in_pages = line % kLines;
  const uintptr_t turned = in_pages % kPages * kPageLines + in_pages / kPages;
  return reinterpret_cast<const char*>((line - in_pages + kLines + turned) * kLineBytes);
}

// Bytes ahead: `far` into the second cache, `near` from there, or from memory, into the first; 0: not at all.
struct Distance {
  int64_t far = 0, near = 0;

  bool operator==(const Distance&) const = default;
};
constexpr Distance kPagesAhead{-1, 0};  // in place of bytes: the line of line_of_next_pages()

// Always inline: gcc 12 drops calls to a function that only fetches, because it changes nothing.
template <Distance By>
__attribute__((always_inline)) inline void prefetch(const uint8_t* p) {
  if constexpr (By.far == kPagesAhead.far) _mm_prefetch(line_of_next_pages(p), _MM_HINT_T1);
  if constexpr (By.far > 0) _mm_prefetch(reinterpret_cast<const char*>(p + By.far), _MM_HINT_T1);
  if constexpr (By.near > 0) _mm_prefetch(reinterpret_cast<const char*>(p + By.near), _MM_HINT_T0);
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
template <typename Format, Distance By>
void prefetch_scales(const uint8_t* scales, int64_t block_stride) {
  if constexpr (Format::kScalesBehindBlock) {
    _mm_prefetch(reinterpret_cast<const char*>(scales + block_stride), _MM_HINT_T1);
  } else {
    prefetch<By>(scales);
  }
}

// Fetches codes ahead of run `run` of a group, where a line begins. Behind it stays what is there in the source: gcc 12
// would fetch the lines of a group in a burst, in which they wait for one another.
template <typename Format, Distance By>
__attribute__((always_inline)) inline void fetch_codes(const uint8_t* weights, int run) {
  constexpr int kRuns = int(Format::kInputs / 4);
  if (By == Distance{} || run % (kRuns / Format::kLines) != 0) return;
  prefetch<By>(weights + 64 * (run * Format::kLines / kRuns));
  __asm__ volatile("");
}

// The codes that all tiles take next, fetched in equal parts, one in front of each group of a tile: a burst in front of
// each tile would wait for the lines under way.
struct Ahead {
  static constexpr bool kByStep = false;  // else in parts of groups

  __attribute__((always_inline)) void fetch() {
    for (int64_t line = 0; line < lines; ++line, at += kLineBytes)
      _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
  }

  const uint8_t* at;
  int64_t lines;  // of a part
};

// All rows of `count` blocks at a time in tiles of at most `most` rows while the codes of the next blocks are fetched:
// behind the last ones lie often those of the next call. tile(row, rows, block, Ahead) returns where fetches go on.
// few() takes blocks that are left over, or do not fit.
template <typename Format, typename Tile, typename Fit, typename Few>
void run_tiles_ahead(const LinearQuantArgs& args, int64_t count, int64_t most, const Tile& tile, const Fit& fit,
                     const Few& few) {
  const int64_t parts = (args.rows + most - 1) / most * args.groups * Format::kParts;
  const int64_t lines = count * args.block_stride / kLineBytes;
  for (int64_t block = 0; block < args.blocks; block += count) {
    const int64_t left = args.blocks - block;
    if (left < count || !fit(block)) {
      few(some_blocks(args, block, left < count ? left : count));
      continue;
    }
    Ahead ahead{args.weights + (block + count) * args.block_stride, (lines + parts - 1) / parts};
    for_tiles(args.rows, most, [&](int64_t row, int64_t rows) { ahead.at = tile(row, rows, block, ahead); });
  }
}

// The product of the scales of weights and activations becomes 0 or infinity where it leaves the range of a float. Sums
// that begin with the scales of rows do not, so they need scales of weights, those of some blocks, that cannot get
// there with any of activations, 2^-30 to 2^10.
template <typename Format>
bool scales_fit(const LinearQuantArgs& args, int64_t block, int64_t blocks) {
  if constexpr (Format::kHalfScales) return true;
  constexpr int kLowest = 30 - 149, kHighest = 127 - 10;
  const int64_t groups = args.groups * Format::kParts;
  __m128i low = _mm_setzero_si128(), high = low;
  for (int64_t b = block; b < block + blocks; ++b) {
    const uint8_t* weights = args.weights + b * args.block_stride;
    for (int64_t group = 0; group < groups; ++group) {
      const auto* at = reinterpret_cast<const __m128i*>(weights + Format::scales_at(groups, group));
      const __m128i exponents = _mm_loadu_si128(at);
      low = _mm_min_epi8(low, exponents);
      high = _mm_max_epi8(high, exponents);
    }
  }
  const __m128i outside =
      _mm_or_si128(_mm_cmplt_epi8(low, _mm_set1_epi8(kLowest)), _mm_cmpgt_epi8(high, _mm_set1_epi8(kHighest)));
  return _mm_movemask_epi8(outside) == 0;
}

}  // namespace
}  // namespace tcim_lite::cpu
