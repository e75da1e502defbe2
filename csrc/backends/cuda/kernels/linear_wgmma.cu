// A Linear of many rows and quantised weights on Hopper's tensor cores.
//
// An activation's code times its power of two is an fp16 number (docs/numerics.md section 3: it is a multiple of 2^-24,
// 127 * 2^9 at most). A weight's code times its scale is one too if the scale is a power of two, and is rounded to one
// otherwise: by 2^-11 of itself at most. So the fp32 sums of fp16 products run over all inputs within the tensor cores.
// Scales that leave fp16's range are not for this kernel (launch_scales_check).
//
// A block has three warpgroups, or two, with 64 outputs each for 128 or 64 rows, and four warps that fetch: groups of
// 64 inputs come by bulk copies through a ring. A warpgroup widens the codes of 32 inputs while its products of the 32
// before run. An instruction of the CUDA cores beside products takes 2.5 clocks of its scheduler, so the loop has as
// few as possible. Blocks of a cluster split the inputs of a tile.
#include <algorithm>

#include "backends/cuda/kernels/linear_wgmma.cuh"
#include "backends/cuda/kernels/linear_wgmma_choice.h"
#include "backends/cuda/kernels/linear_wgmma_codes.cuh"

namespace tcim_lite::cuda {
namespace {

// A stage has the rows of `kDepth` groups of 64 inputs, then their items, of each 16 outputs one behind the other.
template <WeightFormat Format, int Groups, int Rows>
struct Ring {
  using Tile = WgmmaTile<Groups, Rows>;
  static constexpr int kDepth = 2;
  static constexpr int kItem = Format == WeightFormat::LinearW4 ? kItemW4 : kItemW8;
  static constexpr int kItems = Tile::kOutputs / 16;
  static constexpr int kOperand = Rows * kOperandRowBytes;  // of a group
  static constexpr int kItemsAt = kDepth * kOperand, kUsed = kItemsAt + kItems * kDepth * kItem;
  static constexpr int kStage = (kUsed + 1023) / 1024 * 1024;
  static constexpr int kStages = std::min(224 * 1024 / kStage, 8);
  static constexpr int kBytes = std::max(kStages * kStage, Tile::kEndBytes);
  // Of two tiles one behind the other: the first ends in the last stages, while the others fill for the second.
  static constexpr int kEndStages = (Tile::kResultsBytes + kStage - 1) / kStage;
  static constexpr int kKeptAt = kStages * kStage, kPairBytes = kKeptAt + Tile::kKeptBytes;
  static_assert(kEndStages < kStages);
  static constexpr bool ends_with_the_ring(int groups) { return groups % (kDepth * kStages) == 0; }
};

// Grid: (splits, tiles of rows, tiles of outputs); a cluster is the splits of a tile. As a Pair a block has two tiles
// of outputs, one behind the other, whose inputs fill the ring to its end; y is the operand of the next Linear.
template <WeightFormat Format, int Groups, int Rows, bool Pair>
__global__ void __launch_bounds__(128 * (Groups + 1), 1)
    wgmma_kernel(LinearArgs args, const char* operand, int padded_rows) {
#ifdef TCIM_LITE_HOPPER
  using R = Ring<Format, Groups, Rows>;
  using Tile = typename R::Tile;
  constexpr int kTiles = Pair ? 2 : 1;
  constexpr int kDepth = R::kDepth;
  extern __shared__ __align__(1024) char shared[];
  __shared__ uint64_t filled[R::kStages], emptied[R::kStages], received;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rank = blockIdx.x, splits = gridDim.x;
  const int all_groups = args.inputs / 64, blocks = (args.outputs + 15) / 16;
  const int begin = all_groups * rank / splits, groups = all_groups * (rank + 1) / splits - begin;
  const int stages = (groups + kDepth - 1) / kDepth, ahead = min(stages, R::kStages);  // what the ring holds at first
  const int first_row = blockIdx.y * Rows;
  const int64_t first_output = int64_t(blockIdx.z) * kTiles * Tile::kOutputs;
  if (threadIdx.x == 0) {
    for (int i = 0; i < R::kStages; ++i) init_barrier(&filled[i], 4), init_barrier(&emptied[i], 4 * Groups);
    init_barrier(&received, 1);
    publish_barriers();
  }
  __syncthreads();

  if (warp >= 4 * Groups) {
    leave_registers<32>();  // where they change hands the compiler keeps the loop's counters in uniform registers
    // One thread of each of four warps, because requesting an item takes about a hundred clocks.
    if (lane != 0) return;
    const int part = warp - 4 * Groups;  // of the items, which are 4 * Groups
    const char* item[Groups];
    const auto find_items = [&](int64_t output) {
#pragma unroll
      for (int n = 0; n < Groups; ++n) {
        const int64_t block = min(output / 16 + part * Groups + n, int64_t(blocks - 1));
        item[n] = static_cast<const char*>(args.weights) + (block * all_groups + begin) * R::kItem;
      }
    };
    find_items(first_output);
    // Of stage i, at place `place` of the ring. The last stage may have one group.
    const auto fetch_items = [&](int i, int place) {
      const int now = min(kDepth, groups - kDepth * i);
      expect_bytes(&filled[place], now * (Groups * R::kItem + (part == 0 ? R::kOperand : 0)));
      char* const to = shared + place * R::kStage + R::kItemsAt + part * Groups * kDepth * R::kItem;
#pragma unroll
      for (int n = 0; n < Groups; ++n) {
        copy_bulk(to + n * kDepth * R::kItem, item[n], now * R::kItem, &filled[place]);
        item[n] += kDepth * R::kItem;
      }
    };
    const char* const first_operand = operand + (int64_t(begin) * padded_rows + first_row) * kOperandRowBytes;
    const char* from = first_operand;
    const auto fetch_operand = [&](int i, int place) {
      const int now = min(kDepth, groups - kDepth * i);
      for (int n = 0; n < now; ++n) {
        if (part == 0) copy_bulk(shared + place * R::kStage + n * R::kOperand, from, R::kOperand, &filled[place]);
        from += int64_t(padded_rows) * kOperandRowBytes;
      }
      arrive(&filled[place]);
    };
    // Weights are there before the launch that writes x is done.
    for (int i = 0; i < ahead; ++i) fetch_items(i, i);
    wait_for_inputs();
    for (int i = 0; i < ahead; ++i) fetch_operand(i, i);
    if (first_row >= live_rows(args)) return;
    for (int tile = 0, place = 0, parity = 0; tile < kTiles; ++tile) {
      if (tile > 0) find_items(first_output + Tile::kOutputs), from = first_operand;
      for (int i = tile == 0 ? ahead : 0; i < stages; ++i) {
        wait_barrier(&emptied[place], parity);
        fetch_items(i, place);
        fetch_operand(i, place);
        if (++place == R::kStages) place = 0, parity ^= 1;
      }
    }
  } else {
    take_registers<Groups == 3 ? 160 : 232>();
    wait_for_inputs();
    launch_next();
    const int rows = live_rows(args);
    if (first_row >= rows) {  // what is on its way still lands here
      for (int i = 0; i < ahead; ++i) wait_barrier(&filled[i], 0);
      return;
    }
    uint32_t a[2][2][4] = {};  // of 32 inputs; products of the ones before run while these change
    // Numbers that the compiler does not know stay in registers, so that one instruction masks codes and adds them.
    const typename Codes<Format>::Bias bias(uint32_t(args.rows) >> 31);
    const char* const own = shared + R::kItemsAt + warp * kDepth * R::kItem;
    const uint64_t first_operand = operand_at(shared_address(shared));
    int before = 0, place = 0, parity = 0;  // before: the place in the ring of the stage before
#pragma unroll 1
    for (int tile = 0; tile < kTiles; ++tile) {
      float acc[Rows / 2] = {};
      for (int done = 0; done < groups; done += kDepth) {
        wait_barrier(&filled[place], parity);
        const bool frees = done > 0 && (!Pair || done + kDepth * (R::kEndStages - 1) < groups);
#pragma unroll
        for (int group = 0; group < kDepth; ++group) {
          if (group > 0 && done + group == groups) break;
          const Codes<Format> codes(own + place * R::kStage + group * R::kItem, lane);
          const uint64_t b = first_operand + uint64_t(place * (R::kStage / 16) + group * (R::kOperand / 16));
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            wait_for_products<1>(a[half]);
            if (group == 0 && half == 1 && frees && lane == 0) arrive(&emptied[before]);
#pragma unroll
            for (int step = 0; step < 2; ++step) codes.widen(2 * half + step, bias, a[half][step]);
            begin_products();
#pragma unroll
            for (int step = 0; step < 2; ++step) wgmma(acc, a[half][step], b + 2 * (2 * half + step));
            commit_products();
          }
        }
        before = place;
        if (++place == R::kStages) place = 0, parity ^= 1;
      }
      wait_for_products<0>(a[0]);
      wait_for_products<0>(a[1]);
      wait_for_sums(acc);
      if (!Pair && is_refused(args)) return;
      sync_consumers<Tile::kThreads>();
      if constexpr (Pair) {
        const Ending<Tile> ending(args, shared + (R::kStages - R::kEndStages) * R::kStage, 0, 1,
                                  first_output + tile * Tile::kOutputs, first_row, rows);
        ending.round(acc);
        sync_consumers<Tile::kThreads>();
        ending.leave_operand(tile, shared + R::kKeptAt, padded_rows);
        if (tile + 1 == kTiles) return;
        publish_shared();
        __syncwarp();
        if (lane < R::kEndStages) arrive(&emptied[R::kStages - 1 - lane]);
      } else {
        const Ending<Tile> ending(args, shared, rank, splits, first_output, first_row, rows);
        if (splits > 1) ending.begin_exchange(&received);
        ending.fetch_residual();
        if (splits == 1) {
          ending.round(acc);
        } else {
          ending.exchange(acc, &received);
          ending.add_and_round();
        }
        sync_consumers<Tile::kThreads>();
        ending.store();
      }
    }
  }
#endif
}

constexpr int kMostGpus = 64;
ClustersAtOnce g_clusters_at_once[kMostGpus];

int current_gpu() {
  int gpu = 0;
  CUDA_CHECK(cudaGetDevice(&gpu));
  return gpu % kMostGpus;
}

using PairRing = Ring<WeightFormat::LinearW4, 3, 128>;

template <WeightFormat Format, int Groups, int Rows, bool Pair = false>
void launch_tiles(const LinearArgs& args, const char* operand, int splits, cudaStream_t stream) {
  const auto tiles = [](int size, int of) { return unsigned((size + of - 1) / of); };
  using R = Ring<Format, Groups, Rows>;
  launch_in_clusters(splits, wgmma_kernel<Format, Groups, Rows, Pair>,
                     dim3(unsigned(splits), tiles(args.rows, Rows), tiles(args.outputs, 64 * Groups * (Pair ? 2 : 1))),
                     dim3(128 * (Groups + 1)), Pair ? R::kPairBytes : R::kBytes, stream, args, operand,
                     int(operand_rows(args.rows)));
}

// To f<groups, rows>() of the tile.
template <typename F>
void with_tile(int groups, int rows, const F& f) {
  if (groups == 3 && rows == 128) f.template operator()<3, 128>();
  if (groups == 3 && rows == 64) f.template operator()<3, 64>();
  if (groups == 2 && rows == 128) f.template operator()<2, 128>();
  if (groups == 2 && rows == 64) f.template operator()<2, 64>();
}

template <WeightFormat Format>
void launch_format(const LinearArgs& args, const char* operand, const WgmmaChoice& choice, cudaStream_t stream) {
  with_tile(choice.groups, choice.rows,
            [&]<int Groups, int Rows>() { launch_tiles<Format, Groups, Rows>(args, operand, choice.splits, stream); });
}

template <WeightFormat Format>
void allow_format() {
  for (const int groups : {3, 2}) {
    for (const int rows : {128, 64}) {
      with_tile(groups, rows, [&]<int Groups, int Rows>() {
        CUDA_CHECK(cudaFuncSetAttribute(wgmma_kernel<Format, Groups, Rows, false>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        Ring<Format, Groups, Rows>::kBytes));
      });
    }
  }
}

}  // namespace

