// float16 convolutions whose input has its channels last, on Hopper's matrix instructions: tiles of 128 pixels by 128
// or 64 outputs. A stage of the ring in shared memory is 64 terms, channels of a tap; both operands have rows of 64
// halves there, copied 16 bytes at a time and swizzled as operand_at() says. Sums are fp32.
#include "backends/cuda/kernels/product_end.cuh"
#include "backends/cuda/kernels/wgmma.cuh"

namespace tcim_lite::cuda {
namespace {

constexpr int kThreads = 256, kPixels = 128, kDepth = 64, kRowBytes = kDepth * 2;
constexpr int kRowsApart = kThreads / 8;  // from one row that a thread copies to the next: 8 threads copy a row
constexpr int kPixelsEach = kPixels / kRowsApart;

template <int Outputs>
struct Ring {
  static constexpr int kA = kPixels * kRowBytes, kStage = kA + Outputs * kRowBytes;
  static constexpr int kStages = Outputs == 128 ? 3 : 4;
  static constexpr int kResults = Results<Outputs, kPixels>::kBytes;
  static constexpr int kSpare = kResults > kStage ? kResults - kStage : 0;  // of results in the last place
  static constexpr int kBytes = kStages * kStage + kSpare + 1024;           // the ring begins at a multiple of 1,024
  static_assert(Outputs * kPixels * 2 <= kStage && kResults <= 2 * kStage);
};

#ifdef TCIM_LITE_HOPPER

// Shared memory that ordinary copies wrote, before the products read it.
__device__ __forceinline__ void publish_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#endif

template <int Outputs>
__global__ void __launch_bounds__(kThreads, 2) product_kernel(ProductArgs args, EndPlace place, int output_tiles) {
#ifdef TCIM_LITE_HOPPER
  using R = Ring<Outputs>;
  constexpr int kOutputsEach = Outputs / kRowsApart;
  extern __shared__ __align__(1024) char unaligned[];
  char* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  wait_for_inputs();
  launch_next();
  if (is_refused(args.refused)) return;
  const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, chunk = tid % 8;
  const int first_output = int(blockIdx.x % output_tiles) * Outputs,
            first_pixel = int(blockIdx.x / output_tiles) * kPixels;
  const auto* a = static_cast<const uint16_t*>(args.b);
  const WindowAxis &h = args.window.h, &w = args.window.w;

  __shared__ float bias[Outputs];
  if (tid < Outputs)
    bias[tid] = args.end.bias != nullptr && first_output + tid < args.m ? args.end.bias[first_output + tid] : 0.0f;

  // The pixels whose channels this thread copies, and of each where the tap's channels begin; -1: zeros.
  int y[kPixelsEach], x[kPixelsEach], image[kPixelsEach], offset[kPixelsEach];
  int channel = chunk * 8, tap_row = 0, tap_column = 0;
  const auto find_tap = [&] {
#pragma unroll
    for (int i = 0; i < kPixelsEach; ++i) {
      const int row = index_of(h, y[i] + tap_row * h.dilation), column = index_of(w, x[i] + tap_column * w.dilation);
      const bool inside = image[i] >= 0 && tap_row < h.kernel && row >= 0 && column >= 0;
      offset[i] = inside ? image[i] + (row * w.in + column) * args.channels : -1;
    }
  };
#pragma unroll
  for (int i = 0; i < kPixelsEach; ++i) {
    const int n = first_pixel + tid / 8 + i * kRowsApart, pixel = n % args.pixels;
    image[i] = n < args.columns ? n / args.pixels * int(args.b_image) : -1;
    y[i] = pixel / w.out * h.stride - h.pad;
    x[i] = pixel % w.out * w.stride - w.pad;
  }
  const auto enter_tap = [&] {
    bool moved = false;
    while (channel >= args.channels && tap_row < h.kernel) {
      channel -= args.channels;
      if (++tap_column == w.kernel) {
        tap_column = 0;
        ++tap_row;
      }
      moved = true;
    }
    if (moved) find_tap();
  };
  find_tap();
  enter_tap();

  const uint16_t* weights = static_cast<const uint16_t*>(args.a) +
                            int64_t(min(first_output + tid / 8, args.m - 1)) * args.a_stride + chunk * 8;
  int term = chunk * 8;  // of the next stage
  const uint32_t ring = shared_address(shared), mine = uint32_t(tid / 8 * kRowBytes + ((chunk ^ tid / 8) & 7) * 16);
  uint32_t filled = 0;  // where the next stage goes
  const auto fetch = [&] {
    const uint32_t to = ring + filled + mine;
#pragma unroll
    for (int i = 0; i < kPixelsEach; ++i) {
      const bool inside = offset[i] >= 0;
      copy_async_at(to + i * kRowsApart * kRowBytes, inside ? a + offset[i] + channel : a, inside ? 16 : 0);
    }
#pragma unroll
    for (int i = 0; i < kOutputsEach; ++i) {
      const bool inside = term < args.k && first_output + tid / 8 + i * kRowsApart < args.m;
      copy_async_at(to + R::kA + i * kRowsApart * kRowBytes,
                    inside ? weights + int64_t(i) * kRowsApart * args.a_stride : a, inside ? 16 : 0);
    }
    weights += kDepth;
    term += kDepth;
    channel += kDepth;
    enter_tap();
    filled = filled == (R::kStages - 1) * R::kStage ? 0 : filled + R::kStage;
  };

  // A residual that is last comes into the ring behind the last stage: rows of Outputs halves, one for each pixel.
  const int stages = (args.k + kDepth - 1) / kDepth;
  const bool takes_residual = args.y_last && args.end.residual != nullptr;
  uint32_t residual_at = 0;
  const auto fetch_residual = [&] {
    constexpr int kChunks = Outputs / 8;
    const auto* residual = static_cast<const __half*>(args.end.residual);
    residual_at = filled;
    const int output = tid % kChunks * 8;
#pragma unroll
    for (int pixel = tid / kChunks; pixel < kPixels; pixel += kThreads / kChunks) {
      const bool inside = first_output + output < args.m && first_pixel + pixel < args.columns;
      copy_async_at(
          ring + filled + (pixel * Outputs + output) * 2,
          inside ? residual + int64_t(args.first + first_pixel + pixel) * args.m + first_output + output : residual,
          inside ? 16 : 0);
    }
  };
  const auto fetch_stage = [&](int stage) {
    if (stage < stages) fetch();
    if (stage == stages && takes_residual) fetch_residual();
    commit_copies();
  };
#pragma unroll
  for (int i = 0; i < R::kStages - 1; ++i) fetch_stage(i);
  float acc[Outputs / 2] = {};
  uint32_t used = 0;
  for (int stage = 0; stage < stages; ++stage) {
    wait_for_copies<R::kStages - 2>();
    publish_copies();
    wait_for_sums(acc);  // of the stage before, whose place is free behind the barrier
    __syncthreads();
    begin_products();
    const uint32_t at = ring + used, rows = at + warp / 4 * 64 * kRowBytes;
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step)
      wgmma(acc, operand_at(rows) + 2 * step, operand_at(at + R::kA) + 2 * step);
    commit_products();
    fetch_stage(stage + R::kStages - 1);
    used = used == (R::kStages - 1) * R::kStage ? 0 : used + R::kStage;
  }
  wait_for_sums(acc);
  wait_for_copies<0>();
  __syncthreads();

