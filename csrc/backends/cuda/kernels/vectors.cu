// Ops over rows: reductions, softmax, layer norm, the largest of a row. A warp takes a row, or a block a long one.
#include "backends/cuda/kernels/dense.cuh"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda {
namespace {

constexpr int kWarp = 32, kBlock = 256;
constexpr int64_t kLong = 2048;  // columns from which a block takes a row

__device__ __forceinline__ float combine(int op, float a, float b) {
  if (op == kReduceMax) return larger(a, b);
  if (op == kReduceMin) return smaller(a, b);
  if (op == kReduceProd) return a * b;
  return a + b;
}
__device__ __forceinline__ float identity(int op) {
  return op == kReduceMax ? -INFINITY : op == kReduceMin ? INFINITY : op == kReduceProd ? 1.0f : 0.0f;
}

// Of all threads of a team, the same in each. `scratch`: a float for each warp of the block.
template <int Team>
__device__ __forceinline__ float fold(int op, float v, float* scratch) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) v = combine(op, v, __shfl_xor_sync(0xffffffffu, v, lane));
  if constexpr (Team == kBlock) {
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    v = scratch[0];
    for (int warp = 1; warp < kBlock / 32; ++warp) v = combine(op, v, scratch[warp]);
    __syncthreads();
  }
  return v;
}

// The row of this thread's team, once the inputs are there.
template <typename T, int Team>
struct TeamRow {
  __device__ __forceinline__ explicit TeamRow(const VectorArgs& args) {
    wait_for_inputs();
    launch_next();
    index = int64_t(blockIdx.x) * (kBlock / Team) + threadIdx.x / Team;
    x = static_cast<const T*>(args.x) + index * args.cols;
    y = static_cast<T*>(args.y) + index * args.cols;
    member = threadIdx.x % Team;
    exists = index < args.rows && !is_refused(args.refused);
  }

  int64_t index;
  const T* x;
  T* y;        // where the result is as long
  int member;  // the thread's place in the team
  bool exists;
};

template <typename T, int Team>
__global__ void reduce_kernel(VectorArgs args, int op) {
  __shared__ float scratch[kBlock / 32];
  const TeamRow<T, Team> row(args);
  if (!row.exists) return;
  float result = identity(op);
  for (int64_t i = row.member; i < args.cols; i += Team) {
    const float v = load(row.x + i);
    result = op == kReduceSumSquare ? fmaf(v, v, result) : combine(op, result, op == kReduceL1 ? fabsf(v) : v);
  }
  result = fold<Team>(op, result, scratch);
  if (op == kReduceMean) result /= float(args.cols);
  if (row.member == 0) store(static_cast<T*>(args.y) + row.index, result);
}

template <typename T, int Team>
__global__ void softmax_kernel(VectorArgs args, bool log) {
  __shared__ float scratch[kBlock / 32];
  const TeamRow<T, Team> row(args);
  if (!row.exists) return;
  float most = -INFINITY;
  for (int64_t i = row.member; i < args.cols; i += Team) most = larger(most, load(row.x + i));
  most = fold<Team>(kReduceMax, most, scratch);
  float sum = 0;
  for (int64_t i = row.member; i < args.cols; i += Team) sum += expf(load(row.x + i) - most);
  sum = fold<Team>(kReduceSum, sum, scratch);
  const float log_sum = logf(sum);
  for (int64_t i = row.member; i < args.cols; i += Team) {
    const float v = load(row.x + i) - most;
    store(row.y + i, log ? v - log_sum : expf(v) / sum);
  }
}

template <typename T, int Team>
__global__ void layer_norm_kernel(VectorArgs args, const float* weight, const float* bias, float epsilon) {
  __shared__ float scratch[kBlock / 32];
  const TeamRow<T, Team> row(args);
  if (!row.exists) return;
  float sum = 0;
  for (int64_t i = row.member; i < args.cols; i += Team) sum += load(row.x + i);
  const float mean = fold<Team>(kReduceSum, sum, scratch) / float(args.cols);
  float squares = 0;
  for (int64_t i = row.member; i < args.cols; i += Team) {
    const float difference = load(row.x + i) - mean;
    squares = fmaf(difference, difference, squares);
  }
  const float variance = fold<Team>(kReduceSum, squares, scratch) / float(args.cols);
  const float inverse = 1.0f / sqrtf(variance + epsilon);
  for (int64_t i = row.member; i < args.cols; i += Team) {
    float v = (load(row.x + i) - mean) * inverse;
    if (weight != nullptr) v = bias != nullptr ? fmaf(v, weight[i], bias[i]) : v * weight[i];
    store(row.y + i, v);
  }
}

// Ascending with x, then descending with the index; NaN is below every number, and -0 equals 0. With `smallest` x
// counts reversed.
__device__ __forceinline__ uint64_t rank_key(float x, bool largest, int index) {
  uint32_t key = 0;
  if (x == x) {
    const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x);
    const uint32_t ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
    key = largest ? ordered : ~ordered;
  }
  return uint64_t(key) << 32 | uint32_t(~index);
}

__device__ __forceinline__ uint64_t rank_key(int32_t x, bool largest, int index) {
  const uint32_t ordered = uint32_t(x) ^ 0x80000000u;
  return uint64_t(largest ? ordered : ~ordered) << 32 | uint32_t(~index);
}
template <typename T>
__device__ __forceinline__ uint64_t key_at(const T* x, bool largest, int index) {
  if constexpr (std::is_same_v<T, int32_t>)
    return rank_key(*x, largest, index);
  else
    return rank_key(load(x), largest, index);
}

