// The edges of a graph and the ops that stand alone: each row by itself.
#include "backends/cuda/kernels/common.cuh"
#include "backends/cuda/kernels/elementwise.cuh"
#include "backends/cuda/kernels/functions.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda {
namespace {

__device__ __forceinline__ bool is_live(const int* live, int row) { return live == nullptr || row < *live; }
__device__ __forceinline__ bool is_refused(const int* refused) { return refused != nullptr && *refused != 0; }

// Grid: (blocks of an input, inputs). Runs alone: what it waits for may still read what it writes.
__global__ void stage_kernel(StageArgs args) {
  wait_for_inputs();
  launch_next();
  const StageInput input = args.inputs[blockIdx.y];
  __shared__ int live_rows;  // lengths may lie in host memory: one read of them a block
  if (threadIdx.x == 0) live_rows = input.live == nullptr ? int(input.rows) : *input.live;
  __syncthreads();
  const int64_t rows = min(int64_t(max(live_rows, 0)), input.rows);
  const int64_t bytes = rows * input.row_bytes;
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  bool finite = true;
  const auto check = [&](uint32_t word) {
    if (input.elem == kF32) finite &= (word & 0x7f800000u) != 0x7f800000u;
    if (input.elem == kF16) finite &= (word & 0x7c00u) != 0x7c00u && (word & 0x7c000000u) != 0x7c000000u;
  };
  const int64_t first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const bool wide = ((reinterpret_cast<uintptr_t>(input.from) | reinterpret_cast<uintptr_t>(input.to)) & 15) == 0;
  const int64_t vectors = wide ? bytes / 16 : 0;
  for (int64_t i = first; i < vectors; i += stride) {
    const uint4 v = static_cast<const uint4*>(input.from)[i];
    check(v.x), check(v.y), check(v.z), check(v.w);
    if (input.to != input.from) static_cast<uint4*>(input.to)[i] = v;
  }
  const int64_t tail = vectors * 16;
  for (int64_t i = tail + 2 * first; i + 1 < bytes; i += 2 * stride) {
    const uint16_t v = *reinterpret_cast<const uint16_t*>(static_cast<const char*>(input.from) + i);
    if (input.elem == kF16) check(v);
    if (input.elem == kF32 && i % 4 == 2) check(uint32_t(v) << 16);
    if (input.to != input.from) *reinterpret_cast<uint16_t*>(static_cast<char*>(input.to) + i) = v;
  }
  if (bytes % 2 != 0 && first == 0 && input.to != input.from)
    static_cast<char*>(input.to)[bytes - 1] = static_cast<const char*>(input.from)[bytes - 1];
  if (!finite) {
    *args.refused = input.port + 1;
    *args.refused_host = input.port + 1;
  }
}

template <typename T>
__global__ void norm_kernel(NormArgs args) {
  __shared__ float scratch[33];
  wait_for_inputs();
  launch_next();
  const int row = blockIdx.x / args.groups, group = blockIdx.x % args.groups;
  if (!is_live(args.row.live, row) || is_refused(args.row.refused)) return;
  const T* x = static_cast<const T*>(args.row.x) + row * args.row.x_stride + int64_t(group) * args.row.cols;
  T* y = static_cast<T*>(args.row.y) + row * args.row.y_stride + int64_t(group) * args.row.cols;
  const int cols = args.row.cols, vectors = cols / 8 * 8;
  float sum = 0;
  for (int i = threadIdx.x * 8; i < vectors; i += blockDim.x * 8) {
    float v[8];
    load8_any(x + i, v);
#pragma unroll
    for (int n = 0; n < 8; ++n) sum = fmaf(v[n], v[n], sum);
  }
  for (int i = vectors + threadIdx.x; i < cols; i += blockDim.x) sum = fmaf(load(x + i), load(x + i), sum);
  const float inverse = 1.0f / sqrtf(block_sum(sum, scratch) / float(cols) + args.epsilon);
  for (int i = threadIdx.x * 8; i < vectors; i += blockDim.x * 8) {
    float v[8], weight[8];
    load8_any(x + i, v);
    load8_weights(args.weight + i, weight);
#pragma unroll
    for (int n = 0; n < 8; ++n) v[n] = v[n] * inverse * weight[n];
    store8_any(y + i, v);
  }
  for (int i = vectors + threadIdx.x; i < cols; i += blockDim.x) store(y + i, load(x + i) * inverse * args.weight[i]);
}

// Calls `each(row, column)` once, on some thread of the grid, for every element of the live rows.
template <typename Each>
__device__ __forceinline__ void for_elements(const RowArgs& args, const Each& each) {
  wait_for_inputs();
  launch_next();
  if (is_refused(args.refused)) return;
  for (int row = blockIdx.y; row < args.rows && is_live(args.live, row); row += gridDim.y)
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < args.cols; i += gridDim.x * blockDim.x) each(row, i);
}

