// Causal convolution, the delta rule and gates.
#include "backends/cuda/kernels/common.cuh"
#include "backends/cuda/kernels/functions.cuh"
#include "backends/cuda/kernels/linear_attention.h"

namespace tcim_lite::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 32, kParts = kThreads / kColumns;  // of a state, and of its keys, that a block has
constexpr int kMostKeys = 512;  // 70 KiB of shared memory, which every GPU from Volta on has

__device__ __forceinline__ bool is_refused(const int* refused) { return refused != nullptr && *refused != 0; }
__device__ __forceinline__ int live_tokens(const int* live, int tokens) {
  return live == nullptr ? tokens : min(max(*live, 0), tokens);
}

// Grid: (blocks of channels, tokens of this launch and one more, slots); the last is for the new state.
template <typename T>
__global__ void causal_conv_kernel(CausalConvArgs args) {
  wait_for_inputs();
  launch_next();
  const int c = blockIdx.x * kThreads + threadIdx.x, slot = blockIdx.z;
  if (is_refused(args.refused) || c >= args.channels) return;
  const T* x = static_cast<const T*>(args.x) + int64_t(slot) * args.tokens * args.x_stride + c;
  const int64_t first_state = (int64_t(slot) * args.channels + c) * args.columns;
  const T* state = static_cast<const T*>(args.state) + first_state;
  const auto column = [&](int i) { return i < args.columns ? state[i] : x[(i - args.columns) * args.x_stride]; };
  if (int(blockIdx.y) == args.count) {
    T* to = static_cast<T*>(args.new_state) + first_state;
    const int begin = live_tokens(args.current, args.first + args.count);
    for (int i = 0; i < args.columns; ++i) to[i] = column(begin + i);
    return;
  }
  const int token = args.first + blockIdx.y;
  if (token >= live_tokens(args.live, args.tokens)) return;
  float sum = 0;
  for (int tap = 0; tap < args.taps; ++tap) {
    const T value = column(token + args.columns + 1 - args.taps + tap);
    sum = fmaf(args.weight[tap * args.channels + c], load(&value), sum);
  }
  if (args.bias != nullptr) sum += args.bias[c];
  T* y = static_cast<T*>(args.y) + (int64_t(slot) * args.tokens + token) * args.y_stride + c;
  store(y, args.silu ? silu(sum) : sum);
}

// Grid: (blocks of columns, heads, slots). Thread (part, column) has the keys i of its column with i mod kParts = part.
// Shared memory: the state [keys, kColumns], then key, decay and query of the token.
template <typename T>
__global__ void delta_rule_kernel(DeltaRuleArgs args) {
  extern __shared__ float shared[];
  __shared__ float partial[2][kParts][kColumns], scratch[33];
  float* const state = shared;
  float* const key = state + args.keys * kColumns;
  float* const kept = key + args.keys;
  float* const query = kept + args.keys;
  wait_for_inputs();
  launch_next();
  if (is_refused(args.refused)) return;
  const int column = threadIdx.x % kColumns, part = threadIdx.x / kColumns, head = blockIdx.y, slot = blockIdx.z;
  const int j = blockIdx.x * kColumns + column;
  const bool inside = j < args.values;
  const int64_t first_state = (int64_t(slot) * args.heads + head) * args.keys * args.values + j;
  for (int i = part; i < args.keys; i += kParts)
    state[i * kColumns + column] =
        inside ? load(static_cast<const T*>(args.state) + first_state + int64_t(i) * args.values) : 0.0f;
  const int end = live_tokens(args.live, args.first + args.count);
  for (int token = args.first; token < end; ++token) {
    const int64_t row = int64_t(slot) * args.tokens + token;
    T* y = static_cast<T*>(args.y) + row * args.y_stride + int64_t(head) * args.values + j;
    if (args.mask != nullptr && load(static_cast<const T*>(args.mask) + row) == 0) {
      if (inside && part == 0) store(y, 0.0f);
      continue;
    }
    const T* q = static_cast<const T*>(args.q) + row * args.q_stride + head / (args.heads / args.q_heads) * args.keys;
    const T* k = static_cast<const T*>(args.k) + row * args.k_stride + head / (args.heads / args.k_heads) * args.keys;
    __syncthreads();  // the token before is done with
    float product = 0, step = 1;
    if (args.rate != nullptr)
      step = apply<kSoftplus>(
          load(static_cast<const T*>(args.decay) + row * args.decay_stride + head) + args.bias[head], 0, 0);
    for (int i = threadIdx.x; i < args.keys; i += kThreads) {
      float decay = 0;
      if (args.decay != nullptr)
        decay = load(static_cast<const T*>(args.decay) + row * args.decay_stride + head * args.decays +
                     (args.decays > 1 ? i : 0));
      if (args.rate != nullptr) decay = args.rate[head] * step;
      key[i] = load(k + i);
      query[i] = load(q + i);
      kept[i] = expf(decay);
      product = fmaf(query[i], key[i], product);
    }
    product = block_sum(product, scratch);  // with a barrier
    float known = 0, sum = 0;
    for (int i = part; i < args.keys; i += kParts) {
      const float value = state[i * kColumns + column] * kept[i];
      known = fmaf(key[i], value, known);
      sum = fmaf(query[i], value, sum);
    }
    partial[0][part][column] = known;
    partial[1][part][column] = sum;
    __syncthreads();
    known = sum = 0;
    for (int other = 0; other < kParts; ++other) {
      known += partial[0][other][column];
      sum += partial[1][other][column];
    }
    const float value_in =
        inside ? load(static_cast<const T*>(args.v) + row * args.v_stride + head * args.values + j) : 0.0f;
    float change = args.skip != nullptr ? value_in * step : value_in;
    if (args.beta != nullptr) {
      float beta = load(static_cast<const T*>(args.beta) + row * args.beta_stride + head);
      if (args.rate != nullptr) beta = apply<kSigmoid>(beta, 0, 0);
      change = (change - known) * beta;
    }
    const float result = fmaf(change, product, sum) * args.scale;
    if (inside && part == 0) store(y, args.skip != nullptr ? fmaf(value_in, args.skip[head], result) : result);
    for (int i = part; i < args.keys; i += kParts) {
      float& value = state[i * kColumns + column];
      value = fmaf(key[i], change, value * kept[i]);
    }
  }
  if (!inside) return;
  for (int i = part; i < args.keys; i += kParts)
    store(static_cast<T*>(args.new_state) + first_state + int64_t(i) * args.values, state[i * kColumns + column]);
}