  using E = Results<Outputs, kPixels>;
  const uint32_t results_at =
      !takes_residual || residual_at == (R::kStages - 1) * R::kStage ? 0 : residual_at + R::kStage;
  __half* results = reinterpret_cast<__half*>(shared + results_at);
  const int pixel = warp * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < Outputs / 8; ++j) {
    const int output = j * 8 + lane % 4 * 2;
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      const __half2 both{to_half(acc[4 * j + 2 * high] + bias[output]),
                         to_half(acc[4 * j + 2 * high + 1] + bias[output + 1])};
      const int row = pixel + high * 8;
      if (args.y_last) {
        *reinterpret_cast<__half2*>(results + row * E::kColumn + output) = both;
      } else {
        results[output * E::kRow + row] = __low2half(both);
        results[(output + 1) * E::kRow + row] = __high2half(both);
      }
    }
  }
  __syncthreads();
  if (takes_residual) {
    constexpr int kChunks = Outputs / 8;
    const int output = tid % kChunks * 8;
    if (first_output + output >= args.m) return;
    const char* residual = shared + residual_at + output * 2;
    auto* y = static_cast<__half*>(args.y) + int64_t(args.first + first_pixel) * args.m + first_output + output;
#pragma unroll
    for (int n = tid / kChunks; n < kPixels; n += kThreads / kChunks) {
      if (first_pixel + n >= args.columns) return;
      const uint4 raw = *reinterpret_cast<const uint4*>(results + n * E::kColumn + output);
      const uint4 other = *reinterpret_cast<const uint4*>(residual + n * Outputs * 2);
      *reinterpret_cast<uint4*>(y + int64_t(n) * args.m) = finish8(args.end, raw, true, other);
    }
    return;
  }
  store_results<Outputs, kPixels, kThreads>(args, place, results, 0, first_output, first_pixel);
#endif
}

template <int Outputs>
void launch_tiles(const ProductArgs& args, cudaStream_t stream) {
  const int output_tiles = (args.m + Outputs - 1) / Outputs, pixel_tiles = (args.columns + kPixels - 1) / kPixels;
  launch(product_kernel<Outputs>, dim3(unsigned(int64_t(output_tiles) * pixel_tiles)), dim3(kThreads),
         size_t(Ring<Outputs>::kBytes), stream, args, end_place(args), output_tiles);
}

}  // namespace

bool product_last_supports(const ProductArgs& args) {
  return linear_wgmma_supports(kF16) && args.b_last && args.count == 1 && args.k % 8 == 0 && args.a_stride % 8 == 0 &&
         (reinterpret_cast<uintptr_t>(args.a) | reinterpret_cast<uintptr_t>(args.b)) % 16 == 0 &&
         args.columns < INT32_MAX - kPixels && args.columns / args.pixels * args.b_image < INT32_MAX;
}

void launch_product_last(const ProductArgs& args, cudaStream_t stream) {
  const auto cost = [&](int outputs, double factor) {
    const int64_t tiles = int64_t((args.m + outputs - 1) / outputs) * ((args.columns + kPixels - 1) / kPixels);
    return double((tiles + multiprocessors() - 1) / multiprocessors()) * outputs * factor;
  };
  if (cost(128, 1.0) <= cost(64, 1.15)) return launch_tiles<128>(args, stream);
  launch_tiles<64>(args, stream);
}

void prepare_product_last() {
  if (!linear_wgmma_supports(kF16)) return;  // other GPUs have no room for the ring
  CUDA_CHECK(cudaFuncSetAttribute(product_kernel<128>, cudaFuncAttributeMaxDynamicSharedMemorySize, Ring<128>::kBytes));
  CUDA_CHECK(cudaFuncSetAttribute(product_kernel<64>, cudaFuncAttributeMaxDynamicSharedMemorySize, Ring<64>::kBytes));
}

}  // namespace tcim_lite::cuda
