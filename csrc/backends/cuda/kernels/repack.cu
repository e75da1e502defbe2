// Weights from the packed layout of graph/weight_format.h to the one the kernels read.
//
// Quantised, per 16 outputs and 64 inputs one item. Lane l = 4 g + t of a warp holds 16 inputs (16 t ..) of outputs g
// and g + 8, in the order of the A operand of mma.m16n8k32; inputs are permuted within the item, activations alike.
//   LinearW4  lane: 4 words; byte b of word i holds input 16 t + 4 i + b of output g in its low nibble and of g + 8 in
//   its
//             high one, as signed codes. Then for each g the fp16 scales of outputs g and g + 8.
//   LinearW8  two halves j of 512 bytes, lane: words (g, +0..3) (g + 8, +0..3) (g, +4..7) (g + 8, +4..7) of inputs
//             16 t + 8 j. Then for each g the exponents of outputs g and g + 8.
// Float weights: row by row, outputs padded to a multiple of 16. Other quantised formats stay as they are packed.
#include "backends/cuda/kernels/linear.cuh"

namespace tcim_lite::cuda {
namespace {

template <WeightFormat Format>
__device__ int code_of(const uint8_t* codes, int n, int k) {
  constexpr WeightLayout kLayout = layout_of(Format);  // the table itself is not in device memory
  return code_at(kLayout, codes, n, k);
}

// `codes` and `scales` of one group.
__device__ uint8_t item_byte_w4(const uint8_t* codes, const uint8_t* scales, int at) {
  if (at >= 512) {
    const int g = (at - 512) / 4, part = (at - 512) % 4;
    return scales[(g + part / 2 * 8) * 2 + part % 2];
  }
  const int lane = at / 16, word = at / 4 % 4, byte = at % 4;
  const int k = 16 * (lane % 4) + 4 * word + byte, g = lane / 4;
  const int low = code_of<WeightFormat::LinearW4>(codes, g, k), high = code_of<WeightFormat::LinearW4>(codes, g + 8, k);
  return uint8_t((low & 15) | (high & 15) << 4);
}

__device__ uint8_t item_byte_w8(const uint8_t* codes, const uint8_t* scales, int at) {
  if (at >= 1024) return scales[(at - 1024) / 2 + (at - 1024) % 2 * 8];
  const int half = at / 512, lane = at % 512 / 16, word = at / 4 % 4, byte = at % 4;
  const int k = 16 * (lane % 4) + 8 * half + 4 * (word / 2) + byte;
  return uint8_t(code_of<WeightFormat::LinearW8>(codes, lane / 4 + 8 * (word % 2), k));
}

// Whether an output of an item of 8 bits has a code that is not 0.
__device__ bool has_codes_w8(const uint8_t* item, int n) {
  uint32_t any = 0;
  for (int i = 0; i < 16; ++i) {
    const int half = i / 8, lane = 4 * (n % 8) + i / 2 % 4, word = i % 2 * 2 + n / 8;
    any |= *reinterpret_cast<const uint32_t*>(item + 512 * half + 16 * lane + 4 * word);
  }
  return any != 0;
}

// What linear_wgmma.cu takes. 4 bits: 8 times the scale is an fp16 number. 8 bits: so are the scale and 1024 + 128
// times it, unless all codes are 0.
template <WeightFormat Format>
__device__ bool scale_fits(const uint8_t* item, int n) {
  if constexpr (Format == WeightFormat::LinearW4) {
    return fabsf(__half2float(reinterpret_cast<const __half*>(item + kScalesW4)[n])) <= 65504.0f / 8;
  } else {
    const int exponent = int8_t(item[1024 + n]);
    const int output = n / 2 + n % 2 * 8;
    return exponent <= 5 && (exponent >= -24 || !has_codes_w8(item, output));
  }
}

template <WeightFormat Format>
__global__ void scales_kernel(const uint8_t* weights, int64_t items, int* outside) {
  constexpr int kItem = Format == WeightFormat::LinearW4 ? kItemW4 : kItemW8;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < items * 16;
       i += int64_t(gridDim.x) * blockDim.x) {
    if (!scale_fits<Format>(weights + i / 16 * kItem, int(i % 16))) *outside = 1;
  }
}

template <WeightFormat Format>
__global__ void repack_items(const uint8_t* packed, uint8_t* placed, int64_t blocks, int inputs, int64_t block_stride) {
  constexpr int kItem = Format == WeightFormat::LinearW4 ? kItemW4 : kItemW8;
  constexpr WeightLayout kLayout = layout_of(Format);
  const int groups = inputs / 64;
  const int64_t bytes = blocks * groups * kItem;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < bytes; i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t item = i / kItem;
    const int group = int(item % groups), at = int(i % kItem);
    const uint8_t* block = packed + item / groups * block_stride;
    const uint8_t* codes = block + codes_offset(kLayout, group);
    const uint8_t* scales = block + scales_offset(kLayout, inputs, group);
    placed[i] = Format == WeightFormat::LinearW4 ? item_byte_w4(codes, scales, at) : item_byte_w8(codes, scales, at);
  }
}

