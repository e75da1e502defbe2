// Attention of many tokens: 64 query rows of a KV head a block, 16 a warp, on the tensor cores; keys pass in tiles of
// 64 through shared memory, and only as many as the last live row of the block sees. Where there are few blocks, parts
// of a block, of four warps each, take turns at the tiles, and the first adds the others' sums.
#include "backends/cuda/kernels/attention_prefill.cuh"

namespace tcim_lite::cuda {
namespace {

using namespace prefill_attention;

template <int Dim, int Parts>
__global__ void __launch_bounds__(kThreads* Parts, Parts == 1 ? 3 : 1) prefill_kernel(AttentionArgs args) {
  extern __shared__ __align__(128) char shared[];
  wait_for_inputs();
  launch_next();
  Block block{int(blockIdx.z), int(blockIdx.y), args.q_heads / args.kv_heads};
  block.valid = *args.valid[block.slot];  // with what else decides, so that all of it is waited for once
  const bool refused = args.refused != nullptr && *args.refused != 0;
  const int tokens = args.live == nullptr ? args.slot_rows : min(max(*args.live, 0), args.slot_rows);
  block.rows = tokens * block.heads;                       // token-major
  block.first_row = (gridDim.x - 1 - blockIdx.x) * kRows;  // the longest first
  if (block.first_row >= block.rows || refused) return;
  const int part = threadIdx.x / kThreads, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int last_token = (min(block.first_row + kRows, block.rows) - 1) / block.heads;
  block.keys = min(block.valid + last_token + 1, args.context);
  block.first_key = max(min(block.valid + block.first_row / block.heads + 1, args.context) - args.window, 0);
  const int first_tile = block.first_key / kKeys + part, tiles = (block.keys + kKeys - 1) / kKeys;
  const int64_t cache_at = int64_t(block.kv_head) * args.context * Dim;
  const __half* k = static_cast<const __half*>(args.k[block.slot]) + cache_at;
  const __half* v = static_cast<const __half*>(args.v[block.slot]) + cache_at;

  constexpr int kTileBytes = kKeys * Dim * 2;
  char* k_tiles = shared + part * 4 * kTileBytes;  // [2]
  char* v_tiles = k_tiles + 2 * kTileBytes;        // [2]
  fetch_tile<Dim>(k_tiles, k, first_tile * kKeys, block.keys);
  fetch_tile<Dim>(v_tiles, v, first_tile * kKeys, block.keys);
  commit_copies();
  LaneRows<Dim> rows;
  load_rows<Dim>(args, block, warp, lane, rows);
  const float scale = args.scale * 1.4426950408889634f;  // probabilities by exp2
  Sums<Dim> sums;
  for (int tile = first_tile, place = 0; tile < tiles; tile += Parts, place ^= 1) {
    const int first = tile * kKeys;
    if (tile + Parts < tiles) {
      fetch_tile<Dim>(k_tiles + (place ^ 1) * kTileBytes, k, first + Parts * kKeys, block.keys);
      fetch_tile<Dim>(v_tiles + (place ^ 1) * kTileBytes, v, first + Parts * kKeys, block.keys);
    }
    commit_copies();
    wait_for_copies<1>();
    sync_part(part);
    float s[kKeys / 8][4] = {};
    score_tile<Dim>(rows.queries, k_tiles + place * kTileBytes, lane, s);
    if (block.first_row == 0 && warp == 0)
      mark_odd_keys<Dim>(sums, s, block.first_key - first, block.valid - first, lane % 4);
    take_shares<Dim>(sums, s, rows.begin, rows.limit, first, scale, lane % 4);
    add_values<Dim>(sums, s, v_tiles + place * kTileBytes, lane);
    sync_part(part);
  }
  if constexpr (Parts > 1) {
    if (!add_parts<Dim, Parts>(sums, shared, part, scale)) return;
  }
  store_rows<Dim>(args, sums, rows, block, warp, lane);
}

template <int Dim, int Parts>
constexpr int kShared = Parts * 4 * kKeys * Dim * 2;
static_assert(kShared<128, 3> >= 2 * kPartFloats<128> * kThreads * 4 &&
              kShared<64, 3> >= 2 * kPartFloats<64> * kThreads * 4);

template <int Dim, int Parts>
void launch_parts(const AttentionArgs& args, dim3 grid, cudaStream_t stream) {
  launch(prefill_kernel<Dim, Parts>, grid, dim3(kThreads * Parts), kShared<Dim, Parts>, stream, args);
}

template <int Dim>
void launch_dim(const AttentionArgs& args, cudaStream_t stream) {
  const int rows = args.slot_rows * (args.q_heads / args.kv_heads);
  const dim3 grid(unsigned((rows + kRows - 1) / kRows), unsigned(args.kv_heads), unsigned(args.slots));
  const int blocks = int(grid.x * grid.y * grid.z);
  if (blocks <= multiprocessors() && kShared<Dim, 3> <= most_shared()) return launch_parts<Dim, 3>(args, grid, stream);
  launch_parts<Dim, 1>(args, grid, stream);
}

template <int Dim>
void prepare_dim() {
  const auto allow = [](auto kernel, size_t bytes) {
    if (bytes > most_shared()) return;
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
  };
  allow(prefill_kernel<Dim, 1>, kShared<Dim, 1>);
  allow(prefill_kernel<Dim, 3>, kShared<Dim, 3>);
}

}  // namespace

bool prefill_attention_supports(const AttentionArgs& args) {
  const auto paired = [](const void* at, int64_t stride) {
    return reinterpret_cast<uintptr_t>(at) % 4 == 0 && stride % 2 == 0;
  };
  return (args.head_dim == 64 || args.head_dim == 128) && paired(args.q, args.q_stride) &&
         paired(args.y, args.y_stride);
}

void launch_prefill_attention(AttentionArgs args, cudaStream_t stream) {
  args.operand_rows = int(operand_rows(int64_t(args.slots) * args.slot_rows));
  if (args.head_dim == 64) launch_dim<64>(args, stream);
  if (args.head_dim == 128) launch_dim<128>(args, stream);
}

void prepare_attention() {
  prepare_dim<64>();
  prepare_dim<128>();
}

}  // namespace tcim_lite::cuda
