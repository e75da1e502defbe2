// A Linear as a phase of decode: a block takes tiles of 16 or 32 outputs (with SiLU-mul 16 gates and their ups), its
// warps a share of the inputs each; their sums meet in shared memory.
#pragma once

#include <type_traits>

#include "backends/cuda/decode/one_row.cuh"
#include "backends/cuda/decode/several_rows.cuh"

namespace tcim_lite::cuda::decode {

template <typename Shape>
using LinearInputs = std::conditional_t<Shape::kRows == 1, OneRow<Shape>, SeveralRows<Shape>>;

// acc += the items of 16 outputs and 64 inputs in a chunk of each of a tile's blocks, times the rows' groups from `x`
// on; all kChunk items or, not Full, the first `items`. A single row's sums are in every column alike; of several, lane
// 4 g + t has rows 2 t and 2 t + 1.
template <typename Shape, bool Full, int Blocks>
__device__ __forceinline__ void multiply_chunks(float (*acc)[4], const char* const (&chunks)[Blocks], int items,
                                                const char* x) {
  using Prepared = LinearInputs<Shape>;
  using Stage = RingStage<Shape::kFormat>;
  const int lane = threadIdx.x % 32, t = lane % 4;
  const int at = Shape::kRows == 1 ? 16 * t : 16 * lane;
#pragma unroll
  for (int i = 0; i < Stage::kChunk; ++i) {
    if (!Full && i >= items) break;  // the same for the whole warp
    const char* group = x + i * Prepared::kGroupBytes;
    if constexpr (Shape::kHalf) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 v = *reinterpret_cast<const uint4*>(group + half * Prepared::kPartBytes + at);
#pragma unroll
        for (int block = 0; block < Blocks; ++block) {
          const char* item = chunks[block] + i * Stage::kItem + half * 1024 + lane * 16;
          const uint4 a = *reinterpret_cast<const uint4*>(item), b = *reinterpret_cast<const uint4*>(item + 512);
          mma_half(acc[block], a.x, b.x, a.y, b.y, v.x, v.y);
          mma_half(acc[block], a.z, b.z, a.w, b.w, v.z, v.w);
        }
      }
    } else {
      const uint4 v = *reinterpret_cast<const uint4*>(group + at);
      const auto* scales = reinterpret_cast<const float*>(group + Prepared::kScales);
      const float2 scale =
          Shape::kRows == 1 ? make_float2(scales[0], 0) : *reinterpret_cast<const float2*>(scales + 2 * t);
#pragma unroll
      for (int block = 0; block < Blocks; ++block) {
        // 1.5 * 2^23 plus a dot is a float's bits: cheaper than a conversion.
        int sum[4] = {0x4b400000, 0x4b400000, 0x4b400000, 0x4b400000};
        float low, high;  // scales of outputs g and g + 8
        multiply_item<Shape::kFormat>(sum, low, high, chunks[block] + i * Stage::kItem, v, lane);
        const auto dot = [&](int i) { return __int_as_float(sum[i]) - 12582912.0f; };
        acc[block][0] = fmaf(dot(0), low * scale.x, acc[block][0]);
        acc[block][2] = fmaf(dot(2), high * scale.x, acc[block][2]);
        if constexpr (Shape::kRows > 1) {
          acc[block][1] = fmaf(dot(1), low * scale.y, acc[block][1]);
          acc[block][3] = fmaf(dot(3), high * scale.y, acc[block][3]);
        }
      }
    }
  }
}

