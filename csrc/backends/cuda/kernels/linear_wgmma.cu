// A Linear of many rows and quantised weights on Hopper's tensor cores.
//
// An activation's code times its power of two is an fp16 number (docs/numerics.md section 3: it is a multiple of 2^-24,
// 127 * 2^9 at most), and a weight's code is one, too: fp16 products with fp32 sums give a group's dot times the
// activations' scale exactly, and one FMA per sum and group adds it times the weights' scale. The int8 tensor cores are
// twice as fast, but would take three operations per sum and group on the CUDA cores, which then set the pace.
//
// A block has three warpgroups, or two, with 64 outputs each for 128 or 64 rows, and four warps that fetch: groups of
// 64 inputs come by bulk copies through a ring. While a warpgroup scales its sums, the others' products keep the tensor
// cores busy. Blocks of a cluster share a tile and split its inputs.
#include <algorithm>
#include <atomic>

#include "backends/cuda/kernels/linear_wgmma.cuh"

namespace tcim_lite::cuda {
namespace {

template <WeightFormat Format, int Groups, int Rows>
struct Ring {
  using Tile = WgmmaTile<Groups, Rows>;
  static constexpr int kItem = Format == WeightFormat::LinearW4 ? kItemW4 : kItemW8;
  static constexpr int kItems = Tile::kOutputs / 16;
  static constexpr int kOperandBytes = Rows * kOperandRowBytes, kStageBytes = kOperandBytes + kItems * kItem;
  static constexpr int kStages = 216 * 1024 / kStageBytes < 12 ? 216 * 1024 / kStageBytes : 12;
  static constexpr int kBytes = kStages * kStageBytes > Tile::kEndBytes ? kStages* kStageBytes : Tile::kEndBytes;
};

#ifdef TCIM_LITE_HOPPER

__device__ __forceinline__ uint32_t halves_minus(uint32_t v, float bias) {
  const __half2 difference = __hsub2(*reinterpret_cast<const __half2*>(&v), __float2half2_rn(bias));
  return *reinterpret_cast<const uint32_t*>(&difference);
}

// Weights of an item as operand a of four products, each of 16 inputs. 0x6400 is 1024 in fp16, whose last bit is 1.
template <WeightFormat Format>
__device__ __forceinline__ void read_item(const char* item, int lane, uint32_t (&a)[4][4], float (&scale)[2]) {
  const int g = lane / 4;
  const uint4 first = *reinterpret_cast<const uint4*>(item + lane * 16);
  if constexpr (Format == WeightFormat::LinearW4) {
    const uint32_t words[4] = {first.x, first.y, first.z, first.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const uint32_t w = words[i] >> (8 * part);
        a[i][2 * part] = halves_minus((w & 0x000f000f) ^ 0x64086408, 1024 + 8);
        const uint32_t high = (w & 0x00f000f0) ^ 0x64806480;  // 1024 + 16 (code + 8)
        const __half2 code =
            __hfma2(*reinterpret_cast<const __half2*>(&high), __float2half2_rn(1.0f / 16), __float2half2_rn(-64 - 8));
        a[i][2 * part + 1] = *reinterpret_cast<const uint32_t*>(&code);
      }
    }
    const float2 both = __half22float2(*reinterpret_cast<const __half2*>(item + 512 + 4 * g));
    scale[0] = both.x, scale[1] = both.y;
  } else {
    const uint4 second = *reinterpret_cast<const uint4*>(item + 512 + lane * 16);
    const uint32_t words[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const uint32_t w = words[2 * i + part % 2] >> (part / 2 * 8);
        a[i][part] = halves_minus((w & 0x00ff00ff) ^ 0x64806480, 1024 + 128);
      }
    }
    const int both = *reinterpret_cast<const int16_t*>(item + 1024 + 2 * g);
    scale[0] = power_of_two(int8_t(both & 0xff)), scale[1] = power_of_two(both >> 8);
  }
}

#endif

