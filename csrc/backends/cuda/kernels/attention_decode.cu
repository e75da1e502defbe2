// Attention of one token a slot: the rows of a KV head are split over blocks; the last block to finish merges them. The
// norm, RoPE and cache write of q, k and v can happen on the way: every block makes the queries it needs, and the one
// that holds the new row makes, writes and uses it.
#include "backends/cuda/kernels/common.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kUnroll = 4;  // keys in flight for each part of a warp

// A head in a warp: lane holds elements lane + 32 j. Norm, then RoPE, each rounded.
template <int Dim>
__device__ __forceinline__ void make_head(const __half* x, const float* norm, float epsilon, const __half* cos,
                                          const __half* sin, int position, int lane, float (&v)[Dim / 32]) {
  constexpr int kHalf = Dim / 64;
  float sum = 0;
#pragma unroll
  for (int j = 0; j < Dim / 32; ++j) {
    v[j] = load(x + lane + 32 * j);
    sum = fmaf(v[j], v[j], sum);
  }
  if (norm != nullptr) {
    const float inverse = 1.0f / sqrtf(warp_sum(sum) / float(Dim) + epsilon);
#pragma unroll
    for (int j = 0; j < Dim / 32; ++j) v[j] = rounded<__half>(v[j] * inverse * norm[lane + 32 * j]);
  }
  if (cos == nullptr) return;
#pragma unroll
  for (int j = 0; j < kHalf; ++j) {
    const float c = load(cos + int64_t(position) * (Dim / 2) + lane + 32 * j);
    const float s = load(sin + int64_t(position) * (Dim / 2) + lane + 32 * j);
    const float x1 = v[j], x2 = v[j + kHalf];
    v[j] = rounded<__half>(fmaf(-x2, s, x1 * c));
    v[j + kHalf] = rounded<__half>(fmaf(x1, s, x2 * c));
  }
}

__device__ __forceinline__ float warp_most(float v) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, lane));
  return v;
}

struct Rest {  // of a softmax
  float m, l;
};