// The same of a single row and 4-bit weights, with half of the instructions. As the words of an item lie they are the
// left operand: words 0 and 2 are rows g, words 1 and 3 rows g + 8, of the same outputs but other inputs. So a group of
// the row has two columns of its own, 2 i for the inputs of the former and 2 i + 1 for those of the latter, and is zero
// in all others. Then the dots of a chunk's four groups are one result, of which lane 4 g + t has group t's. With the
// low code's sign inverted a byte is 16 high + low + 8, so low is what is left of its dots without those of 16 high and
// the bias. Each lane leaves sums of its groups alone.
__device__ __forceinline__ uint32_t with_low_bias(uint32_t codes) { return codes ^ 0x08080808u; }
template <typename Shape, bool Full, int Blocks>
__device__ __forceinline__ void multiply_columns(float (*acc)[4], const char* const (&chunks)[Blocks], int items,
                                                 const char* x) {
  using Prepared = LinearInputs<Shape>;
  using Stage = RingStage<Shape::kFormat>;
  static_assert(Stage::kChunk == 4);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint2 own = *reinterpret_cast<const uint2*>(x + g / 2 * Prepared::kGroupBytes + 16 * t + g % 2 * 8);
  int all[Blocks][4] = {}, high[Blocks][4] = {};
#pragma unroll
  for (int i = 0; i < Stage::kChunk; ++i) {
    if (!Full && i >= items) break;  // the same for the whole warp
    const uint2 v = g / 2 == i ? own : make_uint2(0, 0);
#pragma unroll
    for (int block = 0; block < Blocks; ++block) {
      const uint4 a = reinterpret_cast<const uint4*>(chunks[block] + i * Stage::kItem)[lane];
      mma_int8(all[block], with_low_bias(a.x), with_low_bias(a.y), with_low_bias(a.z), with_low_bias(a.w), v.x, v.y);
      mma_int8(high[block], high_codes(a.x), high_codes(a.y), high_codes(a.z), high_codes(a.w), v.x, v.y);
    }
  }
  if (!Full && t >= items) return;
  const auto& factors = *reinterpret_cast<const GroupFactors*>(x + t * Prepared::kGroupBytes + Prepared::kScales);
#pragma unroll
  for (int block = 0; block < Blocks; ++block) {
    const float2 scale =
        __half22float2(*reinterpret_cast<const __half2*>(chunks[block] + t * Stage::kItem + kScalesW4 + 4 * g));
    const int highs = high[block][0] + high[block][3];
    const int lows = all[block][0] + all[block][3] - highs - factors.bias;
    acc[block][0] = fmaf(float(lows), scale.x * factors.scale, acc[block][0]);
    acc[block][2] = fmaf(float(highs), scale.y * factors.of_codes, acc[block][2]);
  }
}

// Sums of a tile: [warp][row] of kSumsWidth, which spreads what a warp writes at once over the banks. A dense single
// row has two such, of which one is read while the next is written; with experts there are as many as warps.
constexpr int kSumsWidth = 32 + 4;
template <typename Shape>
struct TileSums {
  using Tile = float[Shape::kWarps][Shape::kRows][kSumsWidth];
  static constexpr int kBuffers = Shape::kExperts ? Shape::kWarps : Shape::kRows == 1 ? 2 : 1;
  Tile values[kBuffers];
};

// What is added to an output, on its way while the output is computed.
class Residual {
 public:
  template <typename Shape>
  __device__ __forceinline__ void fetch(const LinearPhase& linear, const Handover<Shape>& handover, int row,
                                        int output) {
    if (handover.mails_residual()) {
      word_ = handover.residual().peek(output / 2);
    } else {
      word_ = __ldcg(static_cast<const uint16_t*>(linear.residual) + int64_t(row) * linear.residual_stride + output);
    }
  }
  // Of a lane that fetched.
  template <typename Shape>
  __device__ __forceinline__ float wait(const Handover<Shape>& handover, int output, bool fetched) const {
    uint64_t word = word_;
    if (handover.mails_residual()) {
      const auto mail = handover.residual();
      while (fetched && !mail.is_here(word)) word = mail.peek(output / 2);
      word >>= output % 2 * 16;
    }
    return __half2float(__ushort_as_half(uint16_t(word)));
  }

 private:
  uint64_t word_ = 0;
};

