// Rows of activations become codes of a quantised Linear, in either format (docs/numerics.md section 3).
#include "backends/cpu/kernels/vector/simd.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kGroup = 64;
constexpr int kVecs = kGroup / kLanes;

// The 16 codes of vector `part` of a group, from x * 2^-e.

struct OurFormat {
  static constexpr int kLowest = -30;
  static Ints codes(Vec scaled, int) { return nearest(min(max(scaled, broadcast(-127.0f)), broadcast(127.0f))); }
};

// Adding 1.5 * 2^23 rounds to whole numbers, 1.5 * 2^24 to even ones, both with ties to even.
alignas(64) constexpr float kRounders[kLanes] = {0x1.8p24f, 0x1.8p23f, 0x1.8p24f, 0x1.8p23f, 0x1.8p24f, 0x1.8p23f,
                                                 0x1.8p24f, 0x1.8p23f, 0x1.8p24f, 0x1.8p23f, 0x1.8p24f, 0x1.8p23f,
                                                 0x1.8p24f, 0x1.8p23f, 0x1.8p24f, 0x1.8p23f};
alignas(64) constexpr float kHighest[kLanes] = {126, 127, 126, 127, 126, 127, 126, 127,
                                                126, 127, 126, 127, 126, 127, 126, 127};

struct HiddenExponent {
  static constexpr int kLowest = -20;
  static Ints codes(Vec scaled, int part) {
    const bool some_even = part % 2 != 0;  // elements 16, 18, .. 30 and 48, 50, .. 62
    const Vec rounder = some_even ? load(kRounders) : broadcast(0x1.8p23f);
    const Vec highest = some_even ? load(kHighest) : broadcast(127.0f);
    const Vec rounded = (scaled + rounder) - rounder;
    return nearest(min(max(rounded, broadcast(-128.0f)), highest));
  }
};

constexpr int64_t kTogether = kLanes;  // groups, a lane each when exponents are computed

// One result for each of kTogether vectors, which are made by value_of(group), of `count` groups.
template <typename ValueOf, typename Reduce>
void reduce_groups(int64_t count, float* results, ValueOf value_of, Reduce reduce) {
  for (int64_t first = 0; first < count; first += kSums) {
    Vec values[kSums];
    for (int i = 0; i < kSums; ++i) values[i] = first + i < count ? value_of(first + i) : broadcast(0.0f);
    reduce(values, results + first);
  }
}

// Groups together, because what is computed of a group alone, its largest element and all that follows from it, waits
// for itself most of the time.
template <typename T, typename Format>
void quantize_groups(const T* x, int64_t count, int8_t* codes, float* scales, int32_t* sums) {
  alignas(64) float results[kTogether] = {};
  reduce_groups(
      count, results,
      [&](int64_t group) {
        Vec high = abs(load(x + group * kGroup));
        for (int i = 1; i < kVecs; ++i) high = max(high, abs(load(x + group * kGroup + kLanes * i)));
        return high;
      },
      all_largest);
  const Ints exponents = powers(bits(load(results))) - broadcast(int32_t{6 << 23});
  const Ints scale =
      max(min(exponents, broadcast(int32_t{(127 + 9) << 23})), broadcast(int32_t{(127 + Format::kLowest) << 23}));
  alignas(64) float inverses[kTogether];
  store(inverses, from_bits(broadcast(int32_t{254 << 23}) - scale));
  for_lanes(count, [&](int64_t, auto lanes) { store(scales, from_bits(scale), lanes); });

  reduce_groups(
      count, results,
      [&](int64_t group) {
        const Vec inverse = broadcast(inverses[group]);
        Ints total = broadcast(0);
        for (int i = 0; i < kVecs; ++i) {
          const Ints code = Format::codes(load(x + group * kGroup + kLanes * i) * inverse, i);
          total = total + code;
          store_bytes(codes + group * kGroup + kLanes * i, code);
        }
        return to_floats(total);
      },
      tree_sums);
  for (int64_t group = 0; group < count; ++group) sums[group] = int32_t(results[group]);
}

template <typename T, typename Format>
void quantize(const QuantizeArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    for (int64_t group = 0; group < args.groups; group += kTogether) {
      const int64_t at = row * args.groups + group, left = args.groups - group;
      quantize_groups<T, Format>(x + group * kGroup, left < kTogether ? left : kTogether, args.codes + at * kGroup,
                                 args.scales + at, args.sums + at);
    }
  }
}

}  // namespace

void TCIM_LITE_USE(quantize)(KernelTable& table) {
  enter(table.quantize, quantize<uint16_t, OurFormat>, quantize<float, OurFormat>);
  table.quantize_hidden = quantize<uint16_t, HiddenExponent>;
}

}  // namespace tcim_lite::cpu
