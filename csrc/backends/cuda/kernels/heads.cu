// RMSNorm, RoPE and the cache write of heads: a warp for each row and head. Chains of fp16 go by pairs of elements, up
// to three in a launch.
#include <algorithm>

#include "backends/cuda/kernels/common.cuh"
#include "backends/cuda/kernels/kernels.h"

namespace tcim_lite::cuda {
namespace {

constexpr int kWarps = 4, kPairWarps = 8;

__device__ __forceinline__ float table_at(const void* table, int elem, int64_t i) {
  return elem == kF16 ? __half2float(static_cast<const __half*>(table)[i]) : static_cast<const float*>(table)[i];
}

enum class Turn { Counted, Given, Computed };  // rows of tables: from a position on, by positions, or as those of x

// A position outside the tables belongs to a row that is dropped or is padding (G-7), or was given so.
__device__ __forceinline__ int64_t table_row(Turn turn, const int* valid, int row, int token, int rows) {
  if (turn == Turn::Computed) return row;
  return max(0, min(turn == Turn::Given ? valid[token] : *valid + token, rows - 1));
}

__host__ __device__ __forceinline__ Turn turn_of(const HeadsArgs& args) {
  return args.tables_computed ? Turn::Computed : args.rope_given ? Turn::Given : Turn::Counted;
}

// Shared memory: a head in T's value for each warp.
template <typename T>
__global__ void heads_kernel(HeadsArgs args) {
  extern __shared__ float shared[];
  wait_for_inputs();
  launch_next();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = args.head_dim;
  const int64_t task = int64_t(blockIdx.x) * kWarps + warp;
  if (task >= int64_t(args.rows) * args.heads) return;
  const int row = int(task / args.heads), head = int(task % args.heads);
  const int slot = row / args.slot_rows, token = row % args.slot_rows;
  if ((args.live != nullptr && row >= *args.live) || (args.refused != nullptr && *args.refused != 0)) return;
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride + int64_t(head) * dim;
  float* values = shared + warp * dim;
  float sum = 0;
  for (int i = lane; i < dim; i += 32) {
    values[i] = load(x + i);
    sum = fmaf(values[i], values[i], sum);
  }
  if (args.norm_weight != nullptr) {
    const float inverse = 1.0f / sqrtf(warp_sum(sum) / float(dim) + args.epsilon);
    for (int i = lane; i < dim; i += 32) values[i] = rounded<T>(values[i] * inverse * args.norm_weight[i]);
  }
  __syncwarp();
  if (args.cos != nullptr) {
    const int64_t position = table_row(turn_of(args), args.rope_valid[slot], row, token, args.table_rows);
    const int half = args.rotary_dim / 2;
    for (int i = lane; i < half; i += 32) {
      const float cos = table_at(args.cos, args.table_elem, position * half + i);
      const float sin = table_at(args.sin, args.table_elem, position * half + i);
      const float x1 = values[i], x2 = values[i + half];
      values[i] = rounded<T>(fmaf(-x2, sin, x1 * cos));
      values[i + half] = rounded<T>(fmaf(x1, sin, x2 * cos));
    }
    __syncwarp();
  }
  if (args.y != nullptr) {
    T* y = static_cast<T*>(args.y) + row * args.y_stride + int64_t(head) * dim;
    for (int i = lane; i < dim; i += 32) store(y + i, values[i]);
    return;
  }
  const int64_t position = int64_t(*args.valid[slot]) + token;
  if (token >= *args.current[slot] || position >= args.context) return;
  const int64_t offset = (int64_t(head) * args.context + position) * dim;
  for (int i = lane; i < dim; i += 32) {
    if (args.cache_elem == kF16) store(static_cast<__half*>(args.caches[slot]) + offset + i, values[i]);
    if (args.cache_elem == kF32) store(static_cast<float*>(args.caches[slot]) + offset + i, values[i]);
  }
}

constexpr int kMostChains = 3;  // q, k and v
// A kernel reads its arguments line by line through a cache that is empty at each launch, so the first slots are placed
// next to the chains.
struct HeadChains {
  int rows, slot_rows, head_dim;
  struct Chain {
    const __half* x;
    int64_t x_stride, y_stride;
    __half* y;  // null: to the caches
    const float* norm_weight;
    const __half *cos, *sin;
    const int *live, *refused;
    float epsilon;
    int heads, table_rows, context;
    Turn turn;
  } chains[kMostChains];
  struct Slot {
    __half* cache;
    const int *rope_valid, *valid, *current;
  } slots[kMaxSlots][kMostChains];
};

// Lane l holds elements 2 l, 2 l + 1 and those half a head further on.
__global__ void half_heads_kernel(const __grid_constant__ HeadChains all) {
  wait_for_inputs();
  launch_next();
  const HeadChains::Chain& args = all.chains[blockIdx.y];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = all.head_dim;
  const int task = int(blockIdx.x) * kPairWarps + warp;
  if (task >= all.rows * args.heads) return;
  const int row = task / args.heads, head = task % args.heads;
  const int slot_index = row / all.slot_rows, token = row % all.slot_rows;
  const HeadChains::Slot& slot = all.slots[slot_index][blockIdx.y];
  if ((args.live != nullptr && row >= *args.live) || (args.refused != nullptr && *args.refused != 0)) return;
  const bool inside = 4 * lane < dim;
  const int low = 2 * lane, high = low + dim / 2;
  const auto load_pair = [](const __half* p) { return __half22float2(*reinterpret_cast<const __half2*>(p)); };
  float2 a{}, b{};
  if (inside) {
    const __half* const x = args.x + row * args.x_stride + int64_t(head) * dim;
    a = load_pair(x + low);
    b = load_pair(x + high);
  }
  if (args.norm_weight != nullptr) {
    const float sum = warp_sum(fmaf(a.x, a.x, fmaf(a.y, a.y, fmaf(b.x, b.x, b.y * b.y))));
    const float inverse = 1.0f / sqrtf(sum / float(dim) + args.epsilon);
    if (inside) {
      const float* w = args.norm_weight;
      a = make_float2(rounded<__half>(a.x * inverse * w[low]), rounded<__half>(a.y * inverse * w[low + 1]));
      b = make_float2(rounded<__half>(b.x * inverse * w[high]), rounded<__half>(b.y * inverse * w[high + 1]));
    }
  }
  if (!inside) return;
  if (args.cos != nullptr) {
    const int64_t position = table_row(args.turn, slot.rope_valid, row, token, args.table_rows);
    const float2 cos = load_pair(args.cos + position * (dim / 2) + low);
    const float2 sin = load_pair(args.sin + position * (dim / 2) + low);
    const float2 x1 = a, x2 = b;
    a = make_float2(fmaf(-x2.x, sin.x, x1.x * cos.x), fmaf(-x2.y, sin.y, x1.y * cos.y));
    b = make_float2(fmaf(x1.x, sin.x, x2.x * cos.x), fmaf(x1.y, sin.y, x2.y * cos.y));
  }
  __half* to = args.y + row * args.y_stride + int64_t(head) * dim;
  if (args.y == nullptr) {
    const int64_t position = int64_t(*slot.valid) + token;
    if (token >= *slot.current || position >= args.context) return;
    to = slot.cache + (int64_t(head) * args.context + position) * dim;
  }
  *reinterpret_cast<__half2*>(to + low) = __halves2half2(to_half(a.x), to_half(a.y));
  *reinterpret_cast<__half2*>(to + high) = __halves2half2(to_half(b.x), to_half(b.y));
}

// Pairs of fp16 at addresses and strides that are a multiple of theirs.
bool goes_by_pairs(Elem elem, const HeadsArgs& args) {
  const auto paired = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 4 == 0; };
  bool fits =
      elem == kF16 && args.head_dim % 4 == 0 && args.head_dim <= 128 && args.x_stride % 2 == 0 && paired(args.x);
  fits = fits && (args.cos == nullptr || (args.table_elem == kF16 && args.rotary_dim == args.head_dim &&
                                          paired(args.cos) && paired(args.sin)));
  if (args.y != nullptr) return fits && args.y_stride % 2 == 0 && paired(args.y);
  for (int slot = 0; slot < args.rows / args.slot_rows; ++slot) fits = fits && paired(args.caches[slot]);
  return fits && args.cache_elem == kF16;
}

void launch_any(Elem elem, const HeadsArgs& args, cudaStream_t stream) {
  const int64_t tasks = int64_t(args.rows) * args.heads;
  const dim3 grid(unsigned((tasks + kWarps - 1) / kWarps));
  const size_t shared = size_t(kWarps * args.head_dim) * sizeof(float);
  if (elem == kF16) launch(heads_kernel<__half>, grid, dim3(32 * kWarps), shared, stream, args);
  if (elem == kF32) launch(heads_kernel<float>, grid, dim3(32 * kWarps), shared, stream, args);
}

}  // namespace

