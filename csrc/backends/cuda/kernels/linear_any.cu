// A Linear of any format, shape and rows: a warp for each output, eight rows at a time. Also what
// remains of a Linear after a library's product.
#include "backends/cuda/kernels/linear_any.cuh"

namespace tcim_lite::cuda {
namespace {

using namespace any;

template <typename T, WeightFormat Format, bool QuantizeX>
__global__ void linear_kernel(LinearArgs args) {
  wait_for_inputs();
  launch_next();
  const int lane = threadIdx.x % 32;
  const bool silu_mul = args.epilogue == kSiluMul;
  const int64_t i = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int first = blockIdx.y * kRows, rows = min(live_rows(args) - first, kRows);
  if (rows <= 0 || i >= (silu_mul ? args.outputs / 2 : args.outputs) || is_refused(args)) return;
  const int64_t n = silu_mul ? i / 16 * 32 + i % 16 : i;
  float sums[kRows], ups[kRows];
  const auto row_of = [&](int r) { return static_cast<const T*>(args.x) + (first + r) * args.x_stride; };
  dots<T, Format, QuantizeX>(args.weights, args.inputs, n, rows, lane, row_of, sums);
  if (silu_mul) dots<T, Format, QuantizeX>(args.weights, args.inputs, n + 16, rows, lane, row_of, ups);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= rows || lane != r) continue;
    if (silu_mul) {
      finish_silu<T>(args, first + r, int(i), sums[r], ups[r]);
    } else {
      finish<T>(args, first + r, int(i), sums[r]);
    }
  }
}

// A thread for 8 columns of y; what is not aligned goes by single ones.
template <typename Acc>
__global__ void epilogue_kernel(LinearArgs args, const Acc* acc, bool aligned) {
  wait_for_inputs();
  launch_next();
  const int row = blockIdx.x;
  const bool silu_mul = args.epilogue == kSiluMul;
  const int count = silu_mul ? args.outputs / 2 : args.outputs;
  const int i = int(blockIdx.y * blockDim.x + threadIdx.x) * 8;
  if (i >= count || row >= live_rows(args) || is_refused(args)) return;
  acc += int64_t(row) * args.outputs;
  const int first = silu_mul ? i / 16 * 32 + i % 16 : i;
  if (!aligned || i + 8 > count) {
    for (int n = 0; n < 8 && i + n < count; ++n) {
      if (silu_mul) {
        finish_silu<__half>(args, row, i + n, load(acc + first + n), load(acc + first + n + 16));
      } else {
        finish<__half>(args, row, i + n, load(acc + i + n));
      }
    }
    return;
  }
  const auto product = [&](int at, float (&v)[8]) {
    load8(acc + at, v);
    if (args.bias != nullptr) {
      float bias[8];
      load8_weights(args.bias + at, bias);
#pragma unroll
      for (int n = 0; n < 8; ++n) v[n] += bias[n];
    }
    round_halves(v);
  };
  float v[8], other[8];
  product(first, v);
  if (silu_mul) {
    product(first + 16, other);
#pragma unroll
    for (int n = 0; n < 8; ++n) v[n] = silu(v[n]) * other[n];
  }
  if (args.epilogue == kAddResidual) {
    load8(static_cast<const __half*>(args.residual) + row * args.residual_stride + i, other);
#pragma unroll
    for (int n = 0; n < 8; ++n) v[n] += other[n];
  }
  store8_any(static_cast<__half*>(args.y) + row * args.y_stride + i, v);
}

}  // namespace

void launch_linear_any(Elem elem, WeightFormat format, const LinearArgs& args, bool quantize_x, cudaStream_t stream) {
  const int columns = args.epilogue == kSiluMul ? args.outputs / 2 : args.outputs;
  const dim3 grid((columns + kWarps - 1) / kWarps, (args.rows + kRows - 1) / kRows), block(32 * kWarps);
  with_kernel(elem, format, quantize_x, [&](auto t, auto chosen, auto quantizes) {
    const auto kernel = linear_kernel<decltype(t), decltype(chosen)::kValue, decltype(quantizes)::value>;
    launch(kernel, grid, block, 0, stream, args);
  });
}

void launch_linear_epilogue(const LinearArgs& args, Elem elem, const void* products, cudaStream_t stream) {
  const int columns = args.epilogue == kSiluMul ? args.outputs / 2 : args.outputs;
  const bool residual = args.epilogue == kAddResidual;
  const bool aligned =
      args.outputs % 8 == 0 && args.y_stride % 8 == 0 && reinterpret_cast<uintptr_t>(args.y) % 16 == 0 &&
      (!residual || (args.residual_stride % 8 == 0 && reinterpret_cast<uintptr_t>(args.residual) % 16 == 0));
  const dim3 grid(args.rows, (columns + 2047) / 2048), block(256);
  if (elem == kF16)
    launch(epilogue_kernel<__half>, grid, block, 0, stream, args, static_cast<const __half*>(products), aligned);
  if (elem == kF32)
    launch(epilogue_kernel<float>, grid, block, 0, stream, args, static_cast<const float*>(products), aligned);
}

}  // namespace tcim_lite::cuda