template <typename T>
__device__ __forceinline__ const T* x_row(const RowArgs& args, int row) {
  return static_cast<const T*>(args.x) + row * args.x_stride;
}

template <typename T>
__device__ __forceinline__ T* y_row(const RowArgs& args, int row) {
  return static_cast<T*>(args.y) + row * args.y_stride;
}

template <typename T, ElementwiseOp op>
__global__ void elementwise_kernel(ElementwiseArgs args) {
  for_elements(args.row, [&](int row, int i) {
    const T* b = static_cast<const T*>(args.b) + row * args.b_stride;
    store(y_row<T>(args.row, row) + i, apply<op>(load(x_row<T>(args.row, row) + i), load(b + i)));
  });
}

// Rows hold 16 gates, then the 16 values that they scale, and so on.
template <typename T, typename Glu>
__device__ __forceinline__ void glu(const RowArgs& args, const Glu& of) {
  for_elements(args, [&](int row, int i) {
    const T* gate = x_row<T>(args, row) + i / 16 * 32 + i % 16;
    store(y_row<T>(args, row) + i, of(load(gate), load(gate + 16)));
  });
}

template <typename T>
__global__ void silu_mul_kernel(RowArgs args) {
  glu<T>(args, [](float gate, float value) { return silu(gate) * value; });
}

template <typename T>
__global__ void gelu_mul_kernel(RowArgs args) {
  glu<T>(args, [](float gate, float value) { return apply<kGeluTanh>(gate, 0.0f, 0.0f) * value; });
}

template <typename T>
__global__ void clamped_glu_kernel(RowArgs args, float alpha, float limit) {
  glu<T>(args, [=](float gate, float value) { return clamped_glu(gate, value, alpha, limit); });
}

template <typename From, typename To>
__global__ void copy_kernel(RowArgs args) {
  for_elements(args, [&](int row, int i) { store(y_row<To>(args, row) + i, load(x_row<From>(args, row) + i)); });
}

template <typename T>
__global__ void gather_row_kernel(RowArgs args, const int* current) {
  wait_for_inputs();
  launch_next();
  if (is_refused(args.refused)) return;
  const int row = min(max(*current - 1, 0), args.rows - 1);
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
  T* y = static_cast<T*>(args.y);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < args.cols; i += gridDim.x * blockDim.x) y[i] = x[i];
}

__global__ void zero_rows_kernel(uint16_t* y, int rows, int64_t row_elements, const int* live, const int* refused) {
  wait_for_inputs();
  launch_next();
  if (is_refused(refused)) return;
  const int64_t first = min(max(*live, 0), rows) * row_elements, end = rows * row_elements;
  for (int64_t i = first + int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < end;
       i += int64_t(gridDim.x) * blockDim.x)
    y[i] = 0;
}

constexpr int kThreads = 256;

// A grid has at most 65,535 rows of blocks.
dim3 grid_of(const RowArgs& args) {
  return dim3((args.cols + kThreads - 1) / kThreads, args.rows < 65535 ? args.rows : 65535);
}

