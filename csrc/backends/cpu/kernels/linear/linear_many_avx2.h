// Linear with 4-bit codes on ymm registers, many rows. Zen 3 starts about four vector instructions in a cycle, and that
// bounds it (benchmarks/notes/log/cpu-avx2-neon.md). So the loop over rows has no corrections and few loads: codes are
// unpacked once for all rows as the signed operand of vpmaddubsw, which may lie in memory, and activations are made
// unsigned once for all blocks. Everything has internal linkage.
#pragma once

#include "backends/cpu/kernels/linear/linear_arranged_avx2.h"
#include "backends/cpu/kernels/linear/linear_span.h"

namespace tcim_lite::cpu {
namespace {

constexpr int kTileRows = 3, kTileHalves = 4;  // rows by halves of blocks whose sums are held in registers
constexpr int64_t kRowsOfMany = 128;           // for which codes are unpacked

// Where a group of some halves of blocks has its bytes -code, run by run, what its sums of 16 bits begin with, and its
// scales in fp32.
template <typename Format, int Halves>
struct Unpacked {
  static constexpr int kRuns = int(Format::kInputs / 4);
  static constexpr int64_t kRun = 32 * Halves, kStarts = kRuns * kRun, kScales = kStarts + kRun,
                           kBytes = kScales + kRun;
};

template <typename Format, int Halves>
void unpack(const LinearQuantArgs& args, int64_t block, int64_t begin, int64_t end, uint8_t* to) {
  using To = Unpacked<Format, Halves>;
  const __m256i offset = _mm256_set1_epi8(char(Format::kLayout.code_offset));
  for (int64_t index = begin; index < end; ++index, to += To::kBytes) {
    unrolled<Halves>([&](int half) __attribute__((always_inline)) {
      const uint8_t* weights = args.weights + (block + half / 2) * args.block_stride;
      const uint8_t* codes = weights + Format::codes_at(index);
      __m256i total = _mm256_setzero_si256();
      unrolled<To::kRuns>([&](int run) __attribute__((always_inline)) {
        const __m256i n = _mm256_sub_epi8(offset, Format::stored(codes, run, half % 2));
        total = _mm256_sub_epi8(total, n);
        _mm256_store_si256(reinterpret_cast<__m256i*>(to + run * To::kRun + 32 * half), n);
      });
      const __m256i start = _mm256_slli_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), total), 7);
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + To::kStarts + 32 * half), start);
      const uint8_t* scales = weights + Format::scales_at(args.groups * Format::kParts, index);
      _mm256_store_ps(reinterpret_cast<float*>(to + To::kScales) + 8 * half, Format::scales(scales, half % 2));
    });
  }
}

// sum += products, and sum = start + products. Of every two halves one is read from memory: that saves its load, and
// all of them would be slower.
template <bool Memory>
__attribute__((always_inline)) inline void add_run(__m256i& sum, __m256i a, const __m256i& codes) {
  __m256i products;
  if constexpr (Memory)
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(a), "m"(codes));
  else
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(a), "x"(codes));
}
template <bool Memory>
__attribute__((always_inline)) inline void begin_run(__m256i& sum, __m256i a, const __m256i& codes,
                                                     const __m256i& start) {
  if constexpr (Memory)
    __asm__("vpmaddubsw %2, %1, %0\n\tvpaddw %3, %0, %0" : "=&x"(sum) : "x"(a), "m"(codes), "m"(start));
  else
    __asm__("vpmaddubsw %2, %1, %0\n\tvpaddw %3, %0, %0" : "=&x"(sum) : "x"(a), "x"(codes), "m"(start));
}

// Part `index` of `parts` of `bytes`. Many rows fetch so the codes that they will all take next, a part in front of
// each tile (benchmarks/notes/log/cpu-avx512.md).
template <auto Hint = _MM_HINT_T0>
__attribute__((always_inline)) inline void prefetch_part(const uint8_t* p, int64_t bytes, int64_t index,
                                                         int64_t parts) {
  const int64_t lines = bytes / kLineBytes;
  for (int64_t line = lines * index / parts; line < lines * (index + 1) / parts; ++line)
    _mm_prefetch(reinterpret_cast<const char*>(p + kLineBytes * line), Hint);
}

