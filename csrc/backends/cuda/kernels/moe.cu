// Mixture of experts: who works on a row, the work of any shape and format, and the sum of it.
#include "backends/cuda/kernels/linear_any.cuh"

namespace tcim_lite::cuda {
namespace {

using namespace any;

__device__ __forceinline__ bool is_live(const int* live, int row) { return live == nullptr || row < *live; }
__device__ __forceinline__ bool is_refused(const int* refused) { return refused != nullptr && *refused != 0; }

// Larger for a larger logit and, of equal ones, for a lower id; NaN is below everything. No two are equal.
__device__ __forceinline__ uint64_t rank_key(float logit, int id) {
  const uint32_t bits = __float_as_uint(logit == 0.0f ? 0.0f : logit);
  const uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
  return uint64_t(isnan(logit) ? 0u : ordered) << 32 | (0xffffffffu - uint32_t(id));
}

__device__ __forceinline__ uint64_t warp_max(uint64_t v) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, static_cast<unsigned long long>(v), lane);
    v = other > v ? other : v;
  }
  return v;
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// One warp: of a group counts the largest of what experts are chosen by, of scores the sum of the two largest.
__device__ void keep_groups(const RouteArgs& args, const float* logit, float* of_group, int* kept) {
  const int lane = threadIdx.x, size = args.experts / args.groups;
  for (int group = lane; group < args.groups; group += 32) {
    uint64_t first = 0, second = 0;
    for (int i = 0; i < size; ++i) {
      const uint64_t key = rank_key(logit[group * size + i], i);
      second = key > first ? first : key > second ? key : second;
      first = key > first ? key : first;
    }
    const auto at = [&](uint64_t key) { return logit[group * size + int(0xffffffffu - uint32_t(key))]; };
    of_group[group] = args.sigmoid || args.softmax_scores ? at(first) + at(second) : at(first);
  }
  __syncwarp();
  for (int group = lane; group < args.groups; group += 32) {
    const uint64_t own = rank_key(of_group[group], group);
    int before = 0;
    for (int other = 0; other < args.groups; ++other) before += rank_key(of_group[other], other) > own;
    kept[group] = before < args.kept_groups;
  }
  __syncwarp();
}

// The largest of a row of logits, and the sum of exp(l - it).
struct Whole {
  float most = 0, sum = 1;
};
template <typename T>
__device__ Whole whole_of(const T* logits, int count) {
  uint64_t best = 0;
  for (int i = threadIdx.x; i < count; i += 32) best = max(best, rank_key(load(logits + i), i));
  const float most = load(logits + int(0xffffffffu - uint32_t(warp_max(best))));
  float sum = 0;
  for (int i = threadIdx.x; i < count; i += 32) sum += expf(load(logits + i) - most);
  return {most, warp_sum(sum)};
}

// What the expert with the rank key `last` and the logit `most` counts: its softmax over those behind it that are near
// enough.
__device__ float sparse_share(const RouteArgs& args, const float* logit, float most, uint64_t last) {
  float sum = 0;
  for (int expert = threadIdx.x; expert < args.experts; expert += 32) {
    const float own = logit[expert];
    const bool far = (most - own) / fmaxf(fabsf(own), most) > args.threshold;
    if (!far && rank_key(own, expert) <= last) sum += expf(own - most);
  }
  return 1.0f / warp_sum(sum);
}

// A warp for each row.
template <typename T>
__global__ void route_kernel(RouteArgs args) {
  extern __shared__ float logit[];  // [experts], or what they are chosen by; then the chosen ones' shares
  float* const share = logit + args.experts;
  float* const of_group = share + args.chosen;                       // [groups]: what counts of each
  int* const kept = reinterpret_cast<int*>(of_group + args.groups);  // [groups]: whether its experts take part
  wait_for_inputs();
  launch_next();
  const int row = blockIdx.x, lane = threadIdx.x;
  if (!is_live(args.live, row)) return;
  const T* from = static_cast<const T*>(args.logits) + row * args.stride;
  const bool scored = args.sigmoid || args.softmax_scores;
  const Whole all = args.softmax_scores ? whole_of(from, args.experts) : Whole{};
  const auto score = [&](float own) { return args.sigmoid ? sigmoid(own) : expf(own - all.most) / all.sum; };
  for (int expert = lane; expert < args.experts; expert += 32) {
    const float own = load(from + expert), bias = args.bias == nullptr ? 0.0f : args.bias[expert];
    logit[expert] = scored ? score(own) + bias : own;
  }
  __syncwarp();
  const bool has_groups = args.kept_groups < args.groups;
  const int group_size = args.experts / args.groups;
  if (has_groups) keep_groups(args, logit, of_group, kept);
  const auto takes_part = [&](int expert) { return !has_groups || kept[expert / group_size] != 0; };

  int* const ids = args.ids + int64_t(row) * args.chosen;
  uint64_t last = ~uint64_t{0};
  float largest = 0, of_all = 0;
  for (int rank = 0; rank < args.chosen; ++rank) {
    uint64_t best = 0;
    for (int expert = lane; expert < args.experts; expert += 32) {
      if (!takes_part(expert)) continue;
      const uint64_t key = rank_key(logit[expert], expert);
      if (key < last && key > best) best = key;
    }
    last = warp_max(best);
    const int id = int(0xffffffffu - uint32_t(last));
    if (rank == 0) largest = logit[id];
    const float mixed = args.threshold > 0 ? sparse_share(args, logit, logit[id], last) : 0;
    if (lane == 0) {
      ids[rank] = id;
      share[rank] = args.threshold > 0 ? mixed : scored ? score(load(from + id)) : expf(logit[id] - largest);
    }
  }
  __syncwarp();
  if (is_refused(args.refused)) return;  // ids are there all the same: what reads them finds experts by them
  for (int expert = lane; expert < args.experts; expert += 32) of_all += expf(logit[expert] - largest);
  of_all = warp_sum(of_all);
  float of_chosen = 0;
  for (int rank = lane; rank < args.chosen; rank += 32) of_chosen += share[rank];
  of_chosen = warp_sum(of_chosen);
  const float unscaled = scored || args.threshold > 0 ? 1.0f : of_all;
  const bool by_itself = args.softmax_first || scored || args.threshold > 0;
  const float whole = by_itself && !args.normalise ? unscaled : of_chosen;
  T* const shares = static_cast<T*>(args.shares) + int64_t(row) * args.chosen;
  for (int rank = lane; rank < args.chosen; rank += 32) store(shares + rank, share[rank] / whole);
}

