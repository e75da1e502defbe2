// The launches of each step of a plan.
#include <algorithm>
#include <variant>

#include "backends/cuda/part.h"

namespace tcim_lite::cuda {
namespace {

bool aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

// Whether cuBLAS computes the product, where it is found.
bool wants_library(const LinearSpec& spec) {
  return spec.elem == kF16 && spec.format == WeightFormat::LinearF16 && spec.x.rows > kStreamRows;
}

}  // namespace

int decode_splits(const AttentionSpec& spec) {
  const int64_t pairs = int64_t(spec.k.size()) * spec.kv_heads;
  return int(std::clamp<int64_t>(multiprocessors() / pairs, 1, (spec.context + 31) / 32));
}

uint64_t CudaPart::scratch_of(const StepSpec& step) const {
  const auto* spec = std::get_if<LinearSpec>(&step);
  if (spec == nullptr) return 0;
  if (spec->quantized()) return uint64_t(gemm_scratch_bytes(spec->x.rows, spec->inputs));
  const uint64_t norm = spec->norm_id == kNoValue ? 0 : uint64_t(spec->x.rows * spec->inputs * elem_bytes(spec->elem));
  const uint64_t sums = wants_library(*spec) ? uint64_t(spec->x.rows * spec->outputs * 4) : 0;
  return (norm + 255) / 256 * 256 + sums;
}

RowArgs CudaPart::row_args(const Rows& x, const Rows& y) const {
  return {at(x.value), at(y.value), int(y.rows), int(y.cols), x.stride, y.stride, live(y), refusal(y)};
}

void CudaPart::launch(const LinearSpec& spec) {
  LinearArgs args{};
  args.x = at(spec.x.value);
  args.x_stride = spec.x.stride;
  args.rows = int(spec.x.rows);
  args.inputs = int(spec.inputs);
  args.outputs = int(spec.outputs);
  args.norm_weight = static_cast<const float*>(weight(spec.norm_id));
  args.epsilon = spec.norm_epsilon;
  args.weights = weight(spec.weights_id);
  args.bias = static_cast<const float*>(weight(spec.bias_id));
  args.epilogue = int(spec.epilogue);
  args.residual = spec.epilogue == LinearSpec::Epilogue::AddResidual ? at(spec.residual.value) : nullptr;
  args.residual_stride = spec.residual.stride;
  args.y = at(spec.y.value);
  args.y_stride = spec.y.stride;
  args.live = live(spec.x);
  args.refused = refusal(spec.y);

  const bool float_of_codes = is_quantized(spec.format) && !spec.quantized();
  if (spec.elem == kF16 && !float_of_codes && args.rows <= kStreamRows && linear_stream_supports(spec.format, args))
    return launch_linear_stream(spec.format, args, stream());
  std::byte* const scratch = memory_.get() + step_scratch_;
  if (spec.quantized()) return launch_linear_gemm(spec.elem, spec.format, args, scratch, stream());

  if (args.norm_weight != nullptr) {
    const RowArgs row{args.x, scratch, args.rows, args.inputs, args.x_stride, args.inputs, args.live, nullptr};
    launch_norm(spec.elem, {row, args.norm_weight, args.epsilon, 1}, stream());
    args.x = scratch;
    args.x_stride = args.inputs;
    args.norm_weight = nullptr;
  }
  if (wants_library(spec) && blas_ == nullptr) blas_ = Blas::find(stream());
  if (wants_library(spec) && blas_ != nullptr) {
    const uint64_t norm = spec.norm_id == kNoValue ? 0 : uint64_t(spec.x.rows * spec.inputs * 2);
    std::byte* const products = scratch + (norm + 255) / 256 * 256;
    const Elem elem = args.bias == nullptr ? kF16 : kF32;  // a bias is added before the sum is rounded
    blas_->multiply(args, elem, products);
    break_overlap();
    return launch_linear_epilogue(args, elem, products, stream());
  }
  if (spec.elem == kF16 && !float_of_codes && linear_stream_supports(spec.format, args))
    return launch_linear_stream(spec.format, args, stream());
  launch_linear_any(spec.elem, spec.format, args, stream());
}

void CudaPart::launch(const HeadsSpec& spec) {
  std::vector<HeadsArgs> chains;
  for (const HeadChainSpec& chain : spec.chains) {
    HeadsArgs args{};
    args.x = at(chain.x.value);
    args.x_stride = chain.x.stride;
    args.rows = int(chain.x.rows);
    args.slot_rows = int(chain.x.slot_rows);
    args.heads = int(chain.heads);
    args.head_dim = int(chain.head_dim);
    args.norm_weight = static_cast<const float*>(weight(chain.norm_id));
    args.epsilon = chain.norm_epsilon;
    args.cos = weight(chain.cos_id);
    args.sin = weight(chain.sin_id);
    args.table_elem = chain.table_elem;
    args.table_rows = int(chain.table_rows);
    args.live = live(chain.x);
    const size_t slots = std::max(chain.caches.size(), chain.rope_valid.size());
    if (slots > size_t(kMaxSlots))
      fail(ErrorCode::Unsupported, "a batch of ", slots, " slots; the CUDA backend takes at most ", kMaxSlots);
    for (size_t slot = 0; slot < chain.rope_valid.size(); ++slot)
      args.rope_valid[slot] = length(chain.rope_valid[slot]);
    if (chain.caches.empty()) {
      args.y = at(chain.y.value);
      args.y_stride = chain.y.stride;
      args.refused = refusal(chain.y);
    } else {
      args.cache_elem = chain.cache_elem;
      args.context = int(chain.context);
      args.refused = reinterpret_cast<const int*>(memory_.get() + refused_);
      for (size_t slot = 0; slot < slots; ++slot) {
        args.caches[slot] = at(chain.caches[slot]);
        args.valid[slot] = length(chain.lengths[slot].valid);
        args.current[slot] = length(chain.lengths[slot].current);
      }
    }
    chains.push_back(args);
  }
  launch_heads(spec.elem, chains.data(), int(chains.size()), stream());
}

AttentionArgs CudaPart::attention_args(const AttentionSpec& spec) const {
  AttentionArgs args{};
  args.q = at(spec.q.value);
  args.y = at(spec.y.value);
  args.q_stride = spec.q.stride;
  args.y_stride = spec.y.stride;
  args.slots = int(spec.k.size());
  args.slot_rows = int(spec.q.slot_rows);
  args.q_heads = int(spec.q_heads);
  args.kv_heads = int(spec.kv_heads);
  args.head_dim = int(spec.head_dim);
  args.context = int(spec.context);
  args.scale = spec.scale;
  args.live = live(spec.q);
  args.refused = refusal(spec.y);
  for (size_t slot = 0; slot < spec.k.size(); ++slot) {
    args.k[slot] = at(spec.k[slot]);
    args.v[slot] = at(spec.v[slot]);
    args.valid[slot] = length(spec.lengths[slot].valid);
  }
  return args;
}

namespace {

// Kernels for fp16 read caches and queries in pieces of 16 and 4 bytes.
bool fast_attention(const AttentionSpec& spec, const AttentionArgs& args) {
  if (spec.elem != kF16 || spec.cache_elem != kF16) return false;
  for (int slot = 0; slot < args.slots; ++slot) {
    if (!aligned(args.k[slot]) || !aligned(args.v[slot])) return false;
  }
  return true;
}

}  // namespace

void CudaPart::launch(const AttentionSpec& spec) {
  const AttentionArgs args = attention_args(spec);
  const bool fast = fast_attention(spec, args);
  if (fast && decode_attention_supports(args)) {
    DecodeAttentionArgs decode{};
    decode.a = args;
    decode.splits = decode_splits(spec);
    decode.partial = reinterpret_cast<float*>(memory_.get() + partials_);
    decode.arrived = reinterpret_cast<int*>(memory_.get() + arrived_);
    return launch_decode_attention(decode, stream());
  }
  if (fast && prefill_attention_supports(args)) return launch_prefill_attention(args, stream());
  launch_attention_any(spec.elem, spec.cache_elem, args, stream());
}

// One op reads the value, and it is no output.
bool CudaPart::read_once(uint32_t value) const {
  int64_t readers = std::count(graph_->outputs.begin(), graph_->outputs.end(), value) * 2;
  for (const Op& op : graph_->ops) readers += std::count(op.inputs.begin(), op.inputs.end(), value);
  return readers == 1;
}

// [RMSNorm, RoPE] of q into attention and of k into its caches, and v as it is, in any order.
bool CudaPart::matches(const HeadsSpec& heads, const AttentionSpec& spec) const {
  if (heads.chains.size() != 3) return false;
  const AttentionArgs args = attention_args(spec);
  if (!fast_attention(spec, args)) return false;
  const HeadChainSpec *q = nullptr, *k = nullptr, *v = nullptr;
  for (const HeadChainSpec& chain : heads.chains) {
    if (chain.caches.empty()) {
      q = &chain;
    } else if (at(chain.caches[0]) == args.k[0]) {
      k = &chain;
    } else if (at(chain.caches[0]) == args.v[0]) {
      v = &chain;
    }
  }
  if (q == nullptr || k == nullptr || v == nullptr) return false;
  if (q->y.value != spec.q.value || !read_once(q->y.value)) return false;
  if (v->norm_id != kNoValue || v->cos_id != kNoValue || q->cos_id != k->cos_id || q->sin_id != k->sin_id) return false;
  if (q->cos_id != kNoValue && (q->table_elem != kF16 || q->rope_valid != k->rope_valid)) return false;
  if (q->x.stride != k->x.stride || q->x.stride != v->x.stride) return false;
  for (size_t slot = 0; slot < spec.k.size(); ++slot) {
    if (at(k->caches[slot]) != args.k[slot] || at(v->caches[slot]) != args.v[slot]) return false;
    for (const HeadChainSpec* chain : {k, v}) {
      if (chain->lengths[slot].valid != spec.lengths[slot].valid ||
          chain->lengths[slot].current != spec.lengths[slot].current)
        return false;
    }
    if (q->cos_id != kNoValue && q->rope_valid[slot] != spec.lengths[slot].valid) return false;
  }
  return true;
}

bool CudaPart::fuses(const StepSpec& first, const StepSpec& second) const {
  const auto* heads = std::get_if<HeadsSpec>(&first);
  const auto* spec = std::get_if<AttentionSpec>(&second);
  return heads != nullptr && spec != nullptr && decode_attention_supports(attention_args(*spec)) &&
         matches(*heads, *spec);
}

DecodeAttentionArgs CudaPart::fused_args(const HeadsSpec& heads, const AttentionSpec& spec) const {
  DecodeAttentionArgs args{};
  args.a = attention_args(spec);
  args.a.refused = reinterpret_cast<const int*>(memory_.get() + refused_);
  args.splits = decode_splits(spec);
  args.partial = reinterpret_cast<float*>(memory_.get() + partials_);
  args.arrived = reinterpret_cast<int*>(memory_.get() + arrived_);
  args.fused = true;
  for (const HeadChainSpec& chain : heads.chains) {
    if (chain.caches.empty()) {
      args.x_q = at(chain.x.value);
      args.x_stride = chain.x.stride;
      args.q_norm = static_cast<const float*>(weight(chain.norm_id));
      args.q_epsilon = chain.norm_epsilon;
      args.cos = weight(chain.cos_id);
      args.sin = weight(chain.sin_id);
      args.table_rows = int(chain.table_rows);
    } else if (at(chain.caches[0]) == args.a.k[0]) {
      args.x_k = at(chain.x.value);
      args.k_norm = static_cast<const float*>(weight(chain.norm_id));
      args.k_epsilon = chain.norm_epsilon;
    } else {
      args.x_v = at(chain.x.value);
    }
  }
  for (size_t slot = 0; slot < spec.k.size(); ++slot) args.current[slot] = length(spec.lengths[slot].current);
  return args;
}

void CudaPart::launch_fused(const HeadsSpec& heads, const AttentionSpec& spec) {
  launch_decode_attention(fused_args(heads, spec), stream());
}

void CudaPart::launch(const RmsNormSpec& spec) {
  RowArgs row = row_args(spec.x, spec.y);
  row.cols = int(spec.x.cols / spec.groups);
  launch_norm(spec.elem, {row, static_cast<const float*>(weight(spec.weight_id)), spec.epsilon, int(spec.groups)},
              stream());
}

void CudaPart::launch(const AddSpec& spec) {
  launch_add(spec.elem, {row_args(spec.a, spec.y), at(spec.b.value), spec.b.stride}, stream());
}

void CudaPart::launch(const SiluMulSpec& spec) { launch_silu_mul(spec.elem, row_args(spec.x, spec.y), stream()); }

void CudaPart::launch(const GatherRowSpec& spec) {
  RowArgs row = row_args(spec.x, spec.y);
  row.rows = int(spec.x.rows);
  launch_gather_row(spec.elem, row, length(spec.current), stream());
}

void CudaPart::launch(const CopySpec& spec) { launch_copy(spec.from, spec.to, row_args(spec.x, spec.y), stream()); }

}  // namespace tcim_lite::cuda
