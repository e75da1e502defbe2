// A Linear of any format, shape and rows: a warp for each output, eight rows at a time. Also what
// remains of a Linear after a library's product.
#include "backends/cuda/kernels/linear.cuh"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda {
namespace {

constexpr int kWarps = 8, kRows = 8;

// Weight (n, k) as float; quantised ones as code * scale (exact).
template <WeightFormat Format>
__device__ __forceinline__ float weight_at(const void* weights, int64_t n, int k, int inputs) {
  if constexpr (Format == WeightFormat::LinearF16)
    return __half2float(static_cast<const __half*>(weights)[n * inputs + k]);
  if constexpr (Format == WeightFormat::LinearF32) return static_cast<const float*>(weights)[n * inputs + k];
  constexpr WeightLayout kLayout = layout_of(Format);
  if constexpr (is_quantized(Format) && !has_items(Format)) {  // as packed
    const auto* block = static_cast<const uint8_t*>(weights) + n / 16 * block_bytes(kLayout, inputs);
    const int64_t group = k / kLayout.scale_inputs;
    const int32_t code = code_at(kLayout, block + codes_offset(kLayout, group), n % 16, k % kLayout.scale_inputs);
    const uint8_t* scales = block + scales_offset(kLayout, inputs, group);
    if constexpr (kLayout.scale_dtype == DType::Int8) return ldexpf(float(code), int8_t(scales[n % 16]));
    return float(code) * __half2float(reinterpret_cast<const __half*>(scales)[n % 16]);
  }
  constexpr bool kFour = Format == WeightFormat::LinearW4;
  const auto* item =
      static_cast<const uint8_t*>(weights) + (n / 16 * (inputs / 64) + k / 64) * (kFour ? kItemW4 : kItemW8);
  const int g = int(n % 8), high = int(n % 16 / 8), t = k % 64 / 16;
  const int lane = 4 * g + t;
  if constexpr (kFour) {
    const int byte = item[lane * 16 + k % 16];
    const int code = int(int8_t(uint8_t(high ? byte & 0xf0 : byte << 4))) / 16;
    return float(code) * __half2float(reinterpret_cast<const __half*>(item + 512)[2 * g + high]);
  }
  const int word = k % 8 / 4 * 2 + high;
  const int code = int8_t(item[k % 16 / 8 * 512 + lane * 16 + word * 4 + k % 4]);
  return ldexpf(float(code), int8_t(item[1024 + 2 * g + high]));
}

// A lane has one value of each half of a group of 64. Makes of them the codes of docs/numerics.md section 3 times 2^e.
__device__ __forceinline__ void round_to_group_codes(float (&v)[2]) {
  float amax = fmaxf(fabsf(v[0]), fabsf(v[1]));
#pragma unroll
  for (int lane = 1; lane < 32; lane *= 2) amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, lane));
  const int exponent = exponent_of(amax);
#pragma unroll
  for (int i = 0; i < 2; ++i) v[i] = (with_code(v[i], power_of_two(-exponent)) - kRounder) * power_of_two(exponent);
}

template <typename T, WeightFormat Format, bool QuantizeX>
__device__ void dots(const LinearArgs& args, int64_t n, int first, int rows, int lane, float* sums) {
  float acc[kRows] = {};
  constexpr int kAtOnce = QuantizeX ? 2 : 1;  // quantised: a group, whose inputs are a multiple of 64
  for (int k = lane; k < args.inputs; k += 32 * kAtOnce) {
    float w[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) w[i] = weight_at<Format>(args.weights, n, k + 32 * i, args.inputs);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= rows) continue;
      const T* x = static_cast<const T*>(args.x) + (first + r) * args.x_stride + k;
      float v[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) v[i] = load(x + 32 * i);
      if constexpr (QuantizeX) round_to_group_codes(v);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) acc[r] = fmaf(w[i], v[i], acc[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) sums[r] = warp_sum(acc[r]);
}

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
  dots<T, Format, QuantizeX>(args, n, first, rows, lane, sums);
  if (silu_mul) dots<T, Format, QuantizeX>(args, n + 16, first, rows, lane, ups);
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
  const int row = blockIdx.y;
  const bool silu_mul = args.epilogue == kSiluMul;
  const int count = silu_mul ? args.outputs / 2 : args.outputs;
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x) * 8;
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

template <typename T, WeightFormat Format>
void launch_format(const LinearArgs& args, bool quantize_x, cudaStream_t stream) {
  const int columns = args.epilogue == kSiluMul ? args.outputs / 2 : args.outputs;
  const dim3 grid((columns + kWarps - 1) / kWarps, (args.rows + kRows - 1) / kRows), block(32 * kWarps);
  if constexpr (is_quantized(Format) && !has_items(Format)) {
    if (quantize_x) return launch(linear_kernel<T, Format, true>, grid, block, 0, stream, args);
  }
  launch(linear_kernel<T, Format, false>, grid, block, 0, stream, args);
}

template <typename T>
void launch_any(WeightFormat format, const LinearArgs& args, bool quantize_x, cudaStream_t stream) {
  switch (format) {
    case WeightFormat::LinearW4:
      return launch_format<T, WeightFormat::LinearW4>(args, quantize_x, stream);
    case WeightFormat::LinearW8:
      return launch_format<T, WeightFormat::LinearW8>(args, quantize_x, stream);
    case WeightFormat::LinearF16:
      return launch_format<T, WeightFormat::LinearF16>(args, quantize_x, stream);
    case WeightFormat::LinearF32:
      return launch_format<T, WeightFormat::LinearF32>(args, quantize_x, stream);
    case WeightFormat::LinearMxfp4:
      return launch_format<T, WeightFormat::LinearMxfp4>(args, quantize_x, stream);
    case WeightFormat::Dense:
      return;  // validate() refuses it
  }
}

}  // namespace

void launch_linear_any(Elem elem, WeightFormat format, const LinearArgs& args, bool quantize_x, cudaStream_t stream) {
  if (elem == kF16) launch_any<__half>(format, args, quantize_x, stream);
  if (elem == kF32) launch_any<float>(format, args, quantize_x, stream);
}

void launch_linear_epilogue(const LinearArgs& args, Elem elem, const void* products, cudaStream_t stream) {
  const int columns = args.epilogue == kSiluMul ? args.outputs / 2 : args.outputs;
  const bool residual = args.epilogue == kAddResidual;
  const bool aligned =
      args.outputs % 8 == 0 && args.y_stride % 8 == 0 && reinterpret_cast<uintptr_t>(args.y) % 16 == 0 &&
      (!residual || (args.residual_stride % 8 == 0 && reinterpret_cast<uintptr_t>(args.residual) % 16 == 0));
  const dim3 grid((columns + 2047) / 2048, args.rows), block(256);
  if (elem == kF16)
    launch(epilogue_kernel<__half>, grid, block, 0, stream, args, static_cast<const __half*>(products), aligned);
  if (elem == kF32)
    launch(epilogue_kernel<float>, grid, block, 0, stream, args, static_cast<const float*>(products), aligned);
}

}  // namespace tcim_lite::cuda
