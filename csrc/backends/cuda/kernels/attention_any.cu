// Attention of any shape and element: a block for each row and query head, over the rows of the cache that it sees.
#include "backends/cuda/kernels/common.cuh"
#include "backends/cuda/kernels/kernels.h"

namespace tcim_lite::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kKeys = 128;  // keys taken at a time

// Shared memory: the query, o, and the probabilities of kKeys keys, in fp32.
template <typename T, typename Cache>
__global__ void attention_kernel(AttentionArgs args) {
  extern __shared__ float shared[];
  __shared__ float scratch[33];
  wait_for_inputs();
  launch_next();
  const int row = blockIdx.x, head = blockIdx.y, dim = args.head_dim;
  const int slot = row / args.slot_rows, token = row % args.slot_rows;
  if ((args.live != nullptr && row >= *args.live) || (args.refused != nullptr && *args.refused != 0)) return;
  float *query = shared, *o = shared + dim, *p = shared + 2 * dim;
  const int64_t kv_head = head / (args.q_heads / args.kv_heads);
  const Cache* k = static_cast<const Cache*>(args.k[slot]) + kv_head * args.context * dim;
  const Cache* v = static_cast<const Cache*>(args.v[slot]) + kv_head * args.context * dim;
  const T* q = static_cast<const T*>(args.q) + row * args.q_stride + int64_t(head) * dim;
  for (int i = threadIdx.x; i < dim; i += kThreads) {
    query[i] = load(q + i) * args.scale;
    o[i] = 0;
  }
  __syncthreads();
  const int valid = *args.valid[slot], keys = min(valid + token + 1, args.context);
  int first = max(keys - args.window, 0), end = keys;
  const T* mask = nullptr;
  if (args.mask_cols > 0) {
    const int begin = args.window < args.context ? max(valid - (args.window - 1), 0) : 0;
    const int last = min(begin + args.mask_cols, args.context);
    first = args.by_lengths ? max(first, begin) : begin;
    end = args.by_lengths ? min(end, last) : last;
    mask = static_cast<const T*>(args.masks[slot]) + int64_t(token) * args.mask_step - begin;
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float m = -INFINITY, l = 0;
  for (; first < end; first += kKeys) {
    const int count = min(kKeys, end - first);
    float most = -INFINITY;
    for (int key = warp; key < count; key += kThreads / 32) {
      const float added = mask == nullptr ? 0 : load(mask + first + key);
      if (added <= kHidden) {
        if (lane == 0) p[key] = -INFINITY;
        continue;
      }
      const Cache* at = k + int64_t(first + key) * dim;
      float score = 0;
      for (int i = lane; i < dim; i += 32) score = fmaf(query[i], load(at + i), score);
      score = warp_sum(score);
      if (lane == 0) tell_unless_finite(score, args.odd);
      if (args.softcap > 0) score = args.softcap * tanhf(score);
      score += added;
      if (lane == 0) p[key] = score;
      most = fmaxf(most, score);
    }
    if (lane == 0) scratch[warp] = most;
    __syncthreads();
    for (int other = 0; other < kThreads / 32; ++other) most = fmaxf(most, scratch[other]);
    __syncthreads();
    if (most == -INFINITY && mask != nullptr) continue;  // all of these are hidden
    const float now = fmaxf(m, most);
    const float keep = expf(m - now);
    float sum = 0;
    for (int key = threadIdx.x; key < count; key += kThreads) sum += p[key] = expf(p[key] - now);
    l = fmaf(l, keep, block_sum(sum, scratch));
    m = now;
    for (int i = threadIdx.x; i < dim; i += kThreads) {
      float value = o[i] * keep;
      for (int key = 0; key < count; ++key) {
        if (mask == nullptr || p[key] != 0) value = fmaf(p[key], load(v + int64_t(first + key) * dim + i), value);
      }
      o[i] = value;
    }
    __syncthreads();
  }
  float keep = 1;
  if (args.sinks != nullptr) {  // one more key, without a value
    const float sink = args.sinks[head], now = fmaxf(m, sink);
    keep = expf(m - now);
    l = fmaf(l, keep, expf(sink - now));
  }
  T* y = static_cast<T*>(args.y) + row * args.y_stride + int64_t(head) * dim;
  for (int i = threadIdx.x; i < dim; i += kThreads) {
    const float result = l == 0 ? 0.0f : o[i] * keep / l;  // 0 where a mask hides everything
    tell_unless_finite(result, args.odd);
    store(y + i, result);
  }
}

}  // namespace

void launch_attention_any(Elem elem, Elem cache_elem, const AttentionArgs& args, cudaStream_t stream) {
  const dim3 grid(unsigned(args.slots * args.slot_rows), unsigned(args.q_heads));
  const size_t shared = size_t(2 * args.head_dim + kKeys) * sizeof(float);
  if (elem == kF16) launch(attention_kernel<__half, __half>, grid, dim3(kThreads), shared, stream, args);
  if (elem == kF32 && cache_elem == kF32)
    launch(attention_kernel<float, float>, grid, dim3(kThreads), shared, stream, args);
  if (elem == kF32 && cache_elem == kF16)
    launch(attention_kernel<float, __half>, grid, dim3(kThreads), shared, stream, args);
}

}  // namespace tcim_lite::cuda
