// Decode of one token in one launch: the Linears and the attention of all layers, phase after phase, by one block on
// each SM. A barrier over the grid stands where kernels would end. Weights do not depend on what is computed, so each
// warp fetches them through a ring in shared memory that runs ahead over phases: memory never idles at a barrier.
#pragma once

#include <cuda_runtime_api.h>

#include "graph/weight_format.h"

namespace tcim_lite::cuda {

// y = x W^T of one fp16 row, with norm, bias and epilogue as in LinearArgs.
struct ChainLinear {
  const void* x;
  const void* weights;
  const float* norm_weight;
  const float* bias;
  const void* residual;
  void* y;
  float epsilon;
  int inputs, outputs, epilogue;
  int tiles, blocks;  // of 16 outputs in a tile
};

// Attention of the projection's q, k and v with norm and RoPE; k and v become row *valid of the caches.
struct ChainAttention {
  const void* q;
  const void* k;
  const void* v;
  void* k_cache;
  void* v_cache;
  const float* q_norm;  // null: none
  const float* k_norm;
  void* y;
  float q_epsilon, k_epsilon, scale;
};

struct ChainPhase {
  bool is_attention;
  union {
    ChainLinear linear;
    ChainAttention attention;
  };
};

constexpr int kMostPhases = 360;  // what a kernel's parameters hold

struct ChainArgs {
  int count = 0;
  int heads_per_kv = 0, kv_heads = 0, splits = 0, context = 0, table_rows = 0;
  const void* cos = nullptr;  // null: no RoPE
  const void* sin = nullptr;
  const int* valid = nullptr;
  const int* current = nullptr;
  const int* refused = nullptr;
  float* partial = nullptr;     // as in DecodeAttentionArgs
  int* arrived = nullptr;       // [kv_heads], 0 between runs
  unsigned* barrier = nullptr;  // 0 between runs
  ChainPhase phases[kMostPhases];
};

constexpr int kChainHeadDim = 128;
// What the current GPU and a chain can do. All Linears of a chain have one format, all its attention one shape.
bool chain_runs_here();
// Completes `linear`.
bool place_in_chain(WeightFormat format, ChainLinear& linear);
bool chain_supports_heads(int heads_per_kv, int kv_heads, int head_dim);
int chain_splits(int kv_heads);
// Runs alone on the GPU's SMs: two such kernels take turns.
void launch_chain(WeightFormat format, const ChainArgs& args, cudaStream_t stream);

}  // namespace tcim_lite::cuda