// What the end of a tile takes from its phase, read before the warps meet, after which nothing hides its latency.
struct TileEnd {
  bool keeps, posts;
  int epilogue, outputs;
  __half* y;
  Mail mail;
};
template <typename Shape>
__device__ __forceinline__ TileEnd end_of(const LinearPhase& linear, const Handover<Shape>& to) {
  return {to.keeps(), to.posts(), linear.epilogue, linear.outputs, static_cast<__half*>(linear.y), to.y()};
}

// By a warp: value `output` of y, of each lane that has one; a lane's neighbour has the next.
__device__ __forceinline__ void store_outputs(const TileEnd& end, __half* y, int output, bool has_one, float value) {
  const __half own = to_half(value);
  const __half next = __shfl_down_sync(0xffffffffu, own, 1);
  if (has_one && end.keeps) y[output] = own;
  if (has_one && end.posts && output % 2 == 0) end.mail.post(output / 2, own, next);
}

// y's 16 or 32 columns of a tile in one row, by one warp.
template <typename Shape, int Blocks>
__device__ __forceinline__ void finish_tile(const LinearPhase& linear, const Handover<Shape>& handover,
                                            const TileEnd& end, const typename TileSums<Shape>::Tile& sums, int row,
                                            int tile, float bias, const Residual& residual) {
  const int lane = threadIdx.x % 32;
  __half* const y = Shape::kRows == 1 ? end.y : end.y + int64_t(row) * linear.y_stride;
  float total = 0;
  if constexpr (Blocks == 2) {
#pragma unroll
    for (int w = 0; w < Shape::kWarps; ++w) total += sums[w][row][lane];
  } else {
#pragma unroll
    for (int w = 0; w < Shape::kWarps / 2; ++w) total += sums[lane / 16 * (Shape::kWarps / 2) + w][row][lane % 16];
    total += __shfl_down_sync(0xffffffffu, total, 16);
  }
  total += bias;
  if (Blocks == 2 && (end.epilogue == kSiluMul || (Shape::kExperts && end.epilogue == kClampedGlu))) {
    total = rounded<__half>(total);
    const float up = __shfl_down_sync(0xffffffffu, total, 16);
    const bool clamped = Shape::kExperts && end.epilogue == kClampedGlu;
    const float value = clamped ? clamped_glu(total, up, linear.clamp.alpha, linear.clamp.limit) : silu(total) * up;
    return store_outputs(end, y, tile * 16 + lane, lane < 16, value);
  }
  const int output = tile * 16 * Blocks + lane;
  const bool has_one = lane < 16 * Blocks && output < end.outputs;
  if (end.epilogue == kAddResidual) total = residual.wait(handover, output, has_one) + rounded<__half>(total);
  if (Shape::kRows > 1 && linear.squares < 0) {
    const float value = has_one ? rounded<__half>(total) : 0.0f, sum = warp_sum(value * value);
    if (lane == 0) handover.args.squares[row * kMostSquares + tile] = sum;
  }
  store_outputs(end, y, output, has_one, total);
}

