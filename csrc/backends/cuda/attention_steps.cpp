// The launches of heads and attention.
#include <algorithm>
#include <variant>
#include <vector>

#include "backends/cuda/steps.h"
#include "base/error.h"

namespace tcim_lite::cuda {
namespace {

bool aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

// The number of blocks over which the cache rows of a KV head are split when a slot has one token.
int decode_splits(const AttentionSpec& spec) {
  const int64_t pairs = int64_t(spec.k.size()) * spec.kv_heads;
  return int(std::clamp<int64_t>(multiprocessors() / pairs, 1, (spec.context + 31) / 32));
}

void check_slots(size_t slots) {
  if (slots <= size_t(kMaxSlots)) return;
  fail(ErrorCode::Unsupported, "a batch of ", slots, " slots; the CUDA backend takes at most ", kMaxSlots);
}

// Kernels for fp16 know no masks and no softcap, and read caches and queries in pieces of 16 and 4 bytes.
bool fast_attention(const AttentionSpec& spec, const AttentionArgs& args) {
  if (spec.elem != kF16 || spec.cache_elem != kF16 || !spec.masks.empty() || spec.softcap > 0) return false;
  for (int slot = 0; slot < args.slots; ++slot) {
    if (!aligned(args.k[slot]) || !aligned(args.v[slot])) return false;
  }
  return true;
}

}  // namespace

void StepLauncher::reserve_attention(const Plan& plan, CudaMemory& memory) {
  uint64_t partials = 0, arrived = 0;
  const auto count = [&](const AttentionSpec& spec) {
    check_slots(spec.k.size());
    const uint64_t pairs = spec.k.size() * uint64_t(spec.kv_heads), blocks = pairs * uint64_t(decode_splits(spec));
    arrived = std::max(arrived, pairs * 4);
    partials = std::max(partials, blocks * uint64_t(decode_partial_floats(spec.heads_per_kv(), spec.head_dim)) * 4);
  };
  for (const StepSpec& step : plan.steps) {
    if (const auto* spec = std::get_if<AttentionSpec>(&step)) count(*spec);
    if (const auto* spec = std::get_if<HeadsAttentionSpec>(&step)) count(spec->attention);
  }
  partials_ = memory.reserve(partials);
  arrived_ = memory.reserve(arrived);
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
  args.rotary_dim = int(chain.rotary_dim);
  args.tables_computed = chain.tables_computed;
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
  args.mask_step = int(spec.mask_step);
  args.by_lengths = spec.by_lengths;
  args.sinks = static_cast<const float*>(memory_.weight(spec.sinks_id));
  args.scale = spec.scale;
  args.softcap = spec.softcap;
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
  AttentionArgs args = attention_args(spec);
  const bool fast = fast_attention(spec, args);
  if (fast && decode_attention_supports(args)) return launch_decode_attention(decode_args(spec, args), stream_);
  if (fast && prefill_attention_supports(args)) {
    if (reader_ != nullptr) args.operand = memory_.scratch(left_);
    prepared_ = reader_;
    return launch_prefill_attention(args, stream_);
  }
  launch_attention_any(spec.elem, spec.cache_elem, args, stream_);
}

// One launch if a kernel computes both, else one launch for each.
void StepLauncher::launch_step(const HeadsAttentionSpec& spec) {
  const HeadChainSpec &q = spec.of_q(), &k = spec.of_k(), &v = spec.of_v();
  const AttentionArgs args = attention_args(spec.attention);
  const bool strides_are_one = q.x.stride == k.x.stride && q.x.stride == v.x.stride;
  // The kernels turn whole heads by the row of the valid length, or the last one: the only one of a table of one token.
  const bool tables_fit =
      q.cos_id == kNoValue || (q.table_elem == kF16 && q.rotary_dim == q.head_dim && k.rotary_dim == q.head_dim &&
                               (!q.tables_computed || q.table_rows == 1));
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

}  // namespace tcim_lite::cuda
