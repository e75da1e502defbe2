// Attention of one token a slot: the rows of a KV head are split over blocks; the last block to finish merges them. The
// norm, RoPE and cache write of q, k and v can happen on the way: every block makes the queries it needs, and the one
// that holds the new row makes, writes and uses it.
#include "backends/cuda/kernels/attention_decode.cuh"
#include "backends/cuda/kernels/attention_merge.cuh"

namespace tcim_lite::cuda {
namespace {

using namespace decode_attention;

// Grid: (splits, KV heads, slots).
template <int Dim, int Heads>
__global__ void __launch_bounds__(kThreads) decode_kernel(DecodeAttentionArgs args) {
  __shared__ Shared<Dim, Heads> s;
  wait_for_inputs();
  launch_next();
  const AttentionArgs& a = args.a;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Share share = share_of(args);
  if (share.begin >= share.end) return;
  share.owns_fresh = args.fused && share.valid >= share.begin && share.valid < share.end;
  const int64_t cache_at = int64_t(share.kv_head()) * a.context * Dim;
  auto* k = const_cast<__half*>(static_cast<const __half*>(a.k[share.slot()])) + cache_at;
  auto* v = const_cast<__half*>(static_cast<const __half*>(a.v[share.slot()])) + cache_at;

  make_queries(args, share, s, warp, lane);
  if (share.owns_fresh && warp == kWarps - 1) make_fresh(args, share, s, k, v, lane);
  __syncthreads();
  attend_keys(share, s, k, v, warp, lane);
  __syncthreads();
  const int64_t pair = int64_t(share.slot()) * a.kv_heads + share.kv_head();
  constexpr int64_t kStride = decode_partial_floats(Heads, Dim);
  float* all = args.partial + pair * args.splits * kStride;
  auto* y = static_cast<__half*>(a.y) + share.slot() * a.y_stride + int64_t(share.kv_head()) * Heads * Dim;
  const float* const sinks = a.sinks == nullptr ? nullptr : a.sinks + int64_t(share.kv_head()) * Heads;
  const Result result{y, is_refused(a), a.odd, sinks};
  gather_parts(share, result, s, all + share.split() * kStride, warp, lane);
  if (share.active == 1 || !is_last(s, args.arrived + pair, share.active)) return;
  merge_blocks(share, result, s, all, warp, lane);
}

template <int Dim>
void launch_dim(const DecodeAttentionArgs& args, cudaStream_t stream) {
  const dim3 grid(unsigned(args.splits), unsigned(args.a.kv_heads), unsigned(args.a.slots)), block(kThreads);
  switch (args.a.q_heads / args.a.kv_heads) {
    case 1:
      return launch(decode_kernel<Dim, 1>, grid, block, 0, stream, args);
    case 2:
      return launch(decode_kernel<Dim, 2>, grid, block, 0, stream, args);
    case 4:
      return launch(decode_kernel<Dim, 4>, grid, block, 0, stream, args);
    case 8:
      return launch(decode_kernel<Dim, 8>, grid, block, 0, stream, args);
  }
}

}  // namespace

bool decode_attention_supports(const AttentionArgs& args) {
  const int heads = args.q_heads / args.kv_heads;
  return args.slot_rows == 1 && (args.head_dim == 64 || args.head_dim == 128) &&
         (heads == 1 || heads == 2 || heads == 4 || heads == 8);
}

void launch_decode_attention(const DecodeAttentionArgs& args, cudaStream_t stream) {
  if (args.a.head_dim == 64) launch_dim<64>(args, stream);
  if (args.a.head_dim == 128) launch_dim<128>(args, stream);
}

}  // namespace tcim_lite::cuda
