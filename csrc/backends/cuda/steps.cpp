// The launches of each step of a plan.
#include "backends/cuda/steps.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "base/error.h"

namespace tcim_lite::cuda {
namespace {

bool aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

// Whether cuBLAS computes the product, where it is found.
bool wants_library(const LinearSpec& spec) {
  return spec.elem == kF16 && spec.format == WeightFormat::LinearF16 && spec.x.rows > kStreamRows;
}

// Bytes of x after its norm, where a kernel of its own computes that.
uint64_t norm_bytes(const LinearSpec& spec) {
  if (spec.norm_id == kNoValue) return 0;
  return uint64_t(spec.x.rows * spec.inputs * elem_bytes(spec.elem) + 255) / 256 * 256;
}

uint64_t scratch_of(const LinearSpec& spec) {
  if (spec.quantized() && has_items(spec.format)) return uint64_t(gemm_scratch_bytes(spec.x.rows, spec.inputs));
  return norm_bytes(spec) + (wants_library(spec) ? uint64_t(spec.x.rows * spec.outputs * 4) : 0);
}

uint64_t scratch_of(const MoELinearSpec& spec) {
  const LinearSpec& linear = spec.linear;
  if (!linear.quantized() || !has_items(linear.format)) return 0;
  return uint64_t(experts_scratch_bytes(linear.x.rows, linear.inputs, spec.experts, spec.chosen, spec.x_per_expert()));
}

// The number of blocks over which the cache rows of a KV head are split when a slot has one token.
int decode_splits(const AttentionSpec& spec) {
  const int64_t pairs = int64_t(spec.k.size()) * spec.kv_heads;
  return int(std::clamp<int64_t>(multiprocessors() / pairs, 1, (spec.context + 31) / 32));
}

void check_slots(size_t slots) {
  if (slots <= size_t(kMaxSlots)) return;
  fail(ErrorCode::Unsupported, "a batch of ", slots, " slots; the CUDA backend takes at most ", kMaxSlots);
}

// Kernels for fp16 know no masks, and read caches and queries in pieces of 16 and 4 bytes.
bool fast_attention(const AttentionSpec& spec, const AttentionArgs& args) {
  if (spec.elem != kF16 || spec.cache_elem != kF16 || !spec.masks.empty()) return false;
  for (int slot = 0; slot < args.slots; ++slot) {
    if (!aligned(args.k[slot]) || !aligned(args.v[slot])) return false;
  }
  return true;
}

}  // namespace

StepLauncher::StepLauncher(const Graph& graph, const Plan& plan, CudaMemory& memory, cudaStream_t stream)
    : memory_(memory), stream_(stream), network_(graph, plan, memory, stream) {
  uint64_t linear = 0, partials = 0, arrived = 0;
  const auto count = [&](const AttentionSpec& spec) {
    check_slots(spec.k.size());
    const uint64_t pairs = spec.k.size() * uint64_t(spec.kv_heads), blocks = pairs * uint64_t(decode_splits(spec));
    arrived = std::max(arrived, pairs * 4);
    partials = std::max(partials, blocks * uint64_t(decode_partial_floats(spec.heads_per_kv(), spec.head_dim)) * 4);
  };
  for (const StepSpec& step : plan.steps) {
    if (const auto* spec = std::get_if<LinearSpec>(&step)) linear = std::max(linear, scratch_of(*spec));
    if (const auto* spec = std::get_if<MoELinearSpec>(&step)) linear = std::max(linear, scratch_of(*spec));
    if (const auto* spec = std::get_if<AttentionSpec>(&step)) count(*spec);
    if (const auto* spec = std::get_if<HeadsAttentionSpec>(&step)) count(spec->attention);
  }
  linear_scratch_ = memory.reserve(linear);
  partials_ = memory.reserve(partials);
  arrived_ = memory.reserve(arrived);
}

void StepLauncher::launch(const StepSpec& step) {
  std::visit([&](const auto& spec) { launch_step(spec); }, step);
}

RowArgs StepLauncher::row_args(const Rows& x, const Rows& y) const {
  return {memory_.at(x.value), memory_.at(y.value), int(y.rows), int(y.cols), x.stride, y.stride,
          memory_.live(y),     memory_.refusal(y)};
}

LinearArgs StepLauncher::linear_args(const LinearSpec& spec) const {
  LinearArgs args{};
  args.x = memory_.at(spec.x.value);
  args.x_stride = spec.x.stride;
  args.rows = int(spec.x.rows);
  args.inputs = int(spec.inputs);
  args.outputs = int(spec.outputs);
  args.norm_weight = static_cast<const float*>(memory_.weight(spec.norm_id));
  args.epsilon = spec.norm_epsilon;
  args.weights = memory_.weight(spec.weights_id);
  args.bias = static_cast<const float*>(memory_.weight(spec.bias_id));
  args.epilogue = int(spec.epilogue);
  args.residual = spec.epilogue == LinearSpec::Epilogue::AddResidual ? memory_.at(spec.residual.value) : nullptr;
  args.residual_stride = spec.residual.stride;
  args.y = memory_.at(spec.y.value);
  args.y_stride = spec.y.stride;
  args.live = memory_.live(spec.x);
  args.refused = memory_.refusal(spec.y);
  return args;
}

void StepLauncher::launch_step(const LinearSpec& spec) {
  LinearArgs args = linear_args(spec);
  const bool float_of_codes = is_quantized(spec.format) && !spec.quantized();
  if (spec.elem == kF16 && !float_of_codes && args.rows <= kStreamRows && linear_stream_supports(spec.format, args))
    return launch_linear_stream(spec.format, args, stream_);
  std::byte* const scratch = memory_.scratch(linear_scratch_);
  if (spec.quantized() && has_items(spec.format))
    return launch_linear_gemm(spec.elem, spec.format, args, scratch, stream_);

  if (args.norm_weight != nullptr) {
    const RowArgs row{args.x, scratch, args.rows, args.inputs, args.x_stride, args.inputs, args.live, nullptr};
    launch_norm(spec.elem, {row, args.norm_weight, args.epsilon, 1}, stream_);
    args.x = scratch;
    args.x_stride = args.inputs;
    args.norm_weight = nullptr;
  }
  if (wants_library(spec) && blas_ == nullptr) blas_ = Blas::find(stream_);
  if (wants_library(spec) && blas_ != nullptr) {
    std::byte* const products = scratch + norm_bytes(spec);
    const Elem elem = args.bias == nullptr ? kF16 : kF32;  // a bias is added before the sum is rounded
    blas_->multiply(args, elem, products);
    break_overlap();
    return launch_linear_epilogue(args, elem, products, stream_);
  }
  if (spec.elem == kF16 && !float_of_codes && linear_stream_supports(spec.format, args))
    return launch_linear_stream(spec.format, args, stream_);
  launch_linear_any(spec.elem, spec.format, args, spec.quantized(), stream_);
}

HeadsArgs StepLauncher::heads_args(const HeadChainSpec& chain) const {
  HeadsArgs args{};
  args.x = memory_.at(chain.x.value);
  args.x_stride = chain.x.stride;
  args.rows = int(chain.x.rows);
  args.slot_rows = int(chain.x.slot_rows);
  args.heads = int(chain.heads);
  args.head_dim = int(chain.head_dim);
  args.norm_weight = static_cast<const float*>(memory_.weight(chain.norm_id));
  args.epsilon = chain.norm_epsilon;
  args.cos = memory_.weight(chain.cos_id);
  args.sin = memory_.weight(chain.sin_id);
  args.table_elem = chain.table_elem;
  args.table_rows = int(chain.table_rows);
  args.rope_given = chain.rope_given;
  args.live = memory_.live(chain.x);
  check_slots(std::max(chain.caches.size(), chain.rope_valid.size()));
  for (size_t slot = 0; slot < chain.rope_valid.size(); ++slot)
    args.rope_valid[slot] = memory_.length(chain.rope_valid[slot]);
  if (chain.caches.empty()) {
    args.y = memory_.at(chain.y.value);
    args.y_stride = chain.y.stride;
    args.refused = memory_.refusal(chain.y);
    return args;
  }
  args.cache_elem = chain.cache_elem;
  args.context = int(chain.context);
  args.refused = memory_.refused();
  for (size_t slot = 0; slot < chain.caches.size(); ++slot) {
    args.caches[slot] = memory_.at(chain.caches[slot]);
    args.valid[slot] = memory_.length(chain.lengths[slot].valid);
    args.current[slot] = memory_.length(chain.lengths[slot].current);
  }
  return args;
}

void StepLauncher::launch_step(const HeadsSpec& spec) {
  std::vector<HeadsArgs> chains;
  for (const HeadChainSpec& chain : spec.chains) chains.push_back(heads_args(chain));
  launch_heads(spec.elem, chains.data(), int(chains.size()), stream_);
}

AttentionArgs StepLauncher::attention_args(const AttentionSpec& spec) const {
  AttentionArgs args{};
  args.q = memory_.at(spec.q.value);
  args.y = memory_.at(spec.y.value);
  args.q_stride = spec.q.stride;
  args.y_stride = spec.y.stride;
  args.slots = int(spec.k.size());
  args.slot_rows = int(spec.q.slot_rows);
  args.q_heads = int(spec.q_heads);
  args.kv_heads = int(spec.kv_heads);
  args.head_dim = int(spec.head_dim);
  args.context = int(spec.context);
  args.window = int(spec.window);
  args.mask_cols = int(spec.mask_cols);
  args.sinks = static_cast<const float*>(memory_.weight(spec.sinks_id));
  args.scale = spec.scale;
  args.live = memory_.live(spec.q);
  args.refused = memory_.refusal(spec.y);
  args.odd = memory_.odd_attention();
  for (size_t slot = 0; slot < spec.k.size(); ++slot) {
    args.k[slot] = memory_.at(spec.k[slot]);
    args.v[slot] = memory_.at(spec.v[slot]);
    args.valid[slot] = memory_.length(spec.lengths[slot].valid);
    if (!spec.masks.empty()) args.masks[slot] = memory_.at(spec.masks[slot]);
  }
  return args;
}

// Where a slot has one token.
DecodeAttentionArgs StepLauncher::decode_args(const AttentionSpec& spec, const AttentionArgs& args) const {
  DecodeAttentionArgs decode{};
  decode.a = args;
  decode.splits = decode_splits(spec);
  decode.partial = reinterpret_cast<float*>(memory_.scratch(partials_));
  decode.arrived = reinterpret_cast<int*>(memory_.scratch(arrived_));
  return decode;
}

void StepLauncher::launch_step(const AttentionSpec& spec) {
  const AttentionArgs args = attention_args(spec);
  const bool fast = fast_attention(spec, args);
  if (fast && decode_attention_supports(args)) return launch_decode_attention(decode_args(spec, args), stream_);
  if (fast && prefill_attention_supports(args)) return launch_prefill_attention(args, stream_);
  launch_attention_any(spec.elem, spec.cache_elem, args, stream_);
}

// One launch if a kernel computes both, else one launch for each.
void StepLauncher::launch_step(const HeadsAttentionSpec& spec) {
  const HeadChainSpec &q = spec.of_q(), &k = spec.of_k(), &v = spec.of_v();
  const AttentionArgs args = attention_args(spec.attention);
  const bool strides_are_one = q.x.stride == k.x.stride && q.x.stride == v.x.stride;
  const bool tables_fit = q.cos_id == kNoValue || q.table_elem == kF16;
  if (!fast_attention(spec.attention, args) || !decode_attention_supports(args) || !strides_are_one || !tables_fit) {
    launch_step(spec.heads);
    return launch_step(spec.attention);
  }
  DecodeAttentionArgs decode = decode_args(spec.attention, args);
  decode.a.refused = memory_.refused();
  decode.fused = true;
  decode.x_q = memory_.at(q.x.value);
  decode.x_k = memory_.at(k.x.value);
  decode.x_v = memory_.at(v.x.value);
  decode.x_stride = q.x.stride;
  decode.q_norm = static_cast<const float*>(memory_.weight(q.norm_id));
  decode.k_norm = static_cast<const float*>(memory_.weight(k.norm_id));
  decode.q_epsilon = q.norm_epsilon;
  decode.k_epsilon = k.norm_epsilon;
  decode.cos = memory_.weight(q.cos_id);
  decode.sin = memory_.weight(q.sin_id);
  decode.table_rows = int(q.table_rows);
  for (size_t slot = 0; slot < spec.attention.lengths.size(); ++slot)
    decode.current[slot] = memory_.length(spec.attention.lengths[slot].current);
  launch_decode_attention(decode, stream_);
}

void StepLauncher::launch_step(const RmsNormSpec& spec) {
  RowArgs row = row_args(spec.x, spec.y);
  row.cols = int(spec.x.cols / spec.groups);
  launch_norm(spec.elem,
              {row, static_cast<const float*>(memory_.weight(spec.weight_id)), spec.epsilon, int(spec.groups)},
              stream_);
}

void StepLauncher::launch_step(const ElementwiseSpec& spec) {
  ElementwiseArgs args{row_args(spec.a, spec.y), memory_.at(spec.b.value), spec.b.stride};
  // Rows without gaps are one long row.
  const bool dense = spec.a.stride == spec.a.cols && spec.b.stride == spec.b.cols && spec.y.stride == spec.y.cols;
  if (dense && args.row.live == nullptr && spec.y.rows * spec.y.cols < INT32_MAX) {
    args.row.cols = int(spec.y.rows * spec.y.cols);
    args.row.rows = 1;
  }
  launch_elementwise(spec.op, spec.elem, args, stream_);
}

void StepLauncher::launch_step(const SiluMulSpec& spec) {
  const RowArgs args = row_args(spec.x, spec.y);
  if (spec.clamped()) return launch_clamped_glu(spec.elem, args, spec.alpha, spec.limit, stream_);
  launch_silu_mul(spec.elem, args, stream_);
}

void StepLauncher::launch_step(const GatherRowSpec& spec) {
  RowArgs row = row_args(spec.x, spec.y);
  row.rows = int(spec.x.rows);
  launch_gather_row(spec.elem, row, memory_.length(spec.current), stream_);
}

void StepLauncher::launch_step(const CopySpec& spec) {
  launch_copy(spec.from, spec.to, row_args(spec.x, spec.y), stream_);
}

void StepLauncher::launch_step(const MoERouteSpec& spec) {
  RouteArgs args{};
  args.logits = memory_.at(spec.logits.value);
  args.ids = reinterpret_cast<int*>(memory_.at(spec.ids.value));
  args.shares = memory_.at(spec.weights.value);
  args.stride = spec.logits.stride;
  args.rows = int(spec.logits.rows);
  args.experts = int(spec.experts);
  args.chosen = int(spec.chosen);
  args.softmax_first = spec.softmax_first;
  args.normalise = spec.normalise;
  args.live = memory_.live(spec.logits);
  args.refused = memory_.refusal(spec.weights);
  launch_route(spec.elem, args, stream_);
}

void StepLauncher::launch_step(const MoELinearSpec& spec) {
  const LinearSpec& linear = spec.linear;
  ExpertsArgs args{};
  args.linear = linear_args(linear);
  args.ids = reinterpret_cast<const int*>(memory_.at(spec.ids.value));
  args.expert_bytes = placed_bytes(linear.format, linear.outputs, linear.inputs);
  args.experts = int(spec.experts);
  args.chosen = int(spec.chosen);
  args.own_rows = spec.x_per_expert();
  const bool float_of_codes = is_quantized(linear.format) && !linear.quantized();
  if (linear.elem == kF16 && !float_of_codes && args.linear.rows <= kStreamRows &&
      linear_stream_supports(linear.format, args.linear))
    return launch_experts_stream(linear.format, args, stream_);
  if (linear.quantized() && has_items(linear.format))
    return launch_experts_gemm(linear.elem, linear.format, args, memory_.scratch(linear_scratch_), stream_);
  launch_experts_any(linear.elem, linear.format, args, linear.quantized(), stream_);
}

void StepLauncher::launch_step(const MoECombineSpec& spec) {
  CombineArgs args{};
  args.row = row_args(spec.x, spec.y);
  args.shares = memory_.at(spec.weights.value);
  args.residual = spec.adds ? memory_.at(spec.residual.value) : nullptr;
  args.residual_stride = spec.residual.stride;
  args.chosen = int(spec.chosen);
  launch_combine(spec.elem, args, stream_);
}

}  // namespace tcim_lite::cuda
