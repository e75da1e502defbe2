// Linear with quantised weights by vpdpbusd, which takes the stored codes as its unsigned operand and four activations
// broadcast from memory, on registers of either width. Lanes run across outputs, so the order of accumulation per
// output is the reference's. Everything has internal linkage.
//
// A set says in V what its registers do:
//   Ints, Floats              a register; load(p, count) reads the first lanes, add_products is vpdpbusd of any format
//   kOutputs                  floats in a register, a column of a tile
//   k{Few,Many}{Rows,Columns} of a tile at most
//   kStreamRows               up to here a Linear waits for its weights alone, so its rows are few
//   kRunsTogether             runs of four inputs that are unpacked at once
//   kSets<R>                  sums over which few rows spread the runs, because vpdpbusd takes four or five cycles
//   codes_ahead, scales_ahead how far ahead few rows fetch
//   kLoopedRows               up to which many rows loop over runs, for half the time of the compiler: in a loop gcc 12
//                             stores the sums of more of them at each step
//   hold                      where many rows have the scales of weights
#pragma once

#include "backends/cpu/kernels/linear/linear_x86.h"

namespace tcim_lite::cpu {
namespace {

// What the offset of the stored codes adds to dots with activations of these sums.
template <typename V, typename Format>
typename V::Ints excess(typename V::Ints code_sums) {
  constexpr auto kOffset = unsigned(Format::kLayout.code_offset);
  static_assert((kOffset & (kOffset - 1)) == 0);
  if constexpr (kOffset == 0) return V::all(0);
  return V::template shift_left<kOffset == 0 ? 0 : __builtin_ctz(kOffset)>(code_sums);
}

// R rows, few, of all blocks, C registers of outputs at a time. The fp32 sums are held; those of integers begin at
// -offset * sum(a), which undoes the offset of the stored codes.
template <typename V, typename Format, int R>
__attribute__((noinline)) void few_rows(const LinearQuantArgs& args, int64_t row) {
  using Ints = typename V::Ints;
  using Floats = typename V::Floats;
  constexpr int C = V::kFewColumns, kRuns = int(Format::kInputs / 4), kTogether = V::kRunsTogether;
  constexpr int kSets = V::template kSets<R>;
  // The sums of odd runs may be 16 times the dot, which saves a shift.
  constexpr bool kInPlace = kSets > 1 && Format::kNibbles && !Format::kE2m1;
  const int64_t groups = args.groups * Format::kParts;
  for (int64_t block = 0; block < args.blocks; ++block) {
    const Tile t(args, row, block);
    Floats sums[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) sums[r][c] = V::all(0.0f);
    }
    for (int64_t group = 0; group < groups; ++group) {
      const uint8_t* weights = t.weights + Format::codes_at(group);
      const uint8_t* scales = t.weights + Format::scales_at(groups, group);
      const int8_t* inputs = t.codes + group * Format::kInputs;
      const int64_t part = group / Format::kParts;
      prefetch_scales<Format, V::template scales_ahead<Format, R>()>(scales, args.block_stride);
      Ints dot[kSets][R][C];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Ints start = V::sub(V::all(0), excess<V, Format>(V::all(t.sums[r * t.stride + part])));
        for (int c = 0; c < C; ++c) dot[0][r][c] = start;
#pragma GCC unroll 4
        for (int set = 1; set < kSets; ++set) {
          for (int c = 0; c < C; ++c) dot[set][r][c] = V::all(0);
        }
      }
#pragma GCC unroll 16
      for (int run = 0; run < kRuns; run += kTogether) {
        Ints codes[C][kTogether];
        for (int i = 0; i < kTogether; ++i) fetch_codes<Format, V::template codes_ahead<Format, R>()>(weights, run + i);
        for (int c = 0; c < C; ++c) Format::template unpack<kInPlace>(weights, run, c, codes[c]);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          for (int i = 0; i < kTogether; ++i) {
            const Ints four = V::all(four_codes(inputs + r * t.inputs + 4 * (run + i)));
            for (int c = 0; c < C; ++c) {
              Ints& sum = dot[(run + i) % kSets][r][c];
              sum = V::template add_products<Format>(sum, codes[c][i], four);
            }
          }
        }
      }
      Floats weight_scales[C];
      for (int c = 0; c < C; ++c) weight_scales[c] = Format::scales(scales, c);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Floats row_scale = V::all(t.scales[r * t.stride + part]);
        for (int c = 0; c < C; ++c) {
#pragma GCC unroll 4
          for (int set = 2; set < kSets; ++set) dot[set % 2][r][c] = V::add(dot[set % 2][r][c], dot[set][r][c]);
          Ints sum = dot[0][r][c];
          if constexpr (kSets > 1) sum = V::add(sum, kInPlace ? V::sixteenth(dot[1][r][c]) : dot[1][r][c]);
          sums[r][c] = V::fma(V::to_floats(sum), V::mul(weight_scales[c], row_scale), sums[r][c]);
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) V::store(t.acc + r * t.acc_stride + c * V::kOutputs, sums[r][c]);
    }
  }
}