bool linear_wgmma_supports(Elem elem) { return elem == kF16 && g_clusters_at_once[current_gpu()][1] > 0; }

int64_t wgmma_operand_bytes(int64_t rows, int64_t inputs) { return operand_rows(rows) * inputs * 2; }

bool launch_linear_wgmma(WeightFormat format, const LinearArgs& args, void* scratch, cudaStream_t stream) {
  const auto* const operand = static_cast<const char*>(args.prepared != nullptr ? args.prepared : scratch);
  if (args.prepared == nullptr) launch_operand(args, scratch, stream);
  // Of a pair of tiles y is whole groups of the next Linear's inputs.
  const bool may_pair = format == WeightFormat::LinearW4 && args.operand != nullptr && args.outputs % 128 == 0 &&
                        PairRing::ends_with_the_ring(args.inputs / 64);
  const WgmmaChoice choice = choose_tiles(args, may_pair, g_clusters_at_once[current_gpu()]);
  if (choice.pair) {
    launch_tiles<WeightFormat::LinearW4, 3, 128, true>(args, operand, 1, stream);
    return true;
  }
  if (format == WeightFormat::LinearW4) launch_format<WeightFormat::LinearW4>(args, operand, choice, stream);
  if (format == WeightFormat::LinearW8) launch_format<WeightFormat::LinearW8>(args, operand, choice, stream);
  return false;
}

// Blocks run at once on no other GPU than Hopper: built for others, the kernel is empty, without barriers.
void prepare_linear_wgmma() {
  auto& at_once = g_clusters_at_once[current_gpu()];
  const auto kernel = wgmma_kernel<WeightFormat::LinearW8, 3, 128, false>;
  constexpr int kBytes = Ring<WeightFormat::LinearW8, 3, 128>::kBytes;
  cudaFuncAttributes attributes{};
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  if (attributes.sharedSizeBytes == 0 || most_shared() < kBytes + attributes.sharedSizeBytes || at_once[1] > 0) return;
  allow_format<WeightFormat::LinearW4>();
  allow_format<WeightFormat::LinearW8>();
  CUDA_CHECK(cudaFuncSetAttribute(wgmma_kernel<WeightFormat::LinearW4, 3, 128, true>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, PairRing::kPairBytes));
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