// Grid: (outputs / kWarps, experts). A block looks for the pairs of its expert, a window of them at a time.
template <typename T, WeightFormat Format, bool QuantizeX>
__global__ void experts_kernel(ExpertsArgs args) {
  constexpr int kWindow = 2048;
  __shared__ int mine[kWindow];
  __shared__ int count;
  wait_for_inputs();
  launch_next();
  const LinearArgs& linear = args.linear;
  const int expert = blockIdx.y, lane = threadIdx.x % 32, pairs = live_rows(linear) * args.chosen;
  const bool silu_mul = linear.epilogue == kSiluMul;
  const int i = int(blockIdx.x) * kWarps + int(threadIdx.x) / 32;
  const bool works = i < (silu_mul ? linear.outputs / 2 : linear.outputs) && !is_refused(linear);
  const int64_t n = silu_mul ? i / 16 * 32 + i % 16 : i;
  const void* weights = static_cast<const char*>(linear.weights) + expert * args.expert_bytes;
  for (int begin = 0; begin < pairs; begin += kWindow) {
    __syncthreads();
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    for (int pair = begin + int(threadIdx.x); pair < min(begin + kWindow, pairs); pair += int(blockDim.x)) {
      if (expert_of(args, pair) == expert) mine[atomicAdd(&count, 1)] = pair;
    }
    __syncthreads();
    for (int first = 0; works && first < count; first += kRows) {
      const int rows = min(kRows, count - first);
      const auto row_of = [&](int r) {
        const int pair = mine[first + r];
        const int64_t part = args.own_rows ? int64_t(pair % args.chosen) * linear.inputs : 0;
        return static_cast<const T*>(linear.x) + pair / args.chosen * linear.x_stride + part;
      };
      float sums[kRows], ups[kRows];
      dots<T, Format, QuantizeX>(weights, linear.inputs, n, rows, lane, row_of, sums);
      if (silu_mul) dots<T, Format, QuantizeX>(weights, linear.inputs, n + 16, rows, lane, row_of, ups);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r >= rows || lane != r) continue;
        const LinearArgs one = pair_of<T>(args, mine[first + r], expert);
        if (silu_mul) {
          finish_silu<T>(one, 0, i, sums[r], ups[r]);
        } else {
          finish<T>(one, 0, i, sums[r]);
        }
      }
    }
  }
}

template <typename T>
__global__ void combine_kernel(CombineArgs args) {
  wait_for_inputs();
  launch_next();
  const int row = blockIdx.y, cols = args.row.cols;
  if (!is_live(args.row.live, row) || is_refused(args.row.refused)) return;
  const T* x = static_cast<const T*>(args.row.x) + row * args.row.x_stride;
  const T* shares = static_cast<const T*>(args.shares) + int64_t(row) * args.chosen;
  T* y = static_cast<T*>(args.row.y) + row * args.row.y_stride;
  for (int i = int(blockIdx.x * blockDim.x + threadIdx.x); i < cols; i += int(gridDim.x * blockDim.x)) {
    float sum = 0;
    for (int rank = 0; rank < args.chosen; ++rank)
      sum = fmaf(load(shares + rank), load(x + int64_t(rank) * cols + i), sum);
    if (args.residual != nullptr)
      sum = load(static_cast<const T*>(args.residual) + row * args.residual_stride + i) + rounded<T>(sum);
    store(y + i, sum);
  }
}

}  // namespace

void launch_experts_any(Elem elem, WeightFormat format, const ExpertsArgs& args, bool quantize_x, cudaStream_t stream) {
  const int columns = args.linear.epilogue == kSiluMul ? args.linear.outputs / 2 : args.linear.outputs;
  const dim3 grid(unsigned((columns + kWarps - 1) / kWarps), unsigned(args.experts)), block(32 * kWarps);
  with_kernel(elem, format, quantize_x, [&](auto t, auto chosen, auto quantizes) {
    const auto kernel = experts_kernel<decltype(t), decltype(chosen)::kValue, decltype(quantizes)::value>;
    launch(kernel, grid, block, 0, stream, args);
  });
}

void launch_route(Elem elem, const RouteArgs& args, cudaStream_t stream) {
  const dim3 grid(unsigned(args.rows)), block(32);
  const size_t shared = size_t(args.experts + args.chosen + 2 * args.groups) * 4;
  if (elem == kF16) launch(route_kernel<__half>, grid, block, shared, stream, args);
  if (elem == kF32) launch(route_kernel<float>, grid, block, shared, stream, args);
}

void launch_combine(Elem elem, const CombineArgs& args, cudaStream_t stream) {
  const dim3 grid(unsigned((args.row.cols + 255) / 256), unsigned(args.row.rows)), block(256);
  if (elem == kF16) launch(combine_kernel<__half>, grid, block, 0, stream, args);
  if (elem == kF32) launch(combine_kernel<float>, grid, block, 0, stream, args);
}

}  // namespace tcim_lite::cuda