// What the sums of R rows begin with, and what is taken from them. The scale 2^e of a row need not be multiplied: a sum
// that begins with the bits of the float 1.5 * 2^(23 + e) ends as those of 2^e * (1.5 * 2^23 + dot), because |dot| is
// below 2^22, and one subtraction, which is exact, leaves 2^e * dot.
template <typename V, typename Format, int R>
struct Starts {
  static constexpr int64_t kGroups = 16;  // of activations

  void take(const Tile& t, int64_t begin) {
    for (int r = 0; r < R; ++r) {
      for (int64_t i = 0; i < kGroups && begin + i < t.stride; i += V::kOutputs) {
        const int64_t at = r * t.stride + begin + i, left = t.stride - begin - i;
        const typename V::Floats origin = V::mul(V::load(t.scales + at, left), V::all(1.5f * (1 << 23)));
        V::store(origins[r] + i, origin);
        V::store(bits[r] + i, V::sub(V::bits(origin), excess<V, Format>(V::load(t.sums + at, left))));
      }
    }
  }

  alignas(64) float origins[R][kGroups];
  alignas(64) int32_t bits[R][kGroups];
};

// What a tile fetches where it is the only one of its blocks: lines a short way ahead, a part at each step, and at the
// end of the blocks those of the next. All of the next blocks, as in Ahead, would be fetched in vain at each end of a
// thread's blocks, and be more than the first cache holds.
template <typename Format, int Blocks, int Steps>
struct ShortWay {
  static constexpr bool kByStep = true;
  static constexpr int64_t kGroups = 8;

  __attribute__((always_inline)) void begin_group(const uint8_t* weights, int64_t block_stride, int64_t groups,
                                                  int64_t group) {
    const int64_t then = group + kGroups;
    const uint8_t* blocks = then < groups ? weights : weights + Blocks * block_stride;
    const int64_t there = then < groups ? then : then - groups;
    at = blocks + Format::codes_at(there);
    stride = block_stride;
    // Two groups share a line of scales. Fetched for each, it costs a step of eight slots a tenth
    // (benchmarks/notes/log/batch-and-calls.md).
    const int64_t scales = Format::scales_at(groups, there);
    if (scales % kLineBytes != 0) return;
    for (int b = 0; b < Blocks; ++b) fetch(blocks + b * stride + scales);
  }
  __attribute__((always_inline)) void begin_step(int step) const {
    constexpr int kLines = Format::kLines / Steps;
    for (int b = 0; b < Blocks; ++b) {
      for (int line = 0; line < kLines; ++line) fetch(at + b * stride + (step * kLines + line) * kLineBytes);
    }
  }

  __attribute__((always_inline)) static void fetch(const uint8_t* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }

  const uint8_t* at;
  int64_t stride;
};