// Groups [begin, end) of rows [first, first + count).
struct Part {
  int64_t first, count, begin, end;
};

// The arranged rows of a part.
template <typename Format>
struct Rows {
  using Span = ArrangedSpan<Format>;

  Rows(const LinearQuantArgs& args, const Part& part)
      : stride((args.groups * Format::kParts + Span::kGroups - 1) / Span::kGroups * Span::kBytes),
        base(args.arranged + part.first * stride + part.begin / Span::kGroups * Span::kBytes) {}

  Span operator[](int64_t row) const { return Span(const_cast<std::byte*>(base + row * stride)); }

  int64_t stride;
  const std::byte* base;
};

// R rows of a part, from `row` on, and unpacked halves of blocks.
template <typename Format, int R, int Halves>
void tile_of_many(const LinearQuantArgs& args, const Part& part, const Rows<Format>& rows, int64_t row, int64_t block,
                  const uint8_t* unpacked) {
  using From = Unpacked<Format, Halves>;
  using Span = ArrangedSpan<Format>;
  const auto vector = [](const uint8_t* at) -> const __m256i& { return *reinterpret_cast<const __m256i*>(at); };
  float* acc = args.acc + (part.first + row) * args.acc_stride + block * kBlockOutputs;
  const float* row_scales = args.scales + (part.first + row) * args.groups;
  const Span span = rows[row];
  const uint8_t* inputs = span.codes;
  const auto* words = reinterpret_cast<const uint8_t*>(span.words);
  const auto unit_of = [&](int r) { return rows[row + r].unit; };
  alignas(32) float sums[R][Halves][8];
  unrolled<R>([&](int r) __attribute__((always_inline)) {
    const __m256 scale = _mm256_castsi256_ps(_mm256_set1_epi32((254 << 23) - unit_of(r)));
    unrolled<Halves>([&](int half) {
      const float* from = acc + r * args.acc_stride + 8 * half;
      _mm256_store_ps(sums[r][half],
                      part.begin == 0 ? _mm256_setzero_ps() : _mm256_mul_ps(_mm256_load_ps(from), scale));
    });
  });
  for (int64_t index = part.begin; index < part.end; ++index) {
    __m256i dots[R][Halves];
    unrolled<From::kRuns>([&](int run) __attribute__((always_inline)) {
      const uint8_t* codes = unpacked + run * From::kRun;
      __m256i held[Halves / 2];
      unrolled<Halves / 2>([&](int i) __attribute__((always_inline)) { held[i] = vector(codes + 64 * i); });
      unrolled<R>([&](int r) __attribute__((always_inline)) {
        const auto* four = reinterpret_cast<const int8_t*>(inputs + r * rows.stride + 4 * run);
        const __m256i a = _mm256_set1_epi32(four_codes(four));
        unrolled<Halves / 2>([&](int i) __attribute__((always_inline)) {
          const __m256i& other = vector(codes + 64 * i + 32);
          const uint8_t* starts = unpacked + From::kStarts + 64 * i;
          if (run == 0) {
            begin_run<false>(dots[r][2 * i], a, held[i], vector(starts));
            begin_run<true>(dots[r][2 * i + 1], a, other, vector(starts + 32));
          } else {
            add_run<false>(dots[r][2 * i], a, held[i]);
            add_run<true>(dots[r][2 * i + 1], a, other);
          }
        });
      });
    });
    const auto* scales = reinterpret_cast<const float*>(unpacked + From::kScales);
    unrolled<R>([&](int r) __attribute__((always_inline)) {
      const auto* ratio = reinterpret_cast<const int32_t*>(words + r * rows.stride);
      const __m256i word = _mm256_set1_epi32(Span::kScalesInWords ? *ratio : -1);
      unrolled<Halves>([&](int half) __attribute__((always_inline)) {
        __m256 scale = _mm256_load_ps(scales + 8 * half);
        if constexpr (!Span::kScalesInWords)
          scale = _mm256_mul_ps(scale, _mm256_set1_ps(row_scales[r * args.groups + index / Format::kParts]));
        const __m256 dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(dots[r][half], word));
        float* sum = sums[r][half];
        _mm256_store_ps(sum, _mm256_fmadd_ps(dot, scale, _mm256_load_ps(sum)));
      });
    });
    unpacked += From::kBytes, inputs += Format::kInputs, words += 4;
  }
  unrolled<R>([&](int r) __attribute__((always_inline)) {
    const __m256 scale = _mm256_castsi256_ps(_mm256_set1_epi32(unit_of(r)));
    unrolled<Halves>([&](int half) {
      _mm256_store_ps(acc + r * args.acc_stride + 8 * half, _mm256_mul_ps(_mm256_load_ps(sums[r][half]), scale));
    });
  });
}

