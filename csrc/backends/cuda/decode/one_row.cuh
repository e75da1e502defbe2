// A single row of a Linear as its tensor cores take it: each warp takes the inputs that it multiplies from the
// mail, normalises and quantises them, and leaves them in shared memory.
#pragma once

#include "backends/cuda/decode/mail.cuh"
#include "backends/cuda/decode/ring.cuh"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda::decode {

// Of a group of the row, for products by columns.
struct alignas(16) GroupFactors {
  float scale, of_codes;  // the group's; the same for sums of 4-bit codes times 16
  int bias;               // 8 times the sum of its codes
  int unused;
};

template <typename Shape>
class OneRow {
  static constexpr bool kHalf = Shape::kHalf;

 public:
  // A group of 64 inputs in their order, as fp16 or codes, then a scale. With 4-bit weights words 1 and 2 of four are
  // exchanged, and GroupFactors follow.
  static constexpr int kPartBytes = 64, kScales = kHalf ? 128 : 64, kGroupBytes = kScales + 16;
  static constexpr int kPiece = Shape::kWidest / 64 / Shape::kWarps;  // groups of a warp; all are there at once
  static constexpr int kBytes = kPiece * kGroupBytes;                 // of a warp
  static constexpr int kNormFloats = 0;

  // As SeveralRows, which has several rows and needs room for the norm.
  __device__ __forceinline__ OneRow(const LinearPhase& linear, const Handover<Shape>& handover, int /*rows*/,
                                    char* area, float* /*norm*/)
      : linear_(linear),
        handover_(handover),
        area_(area),
        begin_(share_begin<Shape>(linear.inputs / 64, threadIdx.x / 32)),
        end_(share_begin<Shape>(linear.inputs / 64, threadIdx.x / 32 + 1)) {
    if (!combines()) return;
    const int groups = linear.inputs / 64;
    const ExpertShare share = expert_share<Shape>(groups, linear.chosen, threadIdx.x / 32);
    begin_ = share.rank * groups + share.begin;
    end_ = share.rank * groups + share.end;
  }

  __device__ __forceinline__ int begin() const { return begin_; }
  __device__ __forceinline__ int end() const { return end_; }
  __device__ __forceinline__ bool in_pieces() const { return false; }
  __device__ __forceinline__ void take_piece(int) {}
  __device__ __forceinline__ const char* groups() const { return area_; }

  // All warps. scratch: [kWarps]. What each phase does once should take few instructions: as many lanes as there
  // are share a group. Whoever takes mail calls `meanwhile(false)` when it has asked for it, and `meanwhile(true)` once
  // if it is missing then.
  template <typename Meanwhile>
  __device__ __forceinline__ void start(float* scratch, const Meanwhile& meanwhile) {
    const int groups = (linear_.inputs / 64 + Shape::kWarps - 1) / Shape::kWarps;  // the most that a warp has
    if (combines()) {
      prepare<8, kPiece / 4>(scratch, meanwhile);
    } else if (groups <= 1) {
      prepare<32>(scratch, meanwhile);
    } else if (groups <= 2) {
      prepare<16>(scratch, meanwhile);
    } else {
      prepare<8, kMostPasses>(scratch, meanwhile);
    }
    __syncwarp();
  }

 private:
  // Of four groups, where a warp has more than two; with experts, those of their sum apart.
  static constexpr int kMostPasses = (Shape::kExperts ? kFewInputs / 64 / Shape::kWarps : kPiece) / 4;

  __device__ static int lane() { return int(threadIdx.x % 32u); }
  // The row has the inputs of each expert.
  __device__ __forceinline__ bool combines() const { return Shape::kExperts && linear_.combines; }