template <int Dim, int Heads>
__global__ void __launch_bounds__(kThreads) decode_kernel(DecodeAttentionArgs args) {
  constexpr int kLanes = Dim / 8;      // that share a key
  constexpr int kParts = 32 / kLanes;  // of a warp
  constexpr int kStates = kWarps * kParts;
  __shared__ float queries[Heads][Dim];
  __shared__ __align__(16) __half fresh[2][Dim];
  __shared__ Rest rests[kStates][Heads];
  __shared__ float outputs[kStates][Heads][Dim];
  __shared__ float weights[kStates][Heads];
  __shared__ Rest block_rest[Heads];
  __shared__ int last;
  wait_for_inputs();
  launch_next();
  const AttentionArgs& a = args.a;
  const int split = blockIdx.x, kv_head = blockIdx.y, slot = blockIdx.z;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int valid = *a.valid[slot];
  const int keys = min(valid + 1, a.context);
  const int chunk = ((keys + args.splits - 1) / args.splits + 15) / 16 * 16;
  const int active = (keys + chunk - 1) / chunk;
  const int begin = split * chunk, end = min(begin + chunk, keys);
  if (begin >= end) return;
  const bool refused = a.refused != nullptr && *a.refused != 0;
  const int64_t cache_at = int64_t(kv_head) * a.context * Dim;
  const __half* k = static_cast<const __half*>(a.k[slot]) + cache_at;
  const __half* v = static_cast<const __half*>(a.v[slot]) + cache_at;
  const bool owns_fresh = args.fused && valid >= begin && valid < end;

  const int position = min(valid, args.table_rows - 1);
  const auto* cos = static_cast<const __half*>(args.cos);
  const auto* sin = static_cast<const __half*>(args.sin);
  for (int h = warp; h < Heads; h += kWarps) {
    float values[Dim / 32];
    if (args.fused) {
      const auto* x = static_cast<const __half*>(args.x_q) + slot * args.x_stride + int64_t(kv_head * Heads + h) * Dim;
      make_head<Dim>(x, args.q_norm, args.q_epsilon, cos, sin, position, lane, values);
    } else {
      const auto* x = static_cast<const __half*>(a.q) + slot * a.q_stride + int64_t(kv_head * Heads + h) * Dim;
      make_head<Dim>(x, nullptr, 0, nullptr, nullptr, 0, lane, values);
    }
#pragma unroll
    for (int j = 0; j < Dim / 32; ++j) queries[h][lane + 32 * j] = values[j] * a.scale;
  }
  if (owns_fresh && warp == kWarps - 1) {
    const int64_t at = slot * args.x_stride + int64_t(kv_head) * Dim;
    float key[Dim / 32], value[Dim / 32];
    make_head<Dim>(static_cast<const __half*>(args.x_k) + at, args.k_norm, args.k_epsilon, cos, sin, position, lane,
                   key);
    make_head<Dim>(static_cast<const __half*>(args.x_v) + at, nullptr, 0, nullptr, nullptr, 0, lane, value);
    const bool write = !refused && *args.current[slot] >= 1;
#pragma unroll
    for (int j = 0; j < Dim / 32; ++j) {
      const int i = lane + 32 * j;
      fresh[0][i] = __float2half_rn(key[j]);
      fresh[1][i] = __float2half_rn(value[j]);
      if (!write) continue;
      const_cast<__half*>(k)[int64_t(valid) * Dim + i] = fresh[0][i];
      const_cast<__half*>(v)[int64_t(valid) * Dim + i] = fresh[1][i];
    }
  }
  __syncthreads();

  const int part = lane / kLanes, first = lane % kLanes * 8;
  float q[Heads][8], o[Heads][8] = {}, m[Heads], l[Heads];
#pragma unroll
  for (int h = 0; h < Heads; ++h) {
    m[h] = -INFINITY;
    l[h] = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) q[h][i] = queries[h][first + i];
  }
  for (int base = begin + (warp * kParts + part); base - part < end; base += kStates * kUnroll) {
    uint4 raw_k[kUnroll], raw_v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int key = base + u * kStates;
      if (key < end) {
        const bool mine = owns_fresh && key == valid;
        raw_k[u] = *reinterpret_cast<const uint4*>(mine ? &fresh[0][first] : k + int64_t(key) * Dim + first);
        raw_v[u] = *reinterpret_cast<const uint4*>(mine ? &fresh[1][first] : v + int64_t(key) * Dim + first);
      } else {
        raw_k[u] = raw_v[u] = make_uint4(0, 0, 0, 0);
      }
    }
    float score[Heads][kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float kv[8];
      load8(reinterpret_cast<const __half*>(&raw_k[u]), kv);
#pragma unroll
      for (int h = 0; h < Heads; ++h) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) sum = fmaf(q[h][i], kv[i], sum);
        score[h][u] = sum;
      }
    }
#pragma unroll
    for (int step = 1; step < kLanes; step *= 2) {
#pragma unroll
      for (int h = 0; h < Heads; ++h) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) score[h][u] += __shfl_xor_sync(0xffffffffu, score[h][u], step);
      }
    }
#pragma unroll
    for (int h = 0; h < Heads; ++h) {
      float now = m[h];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (base + u * kStates >= end) score[h][u] = -INFINITY;
        now = fmaxf(now, score[h][u]);
      }
      const float keep = now == -INFINITY ? 1.0f : expf(m[h] - now);
      m[h] = now;
      l[h] *= keep;
#pragma unroll
      for (int i = 0; i < 8; ++i) o[h][i] *= keep;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        score[h][u] = now == -INFINITY ? 0.0f : expf(score[h][u] - now);
        l[h] += score[h][u];
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float kv[8];
      load8(reinterpret_cast<const __half*>(&raw_v[u]), kv);
#pragma unroll
      for (int h = 0; h < Heads; ++h) {
#pragma unroll
        for (int i = 0; i < 8; ++i) o[h][i] = fmaf(score[h][u], kv[i], o[h][i]);
      }
    }
  }
  const int state = warp * kParts + part;
