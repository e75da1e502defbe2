// Decode of up to eight rows (batch slots, or tokens of a slot) in one launch: the Linears and the attention of all
// layers, phase after phase, by one block on each SM. Between phases, the values of a single row are handed over by
// mail (mail.cuh); several rows need a barrier over the grid. Weights and the caches' rows do not depend on what is
// computed, so each warp fetches them through a ring in shared memory that runs ahead over phases.
#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/decode/args.h"
#include "graph/weight_format.h"

namespace tcim_lite::cuda::decode {

// Whether the current GPU can.
bool runs_here();
// Runs alone on the GPU's SMs: two such kernels take turns.
void launch(WeightFormat format, const ProgramArgs& args, cudaStream_t stream);

}  // namespace tcim_lite::cuda::decode