// block_stride in elements.
template <WeightFormat Format, typename T>
__global__ void repack_rows(const T* packed, T* placed, int64_t padded_outputs, int inputs, int64_t block_stride) {
  constexpr WeightLayout kLayout = layout_of(Format);
  const int64_t count = padded_outputs * inputs;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t n = i / inputs;
    const int k = int(i % inputs);
    placed[i] = packed[n / 16 * block_stride + float_offset(kLayout, n % 16, k)];
  }
}

int64_t padded(int64_t outputs) { return (outputs + 15) / 16 * 16; }

}  // namespace

int64_t placed_bytes(WeightFormat format, int64_t outputs, int64_t inputs) {
  switch (format) {
    case WeightFormat::LinearW4:
      return padded(outputs) / 16 * (inputs / 64) * kItemW4;
    case WeightFormat::LinearW8:
      return padded(outputs) / 16 * (inputs / 64) * kItemW8;
    case WeightFormat::LinearF16:
      return padded(outputs) * inputs * 2;
    case WeightFormat::LinearF32:
      return padded(outputs) * inputs * 4;
    default:
      return packed_bytes(format, outputs, inputs);  // 0 of Dense
  }
}

void launch_repack(WeightFormat format, const void* packed, void* placed, int64_t outputs, int64_t inputs,
                   cudaStream_t stream) {
  const dim3 grid(2048), block(256);
  const int64_t blocks = padded(outputs) / 16, stride = block_bytes(format, inputs);
  const auto* from = static_cast<const uint8_t*>(packed);
  auto* to = static_cast<uint8_t*>(placed);
  if (is_quantized(format) && !has_items(format)) {
    CUDA_CHECK(cudaMemcpyAsync(placed, packed, size_t(blocks * stride), cudaMemcpyDeviceToDevice, stream));
    return;
  }
  break_overlap();
  if (format == WeightFormat::LinearW4)
    launch(repack_items<WeightFormat::LinearW4>, grid, block, 0, stream, from, to, blocks, int(inputs), stride);
  if (format == WeightFormat::LinearW8)
    launch(repack_items<WeightFormat::LinearW8>, grid, block, 0, stream, from, to, blocks, int(inputs), stride);
  if (format == WeightFormat::LinearF16)
    launch(repack_rows<WeightFormat::LinearF16, uint16_t>, grid, block, 0, stream, static_cast<const uint16_t*>(packed),
           static_cast<uint16_t*>(placed), blocks * 16, int(inputs), stride / 2);
  if (format == WeightFormat::LinearF32)
    launch(repack_rows<WeightFormat::LinearF32, uint32_t>, grid, block, 0, stream, static_cast<const uint32_t*>(packed),
           static_cast<uint32_t*>(placed), blocks * 16, int(inputs), stride / 4);
}

void launch_scales_check(WeightFormat format, const void* weights, int64_t outputs, int64_t inputs, int* outside,
                         cudaStream_t stream) {
  const auto* from = static_cast<const uint8_t*>(weights);
  const int64_t items = padded(outputs) / 16 * (inputs / 64);
  break_overlap();
  const auto kernel =
      format == WeightFormat::LinearW4 ? scales_kernel<WeightFormat::LinearW4> : scales_kernel<WeightFormat::LinearW8>;
  launch(kernel, dim3(512), dim3(256), 0, stream, from, items, outside);
}

}  // namespace tcim_lite::cuda