// Grid: (splits, tiles of rows, tiles of outputs); a cluster is the splits of a tile.
template <WeightFormat Format, int Groups, int Rows>
__global__ void __launch_bounds__(128 * (Groups + 1), 1)
    wgmma_kernel(LinearArgs args, const char* operand, int padded_rows) {
#ifdef TCIM_LITE_HOPPER
  using R = Ring<Format, Groups, Rows>;
  using Tile = typename R::Tile;
  extern __shared__ __align__(1024) char shared[];
  __shared__ uint64_t filled[R::kStages], emptied[R::kStages];
  char* const items = shared + R::kStages * R::kOperandBytes;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rank = blockIdx.x, splits = gridDim.x;
  const int all_groups = args.inputs / 64, blocks = (args.outputs + 15) / 16;
  const int begin = all_groups * rank / splits, groups = all_groups * (rank + 1) / splits - begin;
  const int ahead = min(groups, R::kStages);  // what the ring holds at first
  const int first_row = blockIdx.y * Rows;
  const int64_t first_output = int64_t(blockIdx.z) * Tile::kOutputs;
  if (threadIdx.x == 0) {
    for (int i = 0; i < R::kStages; ++i) init_barrier(&filled[i], 4), init_barrier(&emptied[i], 4 * Groups);
    publish_barriers();
  }
  __syncthreads();

  if (warp >= 4 * Groups) {
    if constexpr (Groups == 3) leave_registers<32>();
    // One thread of each of four warps, because requesting an item takes about a hundred clocks.
    if (lane != 0) return;
    const int part = warp - 4 * Groups;  // of the items, which are 4 * Groups
    const char* item[Groups];
#pragma unroll
    for (int n = 0; n < Groups; ++n) {
      const int64_t block = min(first_output / 16 + part * Groups + n, int64_t(blocks - 1));
      item[n] = static_cast<const char*>(args.weights) + (block * all_groups + begin) * R::kItem;
    }
    const auto fetch_items = [&](int stage) {
      expect_bytes(&filled[stage], Groups * R::kItem + (part == 0 ? R::kOperandBytes : 0));
#pragma unroll
      for (int n = 0; n < Groups; ++n) {
        copy_bulk(items + (stage * R::kItems + part * Groups + n) * R::kItem, item[n], R::kItem, &filled[stage]);
        item[n] += R::kItem;
      }
    };
    const char* from = operand + (int64_t(begin) * padded_rows + first_row) * kOperandRowBytes;
    const auto fetch_operand = [&](int stage) {
      if (part == 0) copy_bulk(shared + stage * R::kOperandBytes, from, R::kOperandBytes, &filled[stage]);
      from += int64_t(padded_rows) * kOperandRowBytes;
      arrive(&filled[stage]);
    };
    // Weights are there before the launch that writes x is done.
    for (int i = 0; i < ahead; ++i) fetch_items(i);
    wait_for_inputs();
    for (int i = 0; i < ahead; ++i) fetch_operand(i);
    if (first_row >= live_rows(args)) return;
    for (int i = ahead, stage = 0, parity = 0; i < groups; ++i) {
      wait_barrier(&emptied[stage], parity);
      fetch_items(stage);
      fetch_operand(stage);
      if (++stage == R::kStages) stage = 0, parity ^= 1;
    }
  } else {
    if constexpr (Groups == 3) take_registers<160>();
    wait_for_inputs();
    launch_next();
    const int rows = live_rows(args);
    if (first_row >= rows) {  // what is on its way still lands here
      for (int i = 0; i < ahead; ++i) wait_barrier(&filled[i], 0);
      return;
    }
    float acc[Rows / 2] = {}, dot[Rows / 2] = {};
    for (int i = 0, stage = 0, parity = 0; i < groups; ++i) {
      wait_barrier(&filled[stage], parity);
      uint32_t a[4][4];
      float scale[2];
      read_item<Format>(items + (stage * R::kItems + warp) * R::kItem, lane, a, scale);
      const uint64_t b = operand_at(shared_address(shared + stage * R::kOperandBytes));
      begin_products();
#pragma unroll
      for (int k = 0; k < 4; ++k) wgmma(dot, a[k], b + 2 * k, k > 0);
      commit_products();
      wait_for_products(dot, a);
      if (lane == 0) arrive(&emptied[stage]);
#pragma unroll
      for (int n = 0; n < Rows / 2; ++n) acc[n] = fmaf(dot[n], scale[n / 2 % 2], acc[n]);
      if (++stage == R::kStages) stage = 0, parity ^= 1;
    }
    if (is_refused(args)) return;
    sync_consumers<Tile::kThreads>();
    if (splits > 1) add_splits<Tile>(acc, shared, rank, splits);
    char* const tile = shared + Tile::most_received();
    const int first = first_column<Tile>(rank, splits), last = first_column<Tile>(rank + 1, splits);
    round_to_tile<Tile>(acc, args, tile, first_output, first, last);
    sync_consumers<Tile::kThreads>();
    store_tile<Tile>(args, tile, first_output, first_row, first * 8, last * 8, rows);
  }
#endif
}

struct Choice {
  int groups, rows, splits;
};

// Nanoseconds of a block, measured on an H200: for each group of 64 inputs, and besides.
double group_cost(WeightFormat format, int groups, int rows) {
  const double cost = groups == 3 ? (rows == 128 ? 790 : 490) : (rows == 128 ? 530 : 390);
  return format == WeightFormat::LinearW4 || (groups == 3 && rows == 128) ? cost : cost + 50;
}
double fixed_cost(int rows, int splits) {
  if (splits == 1) return 1500;
  return rows == 128 ? 6500 + 500 * splits : 2500 + 850 * splits;
}