template <typename T>
__global__ void gate_mul_kernel(GateMulArgs args) {
  wait_for_inputs();
  launch_next();
  if (is_refused(args.refused)) return;
  const int rows = live_tokens(args.live, args.rows);
  for (int row = blockIdx.y; row < rows; row += gridDim.y) {
    for (int i = blockIdx.x * kThreads + threadIdx.x; i < args.cols; i += gridDim.x * kThreads) {
      const float gate = load(static_cast<const T*>(args.gate) + row * args.gate_stride + i / args.each);
      const float factor = args.function == kSilu       ? silu(gate)
                           : args.function == kSoftplus ? apply<kSoftplus>(gate, 0, 0)
                                                        : apply<kSigmoid>(gate, 0, 0);
      store(static_cast<T*>(args.y) + row * args.y_stride + i,
            load(static_cast<const T*>(args.x) + row * args.x_stride + i) * factor);
    }
  }
}

template <typename Call>
void with_elem(Elem elem, const Call& call) {
  if (elem == kF16) call(__half());
  if (elem == kF32) call(float());
}

}  // namespace

void launch_causal_conv(Elem elem, const CausalConvArgs& args, cudaStream_t stream) {
  const dim3 grid((args.channels + kThreads - 1) / kThreads, args.count + 1, args.slots);
  with_elem(elem, [&](auto t) { launch(causal_conv_kernel<decltype(t)>, grid, dim3(kThreads), 0, stream, args); });
}

bool delta_rule_supports(const DeltaRuleArgs& args) { return args.keys <= kMostKeys; }

void launch_delta_rule(Elem elem, const DeltaRuleArgs& args, cudaStream_t stream) {
  const dim3 grid((args.values + kColumns - 1) / kColumns, args.heads, args.slots);
  const size_t shared = size_t(args.keys) * (kColumns + 3) * sizeof(float);
  with_elem(elem, [&](auto t) {
    const auto kernel = delta_rule_kernel<decltype(t)>;
    if (shared > 40 * 1024)
      CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
    launch(kernel, grid, dim3(kThreads), shared, stream, args);
  });
}

void launch_gate_mul(Elem elem, const GateMulArgs& args, cudaStream_t stream) {
  const dim3 grid((args.cols + kThreads - 1) / kThreads, args.rows < 65535 ? args.rows : 65535);
  with_elem(elem, [&](auto t) { launch(gate_mul_kernel<decltype(t)>, grid, dim3(kThreads), 0, stream, args); });
}

}  // namespace tcim_lite::cuda