// One block or two. The codes of the next two are fetched into the second cache: the unpacked ones fill the first. The
// first blocks fetch the rows of the next tile, which another thread may have made.
template <typename Format, int Halves>
void blocks_of_many(const LinearQuantArgs& args, const Part& part, const Rows<Format>& rows, int64_t block) {
  using Span = ArrangedSpan<Format>;
  auto* unpacked = reinterpret_cast<uint8_t*>(args.scratch);
  unpack<Format, Halves>(args, block, part.begin, part.end, unpacked);
  const int64_t bytes = Format::codes_at(Span::kGroups), tiles = (part.count + kTileRows - 1) / kTileRows;
  const uint8_t* next = args.weights + (block + 2) * args.block_stride + Format::codes_at(part.begin);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t row = part.count * tile / tiles, stop = part.count * (tile + 1) / tiles;
    prefetch_part<_MM_HINT_T1>(next, bytes, tile, tiles);
    prefetch_part<_MM_HINT_T1>(next + args.block_stride, bytes, tile, tiles);
    for (int64_t r = 0; block == 0 && r < kTileRows; ++r) prefetch_part(rows[stop + r].codes, Span::kBytes, 0, 1);
    if (stop - row == kTileRows)
      tile_of_many<Format, kTileRows, Halves>(args, part, rows, row, block, unpacked);
    else
      tile_of_many<Format, kTileRows - 1, Halves>(args, part, rows, row, block, unpacked);
  }
}

template <typename Method>
void linear_of_many_nibbles(const LinearQuantArgs& args) {
  using Format = typename Method::Format;
  using Span = ArrangedSpan<Format>;
  const int64_t groups = args.groups * Format::kParts, parts = (args.rows + kRowsOfMany - 1) / kRowsOfMany;
  for (int64_t index = 0; index < parts; ++index) {
    const int64_t first = args.rows * index / parts, count = args.rows * (index + 1) / parts - first;
    for (int64_t begin = 0; begin < groups; begin += Span::kGroups) {
      const Part part{first, count, begin, groups - begin < Span::kGroups ? groups : begin + Span::kGroups};
      const Rows<Format> rows(args, part);
      bool units = true;
      for (int64_t row = 0; row < count; ++row) units &= rows[row].unit != Span::kNoUnit;
      if (!units) {
        rows_from_stored<Method>(args, first, count, begin, part.end);
        continue;
      }
      int64_t block = 0;
      for (; block + 2 <= args.blocks; block += 2) blocks_of_many<Format, kTileHalves>(args, part, rows, block);
      if (block < args.blocks) blocks_of_many<Format, 2>(args, part, rows, block);
    }
  }
}

// From so many rows on.
template <typename Method>
ArrangedKernels arranged_nibbles(int64_t from) {
  using Format = typename Method::Format;
  using Span = ArrangedSpan<Format>;
  constexpr int64_t kScratch = Span::kGroups * Unpacked<Format, kTileHalves>::kBytes;
  return {arrange<Span>, linear_of_many_nibbles<Method>, from, Span::kTaken, Span::kBytes, kScratch};
}

}  // namespace
}  // namespace tcim_lite::cpu