// acc += a warp's share of a tile.
template <typename Shape, int Blocks, typename Ring>
__device__ __forceinline__ void multiply_tile(float (&acc)[Blocks][4], Ring& ring, LinearInputs<Shape>& prepared,
                                              bool last_tile) {
  using Prepared = LinearInputs<Shape>;
  constexpr int kChunk = RingStage<Shape::kFormat>::kChunk;
  static_assert(Prepared::kPiece % kChunk == 0);
  constexpr int kTogether = Ring::kDeep ? Blocks : 1;  // of a tile's blocks: to share what is read of x
  const int end = prepared.end();
  for (int first = prepared.begin(); first < end; first += Prepared::kPiece) {
    if (prepared.in_pieces()) prepared.take_piece(first);
    const int last = min(first + Prepared::kPiece, end);
    for (int group = first; group < last; group += kChunk) {
      const char* x = prepared.groups() + (group - first) * Prepared::kGroupBytes;
#pragma unroll
      for (int block = 0; block < Blocks; block += kTogether) {
        ring.template take_next<kTogether>();
        const char* chunks[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) chunks[i] = ring.held(i);
        if constexpr (Shape::kColumns) {
          if (last - group >= kChunk) {
            multiply_columns<Shape, true>(acc + block, chunks, kChunk, x);
          } else {
            multiply_columns<Shape, false>(acc + block, chunks, last - group, x);
          }
        } else if (last - group >= kChunk) {
          multiply_chunks<Shape, true>(acc + block, chunks, kChunk, x);
        } else {
          multiply_chunks<Shape, false>(acc + block, chunks, last - group, x);
        }
        // The last chunk is given up after the hand-over, so that its refill does not delay other blocks.
        const bool more = group + kChunk < end || block + kTogether < Blocks || !last_tile;
        ring.give_up(more ? kTogether : kTogether - 1);
      }
    }
  }
}

template <typename Shape, int Blocks>
__device__ __forceinline__ void leave_sums(const float (&acc)[Blocks][4], typename TileSums<Shape>::Tile& of_tile) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  if constexpr (Shape::kColumns) {
    // Of four lanes' sums each lane adds up one, or with one block two lanes the same.
    const bool odd = t % 2 == 1, second = t / 2 == 1;
    float sum[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float first = acc[0][2 * half], last = acc[Blocks - 1][2 * half];
      sum[half] = (odd ? last : first) + __shfl_xor_sync(0xffffffffu, odd ? first : last, 1);
    }
    const float total = (second ? sum[1] : sum[0]) + __shfl_xor_sync(0xffffffffu, second ? sum[0] : sum[1], 2);
    of_tile[warp][0][(Blocks == 2 ? t % 2 * 16 : 0) + t / 2 * 8 + g] = total;
  } else {
#pragma unroll
    for (int b = 0; b < Blocks; ++b) {
      if constexpr (Shape::kRows == 1) {
        if (t != 0) continue;
        of_tile[warp][0][b * 16 + g] = acc[b][0];
        of_tile[warp][0][b * 16 + g + 8] = acc[b][2];
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) of_tile[warp][2 * t + i % 2][b * 16 + g + i / 2 * 8] = acc[b][i];
      }
    }
  }
}

// A tile's last step is done by one warp a row, in turn, while the others go on.
template <typename Shape, int Blocks, typename Ring>
__device__ __forceinline__ void multiply_tiles(const LinearPhase& linear, const Handover<Shape>& handover, int rows,
                                               Ring& ring, LinearInputs<Shape>& prepared, TileSums<Shape>& sums) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tiles = linear.tiles;
  int turn = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++turn) {
    const int row = (warp - turn * rows) & (Shape::kWarps - 1);  // that this warp finishes
    const bool finishes = row < rows;
    // Fetched early: at the end nothing would hide its latency.
    const int output = tile * 16 * Blocks + (Blocks == 2 ? lane : lane % 16);
    Residual residual;
    float bias = 0;
    if (finishes && output < linear.outputs) {
      if (linear.epilogue == kAddResidual) residual.fetch(linear, handover, row, output);
      if (linear.bias != nullptr) bias = linear.bias[output];
    }
    float acc[Blocks][4] = {};
    multiply_tile<Shape>(acc, ring, prepared, tile + int(gridDim.x) >= tiles);
    auto& of_tile = sums.values[turn % TileSums<Shape>::kBuffers];
    if (Shape::kRows > 1 && turn > 0) sync_warps<Shape>();  // the tile before is read
    const TileEnd end = end_of(linear, handover);
    leave_sums<Shape, Blocks>(acc, of_tile);
    sync_warps<Shape>();
    if (!finishes) continue;
    finish_tile<Shape, Blocks>(linear, handover, end, of_tile, row, tile, bias, residual);
  }
}

}  // namespace tcim_lite::cuda::decode
