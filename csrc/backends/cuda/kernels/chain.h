// Decode of up to eight rows (batch slots, or tokens of a slot) in one launch: the Linears and the attention of all
// layers, phase after phase, by one block on each SM. Where kernels would end, a single row's values go to the next
// phase by mail (chain_mail.cuh) and several rows wait at a barrier over the grid. Weights and the caches' rows do not
// depend on what is computed, so each warp fetches them through a ring in shared memory that runs ahead over phases.
#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/chain_args.h"
#include "graph/weight_format.h"

namespace tcim_lite::cuda {

// What the current GPU and a chain can do. All Linears of a chain have one format, all its attention one shape.
bool chain_runs_here();
// Completes `linear`.
bool place_in_chain(WeightFormat format, ChainLinear& linear);
bool chain_supports_heads(int rows, int heads_per_kv, int kv_heads, int head_dim);
// Over how many blocks the keys of a row and KV head are split; `pairs` of them.
int chain_splits(int pairs);
// Runs alone on the GPU's SMs: two such kernels take turns.
void launch_chain(WeightFormat format, const ChainArgs& args, cudaStream_t stream);

}  // namespace tcim_lite::cuda