template <typename Call>
void with_elem(Elem elem, const Call& call) {
  if (elem == kF16) call(__half());
  if (elem == kF32) call(float());
}

}  // namespace

void launch_stage(const StageArgs& args, cudaStream_t stream) {
  int64_t most = 0;
  for (int i = 0; i < args.count; ++i)
    most =
        most < args.inputs[i].row_bytes * args.inputs[i].rows ? args.inputs[i].row_bytes * args.inputs[i].rows : most;
  const int64_t blocks = (most + kThreads * 16 - 1) / (kThreads * 16);
  launch(stage_kernel,
         dim3(unsigned(blocks < 1     ? 1
                       : blocks > 256 ? 256
                                      : blocks),
              args.count),
         dim3(kThreads), 0, stream, args);
}

void launch_norm(Elem elem, const NormArgs& args, cudaStream_t stream) {
  const int threads = args.row.cols >= 4096 ? 512 : args.row.cols >= 512 ? (args.row.cols / 8 + 31) / 32 * 32 : 32;
  with_elem(elem, [&](auto t) {
    launch(norm_kernel<decltype(t)>, dim3(args.row.rows * args.groups), dim3(threads), 0, stream, args);
  });
}

template <int op = 0>
void launch_elementwise_from(ElementwiseOp wanted, Elem elem, const ElementwiseArgs& args, cudaStream_t stream) {
  if constexpr (op < kElementwiseOps) {
    if (op != wanted) return launch_elementwise_from<op + 1>(wanted, elem, args, stream);
    with_elem(elem, [&](auto t) {
      launch(elementwise_kernel<decltype(t), ElementwiseOp(op)>, grid_of(args.row), dim3(kThreads), 0, stream, args);
    });
  }
}

void launch_elementwise(ElementwiseOp op, Elem elem, const ElementwiseArgs& args, cudaStream_t stream) {
  launch_elementwise_from(op, elem, args, stream);
}

void launch_silu_mul(Elem elem, const RowArgs& args, cudaStream_t stream) {
  with_elem(elem,
            [&](auto t) { launch(silu_mul_kernel<decltype(t)>, grid_of(args), dim3(kThreads), 0, stream, args); });
}

void launch_gelu_mul(Elem elem, const RowArgs& args, cudaStream_t stream) {
  with_elem(elem,
            [&](auto t) { launch(gelu_mul_kernel<decltype(t)>, grid_of(args), dim3(kThreads), 0, stream, args); });
}

void launch_clamped_glu(Elem elem, const RowArgs& args, float alpha, float limit, cudaStream_t stream) {
  with_elem(elem, [&](auto t) {
    launch(clamped_glu_kernel<decltype(t)>, grid_of(args), dim3(kThreads), 0, stream, args, alpha, limit);
  });
}

void launch_copy(Elem from, Elem to, const RowArgs& args, cudaStream_t stream) {
  with_elem(from, [&](auto f) {
    with_elem(to, [&](auto t) {
      launch(copy_kernel<decltype(f), decltype(t)>, grid_of(args), dim3(kThreads), 0, stream, args);
    });
  });
}

void launch_gather_row(Elem elem, const RowArgs& args, const int* current, cudaStream_t stream) {
  with_elem(elem, [&](auto t) {
    launch(gather_row_kernel<decltype(t)>, dim3(grid_of(args).x), dim3(kThreads), 0, stream, args, current);
  });
}

void launch_zero_rows(void* y, int rows, int64_t row_bytes, const int* live, const int* refused, cudaStream_t stream) {
  const int64_t blocks = (rows * row_bytes / 2 + kThreads * 8 - 1) / (kThreads * 8);
  launch(zero_rows_kernel,
         dim3(unsigned(blocks < 1     ? 1
                       : blocks > 512 ? 512
                                      : blocks)),
         dim3(kThreads), 0, stream, static_cast<uint16_t*>(y), rows, row_bytes / 2, live, refused);
}

}  // namespace tcim_lite::cuda