  // By `Lanes` lanes a group: lane l of them has words l of a group (two values each), or 2 l and 2 l + 1, and of 8
  // lanes those 16 further on as well.
  template <int Lanes, int kPasses = 1, typename Meanwhile>
  __device__ __forceinline__ void prepare(float* scratch, const Meanwhile& meanwhile) {
    constexpr int kWords = 32 / Lanes, kAtOnce = 32 / Lanes;
    constexpr bool kCombines = kPasses > kMostPasses;  // has neither norm nor mail
    const bool norm = !kCombines && linear_.norm_weight != nullptr;
    float2 weight[kWords] = {};
    if (norm && begin_ < end_) load_weights<Lanes>(0, weight);
    uint32_t kept[kPasses][kWords] = {};
    take<Lanes>(kept, !kCombines && handover_.mailed(), meanwhile);
    float inverse = 1;
    if (norm) {
      float sum = 0;
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        if (begin_ + pass * kAtOnce >= end_) break;
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
          const float2 two = halves(kept[pass][i]);
          sum = fmaf(two.x, two.x, sum);
          sum = fmaf(two.y, two.y, sum);
        }
      }
      inverse = find_inverse(sum, scratch);
    }
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      if (begin_ + pass * kAtOnce >= end_) break;
      if (norm) {
        if (pass > 0) load_weights<Lanes>(pass, weight);
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
          const float2 two = halves(kept[pass][i]);
          kept[pass][i] = packed(two.x * inverse * weight[i].x, two.y * inverse * weight[i].y);
        }
      }
      put<Lanes>(pass, kept[pass]);
    }
  }

  template <int Lanes>
  __device__ __forceinline__ int group_of(int pass) const {
    return begin_ + pass * (32 / Lanes) + lane() / Lanes;
  }
  // The lane's word `i` in a group.
  template <int Lanes>
  __device__ static int word_in_group(int i) {
    return Lanes == 32 ? lane() : lane() % Lanes * 2 + i % 2 + i / 2 * 16;
  }
  // The same from the row's begin on; lanes beyond the last group repeat it.
  template <int Lanes>
  __device__ __forceinline__ int word_of(int pass, int i) const {
    return min(group_of<Lanes>(pass), end_ - 1) * 32 + word_in_group<Lanes>(i);
  }

  template <int Lanes>
  __device__ __forceinline__ void load_weights(int pass, float2 (&weight)[32 / Lanes]) const {
    const float* const from = linear_.norm_weight;
    if constexpr (Lanes == 32) {
      weight[0] = __ldg(reinterpret_cast<const float2*>(from) + word_of<Lanes>(pass, 0));
    } else {
#pragma unroll
      for (int i = 0; i < 32 / Lanes; i += 2) {
        const float4 four = __ldg(reinterpret_cast<const float4*>(from + 2 * word_of<Lanes>(pass, i)));
        weight[i] = make_float2(four.x, four.y);
        weight[i + 1] = make_float2(four.z, four.w);
      }
    }
  }

  // Waits for what is mailed. Lanes without a group have zeros.
  template <int Lanes, int Passes, typename Meanwhile>
  __device__ __forceinline__ void take(uint32_t (&kept)[Passes][32 / Lanes], bool mailed,
                                       const Meanwhile& meanwhile) const {
    constexpr int kWords = 32 / Lanes;
    if (mailed) return take_mail<Lanes>(kept, meanwhile);
    const auto* x = static_cast<const uint32_t*>(linear_.x);
#pragma unroll
    for (int pass = 0; pass < Passes; ++pass) {
      if (begin_ + pass * kWords >= end_) break;
#pragma unroll
      for (int i = 0; i < kWords; i += 2) {
        const int word = word_of<Lanes>(pass, i);
        if constexpr (kWords == 1) {
          kept[pass][i] = __ldcg(x + word);
        } else {
          const uint2 two = __ldcg(reinterpret_cast<const uint2*>(x + word));
          kept[pass][i] = two.x, kept[pass][(i + 1) % kWords] = two.y;
        }
      }
      if (group_of<Lanes>(pass) < end_) continue;
#pragma unroll
      for (int i = 0; i < kWords; ++i) kept[pass][i] = 0;
    }
  }
  // All words are asked for before the first is looked at, because the L2 takes long to answer.
  template <int Lanes, int Passes, typename Meanwhile>
  __device__ __forceinline__ void take_mail(uint32_t (&kept)[Passes][32 / Lanes], const Meanwhile& meanwhile) const {
    constexpr int kWords = 32 / Lanes;
    const int first = group_of<Lanes>(0), left = end_ - first;
    const Mail mail{handover_.x().words + first * 32 + word_in_group<Lanes>(0), handover_.x().tag};
    bool here;
    for (bool again = false;; again = true) {
      uint64_t words[Passes][kWords + kWords % 2];
#pragma unroll
      for (int pass = 0; pass < Passes; ++pass) {
#pragma unroll
        for (int i = 0; i < kWords; i += 2) {
          words[pass][i] = words[pass][i + 1 - kWords % 2] = uint64_t(mail.tag) << 32;
          if (pass * kWords >= left) continue;
          const int at = pass * kWords * 32 + i / 2 * 16;
          if constexpr (kWords == 1) {
            words[pass][i] = mail.peek(at);
          } else {
            mail.peek(at, *reinterpret_cast<uint64_t (*)[2]>(&words[pass][i]));
          }
        }
      }
      if (!again) meanwhile(false);
      here = true;
#pragma unroll
      for (int pass = 0; pass < Passes; ++pass) {
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
          here &= mail.is_here(words[pass][i]);
          kept[pass][i] = uint32_t(words[pass][i]);
        }
      }
      if (__all_sync(0xffffffffu, here)) break;
      if (!again) meanwhile(true);
    }
  }

  // 1 / root of the row's mean square.
  __device__ __forceinline__ float find_inverse(float sum, float* scratch) const {
    sum = warp_sum(sum);
    if (lane() == 0) scratch[threadIdx.x / 32] = sum;
    sync_warps<Shape>();
    constexpr int kEach = Shape::kWarps / 4;
    const float* mine = scratch + lane() % 4 * kEach;
    sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum += mine[i];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    return inverse_root(fmaf(sum, linear_.inverse_inputs, linear_.epsilon));
  }

  template <int Lanes>
  __device__ __forceinline__ void put(int pass, const uint32_t (&values)[32 / Lanes]) {
    constexpr int kWords = 32 / Lanes;
    const bool there = group_of<Lanes>(pass) < end_;
    char* const group = area_ + (group_of<Lanes>(pass) - begin_) * kGroupBytes;
    if constexpr (kHalf) {
      if (!there) return;
      if constexpr (kWords == 1) {
        reinterpret_cast<uint32_t*>(group)[word_in_group<Lanes>(0)] = values[0];
      } else {
#pragma unroll
        for (int i = 0; i < kWords; i += 2)
          *reinterpret_cast<uint2*>(group + 4 * word_in_group<Lanes>(i)) = make_uint2(values[i], values[i + 1]);
      }
    } else {
      uint32_t codes[(kWords + 1) / 2];
      const float scale = quantize_words<Lanes>(values, codes);
      GroupFactors factors{scale, activation_scale<Shape::kFormat>(scale), 0, 0};
      if constexpr (Shape::kColumns) {
#pragma unroll
        for (const uint32_t four : codes) factors.bias = __dp4a(int(four), 0x08080808, factors.bias);
#pragma unroll
        for (int other = 1; other < Lanes; other *= 2)
          factors.bias += __shfl_xor_sync(0xffffffffu, factors.bias, other);
      }
      if (!there) return;
      if constexpr (kWords == 1) {
        reinterpret_cast<uint16_t*>(group + place_of(lane() / 2))[lane() % 2] = uint16_t(codes[0]);
      } else {
#pragma unroll
        for (int i = 0; i < kWords; i += 2)
          *reinterpret_cast<uint32_t*>(group + place_of(word_in_group<Lanes>(i) / 2)) = codes[i / 2];
      }
      if (lane() % Lanes != 0) return;
      if constexpr (Shape::kColumns) {
        *reinterpret_cast<GroupFactors*>(group + kScales) = factors;
      } else {
        *reinterpret_cast<float*>(group + kScales) = factors.of_codes;
      }
    }
  }

  // Where a group has its four codes number `word`.
  __device__ static int place_of(int word) {
    if (Shape::kColumns) word = (word & ~3) | (word & 1) << 1 | (word & 2) >> 1;
    return 4 * word;
  }
  __device__ static float2 halves(uint32_t word) { return __half22float2(*reinterpret_cast<const __half2*>(&word)); }
  // To the quantiser an infinity is what 65504 is.
  __device__ static uint32_t packed(float low, float high) {
    __half2 both = __floats2half2_rn(low, high);
    if (kHalf) both = __hmax2_nan(__hmin2_nan(both, __float2half2_rn(65504.0f)), __float2half2_rn(-65504.0f));
    return *reinterpret_cast<const uint32_t*>(&both);
  }

  const LinearPhase& linear_;
  const Handover<Shape>& handover_;
  char* const area_;
  int begin_, end_;
};

}  // namespace tcim_lite::cuda::decode