constexpr int kMostGpus = 64;
std::atomic<int> g_clusters_at_once[kMostGpus][kMostSplits + 1];

int current_gpu() {
  int gpu = 0;
  CUDA_CHECK(cudaGetDevice(&gpu));
  return gpu % kMostGpus;
}

template <WeightFormat Format>
Choice choose(const LinearArgs& args) {
  const auto& at_once = g_clusters_at_once[current_gpu()];
  const int inner = args.inputs / 64;
  Choice best{3, 128, 1};
  double least = 1e30;
  for (const int groups : {3, 2}) {
    for (const int rows : {128, 64}) {
      const int tiles = (args.outputs + 64 * groups - 1) / (64 * groups) * ((args.rows + rows - 1) / rows);
      for (int splits = 1; splits <= std::min(kMostSplits, inner); ++splits) {
        if (at_once[splits] == 0) continue;
        const int waves = (tiles + at_once[splits] - 1) / at_once[splits];
        const int most_groups = (inner + splits - 1) / splits;
        const double cost = waves * (most_groups * group_cost(Format, groups, rows) + fixed_cost(rows, splits));
        if (cost < least) least = cost, best = {groups, rows, splits};
      }
    }
  }
  return best;
}

template <WeightFormat Format, int Groups, int Rows>
void launch_tiles(const LinearArgs& args, const char* operand, int splits, cudaStream_t stream) {
  const auto tiles = [](int size, int of) { return unsigned((size + of - 1) / of); };
  launch_in_clusters(splits, wgmma_kernel<Format, Groups, Rows>,
                     dim3(unsigned(splits), tiles(args.rows, Rows), tiles(args.outputs, 64 * Groups)),
                     dim3(128 * (Groups + 1)), Ring<Format, Groups, Rows>::kBytes, stream, args, operand,
                     int(operand_rows(args.rows)));
}

template <WeightFormat Format>
void launch_format(const LinearArgs& args, const char* operand, cudaStream_t stream) {
  const Choice choice = choose<Format>(args);
  if (choice.groups == 3 && choice.rows == 128) launch_tiles<Format, 3, 128>(args, operand, choice.splits, stream);
  if (choice.groups == 3 && choice.rows == 64) launch_tiles<Format, 3, 64>(args, operand, choice.splits, stream);
  if (choice.groups == 2 && choice.rows == 128) launch_tiles<Format, 2, 128>(args, operand, choice.splits, stream);
  if (choice.groups == 2 && choice.rows == 64) launch_tiles<Format, 2, 64>(args, operand, choice.splits, stream);
}

template <WeightFormat Format, int Groups, int Rows>
void allow() {
  CUDA_CHECK(cudaFuncSetAttribute(wgmma_kernel<Format, Groups, Rows>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  Ring<Format, Groups, Rows>::kBytes));
}

template <WeightFormat Format>
void allow_format() {
  allow<Format, 3, 128>();
  allow<Format, 3, 64>();
  allow<Format, 2, 128>();
  allow<Format, 2, 64>();
}

}  // namespace

bool linear_wgmma_supports(Elem elem) { return elem == kF16 && g_clusters_at_once[current_gpu()][1] > 0; }

void launch_linear_wgmma(WeightFormat format, const LinearArgs& args, void* scratch, cudaStream_t stream) {
  launch_operand(args, scratch, stream);
  const char* const operand = static_cast<const char*>(scratch);
  if (format == WeightFormat::LinearW4) launch_format<WeightFormat::LinearW4>(args, operand, stream);
  if (format == WeightFormat::LinearW8) launch_format<WeightFormat::LinearW8>(args, operand, stream);
}

// Blocks run at once on no other GPU than Hopper: built for others, the kernel is empty, without barriers.
void prepare_linear_wgmma() {
  auto& at_once = g_clusters_at_once[current_gpu()];
  const auto kernel = wgmma_kernel<WeightFormat::LinearW8, 3, 128>;
  constexpr int kBytes = Ring<WeightFormat::LinearW8, 3, 128>::kBytes;
  cudaFuncAttributes attributes{};
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  if (attributes.sharedSizeBytes == 0 || most_shared() < kBytes + attributes.sharedSizeBytes || at_once[1] > 0) return;
  allow_format<WeightFormat::LinearW4>();
  allow_format<WeightFormat::LinearW8>();
  for (int splits = kMostSplits; splits >= 1; --splits) {
    int count = 0;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = unsigned(splits);
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(unsigned(splits));
    config.blockDim = dim3(128 * 4);
    config.dynamicSmemBytes = kBytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CUDA_CHECK(cudaOccupancyMaxActiveClusters(&count, kernel, &config));
    at_once[splits] = count;
  }
}

}  // namespace tcim_lite::cuda