void launch_heads(Elem elem, const HeadsArgs* chains, int count, cudaStream_t stream) {
  HeadChains together{};
  int pairs = 0, tasks = 0;
  for (int i = 0; i < count; ++i) {
    const HeadsArgs& from = chains[i];
    const bool alike = pairs == 0 || (from.rows == together.rows && from.slot_rows == together.slot_rows &&
                                      from.head_dim == together.head_dim);
    if (pairs == kMostChains || !alike || !goes_by_pairs(elem, from)) {
      launch_any(elem, from, stream);
      continue;
    }
    together.rows = from.rows, together.slot_rows = from.slot_rows, together.head_dim = from.head_dim;
    const auto halves = [](const void* p) { return static_cast<const __half*>(p); };
    together.chains[pairs] = {halves(from.x),   from.x_stride,    from.y_stride,    static_cast<__half*>(from.y),
                              from.norm_weight, halves(from.cos), halves(from.sin), from.live,
                              from.refused,     from.epsilon,     from.heads,       from.table_rows,
                              from.context,     turn_of(from)};
    for (int slot = 0; slot < from.rows / from.slot_rows; ++slot) {
      together.slots[slot][pairs] = {static_cast<__half*>(from.caches[slot]), from.rope_valid[slot], from.valid[slot],
                                     from.current[slot]};
    }
    ++pairs;
    tasks = std::max(tasks, from.rows * from.heads);
  }
  if (pairs == 0) return;
  launch(half_heads_kernel, dim3(unsigned((tasks + kPairWarps - 1) / kPairWarps), unsigned(pairs)),
         dim3(32 * kPairWarps), 0, stream, together);
}

}  // namespace tcim_lite::cuda