// Grid: (pieces of a row, rows by 65,535). An element that `place` others come before is the result's element `place`.
template <typename T>
__global__ void top_k_kernel(VectorArgs args, int* indices, int64_t chosen, bool largest) {
  __shared__ uint64_t others[kBlock];
  wait_for_inputs();
  launch_next();
  if (is_refused(args.refused)) return;
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y) {
    const T* x = static_cast<const T*>(args.x) + row * args.cols;
    const int64_t mine = int64_t(blockIdx.x) * kBlock + threadIdx.x;
    const uint64_t key = mine < args.cols ? key_at(x + mine, largest, int(mine)) : 0;
    int64_t place = 0;
    for (int64_t first = 0; first < args.cols; first += kBlock) {
      const int64_t other = first + threadIdx.x;
      __syncthreads();
      others[threadIdx.x] = other < args.cols ? key_at(x + other, largest, int(other)) : 0;
      __syncthreads();
#pragma unroll 16
      for (int n = 0; n < kBlock; ++n) place += others[n] > key;
    }
    if (mine >= args.cols || place >= chosen) continue;
    static_cast<T*>(args.y)[row * chosen + place] = x[mine];
    indices[row * chosen + place] = int(mine);
  }
}

// The best of a row and its place; a block of kBestThreads takes it.
struct Best {
  float value;
  int place;
};
constexpr int kBestThreads = 1024;

// Whether `a` comes before `b`: NaN behind every number, of equal ones the first.
__device__ __forceinline__ bool is_before(const Best& a, const Best& b, bool largest) {
  if (isnan(a.value) != isnan(b.value)) return isnan(b.value);
  if (a.value != b.value && !isnan(a.value)) return largest ? a.value > b.value : a.value < b.value;
  return a.place < b.place;
}

__device__ __forceinline__ Best best_of_warp(Best best, bool largest) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    const Best other{__shfl_xor_sync(0xffffffffu, best.value, lane), __shfl_xor_sync(0xffffffffu, best.place, lane)};
    if (is_before(other, best, largest)) best = other;
  }
  return best;
}

template <typename T>
__global__ void __launch_bounds__(kBestThreads) best_kernel(VectorArgs args, int* indices, bool largest) {
  __shared__ Best warps[kBestThreads / 32];
  wait_for_inputs();
  launch_next();
  if (is_refused(args.refused)) return;
  const int lane = threadIdx.x % 32;
  const int cols = int(args.cols);
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(args.x) + row * args.cols;
    Best best{NAN, cols};
    const auto take = [&](float value, int place) {
      const Best other{value, place};
      if (is_before(other, best, largest)) best = other;
    };
    const int vectors = cols / 8 * 8;
    for (int i = int(threadIdx.x) * 8; i < vectors; i += kBestThreads * 8) {
      float v[8];
      load8_any(x + i, v);
#pragma unroll
      for (int n = 0; n < 8; ++n) take(v[n], i + n);
    }
    for (int i = vectors + int(threadIdx.x); i < cols; i += kBestThreads) take(load(x + i), i);
    best = best_of_warp(best, largest);
    if (lane == 0) warps[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x < 32) {
      best = best_of_warp(warps[lane], largest);
      if (lane == 0) {
        indices[row] = best.place;
        static_cast<T*>(args.y)[row] = x[best.place];
      }
    }
    __syncthreads();
  }
}

// call(team) with the team of a row, and the blocks that it takes.
template <typename Call>
void with_team(const VectorArgs& args, const Call& call) {
  if (args.cols >= kLong) {
    call(std::integral_constant<int, kBlock>(), dim3(unsigned(args.rows)));
  } else {
    constexpr int kRows = kBlock / kWarp;
    call(std::integral_constant<int, kWarp>(), dim3(unsigned((args.rows + kRows - 1) / kRows)));
  }
}

}  // namespace

void launch_reduce(ReduceOp op, Elem elem, const VectorArgs& args, cudaStream_t stream) {
  with_elem(elem, [&](auto t) {
    with_team(args, [&](auto team, dim3 grid) {
      launch(reduce_kernel<decltype(t), decltype(team)::value>, grid, dim3(kBlock), 0, stream, args, int(op));
    });
  });
}

void launch_softmax(Elem elem, const VectorArgs& args, bool log, cudaStream_t stream) {
  with_elem(elem, [&](auto t) {
    with_team(args, [&](auto team, dim3 grid) {
      launch(softmax_kernel<decltype(t), decltype(team)::value>, grid, dim3(kBlock), 0, stream, args, log);
    });
  });
}

void launch_layer_norm(Elem elem, const VectorArgs& args, const float* weight, const float* bias, float epsilon,
                       cudaStream_t stream) {
  with_elem(elem, [&](auto t) {
    with_team(args, [&](auto team, dim3 grid) {
      launch(layer_norm_kernel<decltype(t), decltype(team)::value>, grid, dim3(kBlock), 0, stream, args, weight, bias,
             epsilon);
    });
  });
}

void launch_top_k(Elem elem, const VectorArgs& args, int* indices, int64_t chosen, bool largest, cudaStream_t stream) {
  const dim3 grid(unsigned((args.cols + kBlock - 1) / kBlock), unsigned(args.rows < 65535 ? args.rows : 65535));
  if (elem == kI32) return launch(top_k_kernel<int32_t>, grid, dim3(kBlock), 0, stream, args, indices, chosen, largest);
  if (chosen == 1) {
    const dim3 rows(unsigned(args.rows < 65535 ? args.rows : 65535));
    return with_elem(elem, [&](auto t) {
      launch(best_kernel<decltype(t)>, rows, dim3(kBestThreads), 0, stream, args, indices, largest);
    });
  }
  with_elem(elem, [&](auto t) {
    launch(top_k_kernel<decltype(t)>, grid, dim3(kBlock), 0, stream, args, indices, chosen, largest);
  });
}

}  // namespace tcim_lite::cuda