#pragma unroll
  for (int h = 0; h < Heads; ++h) {
    if (first == 0) rests[state][h] = {m[h], l[h]};
#pragma unroll
    for (int i = 0; i < 8; ++i) outputs[state][h][first + i] = o[h][i];
  }
  __syncthreads();

  // One (m, l, o) of the block; where it is the only one, the result.
  for (int h = warp; h < Heads; h += kWarps) {
    const float mine = lane < kStates ? rests[lane][h].m : -INFINITY;
    const float most = warp_most(mine);
    const float weight = lane < kStates ? expf(mine - most) : 0.0f;
    const float sum = warp_sum(lane < kStates ? rests[lane][h].l * weight : 0.0f);
    if (lane < kStates) weights[lane][h] = weight;
    if (lane == 0) block_rest[h] = {most, sum};
  }
  __syncthreads();
  const int64_t pair = int64_t(slot) * a.kv_heads + kv_head;
  const int64_t stride = int64_t(Heads) * (Dim + 2);
  float* mine = args.partial + (pair * args.splits + split) * stride;
  auto* y = static_cast<__half*>(a.y) + slot * a.y_stride + int64_t(kv_head) * Heads * Dim;
  for (int i = threadIdx.x; i < Heads * Dim; i += kThreads) {
    const int h = i / Dim, d = i % Dim;
    float total = 0;
#pragma unroll
    for (int s = 0; s < kStates; ++s) total = fmaf(outputs[s][h][d], weights[s][h], total);
    if (active == 1) {
      if (!refused) store(y + i, total / block_rest[h].l);
      continue;
    }
    mine[h * (Dim + 2) + d] = total;
    if (d == 0) *reinterpret_cast<float2*>(mine + h * (Dim + 2) + Dim) = make_float2(block_rest[h].m, block_rest[h].l);
  }
  if (active == 1) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(args.arrived + pair, 1) == active - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  if (threadIdx.x == 0) args.arrived[pair] = 0;
  const float* all = args.partial + pair * args.splits * stride;
  float* share = &outputs[0][0][0];  // [active][Heads], the weight of each block over the whole sum
  for (int h = warp; h < Heads; h += kWarps) {
    const auto rest_of = [&](int s) {
      return __ldcg(reinterpret_cast<const float2*>(all + s * stride + h * (Dim + 2) + Dim));
    };
    float most = -INFINITY, sum = 0;
    for (int s = lane; s < active; s += 32) most = fmaxf(most, rest_of(s).x);
    most = warp_most(most);
    for (int s = lane; s < active; s += 32) {
      const float2 rest = rest_of(s);
      const float weight = expf(rest.x - most);
      share[s * Heads + h] = weight;
      sum = fmaf(rest.y, weight, sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) block_rest[h] = {most, sum};
  }
  __syncthreads();
  for (int i = threadIdx.x; i < Heads * Dim; i += kThreads) {
    const int h = i / Dim, d = i % Dim;
    float total = 0;
#pragma unroll 8
    for (int s = 0; s < active; ++s)
      total = fmaf(__ldcg(all + s * stride + h * (Dim + 2) + d), share[s * Heads + h], total);
    if (!refused) store(y + i, total / block_rest[h].l);
  }
}

template <int Dim>
void launch_dim(const DecodeAttentionArgs& args, cudaStream_t stream) {
  const dim3 grid(unsigned(args.splits), unsigned(args.a.kv_heads), unsigned(args.a.slots)), block(kThreads);
  switch (args.a.q_heads / args.a.kv_heads) {
    case 1:
      return launch(decode_kernel<Dim, 1>, grid, block, 0, stream, args);
    case 2:
      return launch(decode_kernel<Dim, 2>, grid, block, 0, stream, args);
    case 4:
      return launch(decode_kernel<Dim, 4>, grid, block, 0, stream, args);
    case 8:
      return launch(decode_kernel<Dim, 8>, grid, block, 0, stream, args);
  }
}

}  // namespace

bool decode_attention_supports(const AttentionArgs& args) {
  const int heads = args.q_heads / args.kv_heads;
  return args.slot_rows == 1 && (args.head_dim == 64 || args.head_dim == 128) &&
         (heads == 1 || heads == 2 || heads == 4 || heads == 8);
}

int64_t decode_attention_floats(const DecodeAttentionArgs& args) {
  return int64_t(args.a.slots) * args.splits * args.a.q_heads * (args.a.head_dim + 2);
}

void launch_decode_attention(const DecodeAttentionArgs& args, cudaStream_t stream) {
  if (args.a.head_dim == 64) launch_dim<64>(args, stream);
  if (args.a.head_dim == 128) launch_dim<128>(args, stream);
}

}  // namespace tcim_lite::cuda