// R rows, many, by C registers of outputs: fp32 sums in args.acc, which stays in the first cache. Returns where the
// fetches go on.
template <typename V, typename Format, int R, typename Fetches>
__attribute__((noinline)) const uint8_t* tile_of_many(const LinearQuantArgs& args, int64_t row, int64_t block,
                                                      Fetches ahead) {
  using Ints = typename V::Ints;
  using Floats = typename V::Floats;
  constexpr int C = V::kManyColumns, kRuns = int(Format::kInputs / 4), kTogether = V::kRunsTogether;
  constexpr int kColumns = int(kBlockOutputs) / V::kOutputs;  // of a block
  const Tile t(args, row, block);
  const int64_t groups = args.groups * Format::kParts;
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) V::store(t.acc + r * t.acc_stride + c * V::kOutputs, V::all(0.0f));
  }
  Starts<V, Format, R> starts;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t at = group / Format::kParts % starts.kGroups;
    if (group % (starts.kGroups * Format::kParts) == 0) starts.take(t, group / Format::kParts);
    const uint8_t* weights = t.weights + Format::codes_at(group);
    const uint8_t* scales = t.weights + Format::scales_at(groups, group);
    const int8_t* inputs = t.codes + group * Format::kInputs;
    if constexpr (Fetches::kByStep) {
      ahead.begin_group(t.weights, args.block_stride, groups, group);
    } else {
      ahead.fetch();
    }
    Floats weight_scales[C];
    for (int c = 0; c < C; ++c)
      weight_scales[c] = Format::scales(scales + c / kColumns * args.block_stride, c % kColumns);
    V::hold(weight_scales);
    Ints dot[R][C];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const Ints start = V::all(starts.bits[r][at]);
      for (int c = 0; c < C; ++c) dot[r][c] = start;
    }
    const auto finish = [&](int r) __attribute__((always_inline)) {
      const Floats origin = V::all(starts.origins[r][at]);
      for (int c = 0; c < C; ++c) {
        float* sum = t.acc + r * t.acc_stride + c * V::kOutputs;
        V::store(sum, V::fma(V::sub(V::from_bits(dot[r][c]), origin), weight_scales[c], V::load(sum)));
      }
    };
    // A row is finished behind the products of the next one. If all rows were finished behind the last product, the
    // pipes that multiply would wait (benchmarks/notes/log/cpu-avx512.md).
    const auto add_step = [&](int step) __attribute__((always_inline)) {
      const int run = step * kTogether;
      if constexpr (Fetches::kByStep) ahead.begin_step(step);
      Ints codes[C][kTogether];
      for (int c = 0; c < C; ++c)
        Format::template unpack<false>(weights + c / kColumns * args.block_stride, run, c % kColumns, codes[c]);
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {
        for (int i = 0; i < kTogether; ++i) {
          const Ints four = V::all(four_codes(inputs + r * t.inputs + 4 * (run + i)));
          for (int c = 0; c < C; ++c) dot[r][c] = V::template add_products<Format>(dot[r][c], codes[c][i], four);
        }
        if (run + kTogether == kRuns && r > 0) finish(r - 1);
      }
    };
    if constexpr (R > V::kLoopedRows) {
      unrolled<kRuns / kTogether>(add_step);
    } else {
      for (int step = 0; step < kRuns / kTogether; ++step) add_step(step);
    }
    finish(R - 1);
  }
  return ahead.at;
}

template <typename V, typename Format>
void linear_of_few(const LinearQuantArgs& args) {
  prefetch_first_scales<Format>(args);
  for_tiles(args.rows, V::kFewRows, [&](int64_t row, int64_t rows) {
    with_count<V::kFewRows>(rows, [&](auto count) { few_rows<V, Format, count.value>(args, row); });
  });
}

template <typename V, typename Format>
void linear(const LinearQuantArgs& args) {
  using OfMany = typename V::template FormatOf<Format::kFormat>;  // whose fetches do not depend on the CPU
  if (args.rows <= V::kStreamRows) return linear_of_few<V, Format>(args);
  constexpr int64_t kBlocks = V::kManyColumns * V::kOutputs / kBlockOutputs;
  constexpr int kFewest = V::kManyRows / 2;
  static_assert(V::kStreamRows + 1 >= kFewest);  // then no tile has fewer
  run_tiles_ahead<Format>(
      args, kBlocks, V::kManyRows,
      [&](int64_t row, int64_t rows, int64_t block, Ahead ahead) {
        return with_count<V::kManyRows, kFewest>(
            rows, [&](auto count) { return tile_of_many<V, OfMany, count.value>(args, row, block, ahead); });
      },
      [&](int64_t block) { return scales_fit<Format>(args, block, kBlocks); }, linear_of_few<V, Format>);
}

// Six to eight rows as one tile of many, which takes fewer operations than few rows do.
template <typename V, typename Format>
void linear_of_one_tile(const LinearQuantArgs& args) {
  constexpr int64_t kBlocks = V::kManyColumns * V::kOutputs / kBlockOutputs;
  using Fetches = ShortWay<Format, int(kBlocks), int(Format::kInputs / 4) / V::kRunsTogether>;
  for (int64_t block = 0; block < args.blocks; block += kBlocks) {
    const int64_t left = args.blocks - block;
    if (left < kBlocks) return linear_of_few<V, Format>(some_blocks(args, block, left));
    with_count<8, 6>(args.rows, [&](auto count) { tile_of_many<V, Format, count.value>(args, 0, block, Fetches{}); });
  }
}

}  // namespace
}  // namespace tcim_lite::cpu
