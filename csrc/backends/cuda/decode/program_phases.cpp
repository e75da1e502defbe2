// The phases of single steps: Linears, attention, and ops that stand alone.
#include <algorithm>
#include <variant>

#include "backends/cuda/decode/program_builder.h"

namespace tcim_lite::cuda::decode {
namespace {

// Outputs of the block that has most of them where tiles are of 16 * blocks.
int most_of_a_block(int outputs, int blocks, int multiprocessors) {
  const int tiles = (outputs + 16 * blocks - 1) / (16 * blocks);
  return (tiles + multiprocessors - 1) / multiprocessors * 16 * blocks;
}

// Tiles of two blocks of 16 outputs need half as many meetings of the warps.
bool wants_two_blocks(int outputs, int multiprocessors) {
  return outputs % 32 == 0 &&
         most_of_a_block(outputs, 2, multiprocessors) <= most_of_a_block(outputs, 1, multiprocessors);
}

}  // namespace

// Whether a phase multiplies by such weights, its rows apart.
bool ProgramBuilder::takes(const LinearSpec& spec) const {
  const bool known = spec.format == WeightFormat::LinearW4 || spec.format == WeightFormat::LinearW8 ||
                     spec.format == WeightFormat::LinearF16;
  if (!known || spec.elem != kF16 || (is_quantized(spec.format) && !spec.quantized())) return false;
  const int most = has_experts_ && spec.x.rows == 1 ? kFewInputs : kMostInputs;
  return !spec.hidden_exponent && spec.inputs % 64 == 0 && spec.inputs <= most;
}

template <>
bool ProgramBuilder::add(const LinearSpec& spec) {
  if (!takes(spec) || !is_the_format(spec)) return false;
  if (spec.epilogue == LinearSpec::Epilogue::SiluMul && spec.outputs % 32 != 0) return false;
  if (!is_read_by_pieces(spec.x) || !takes_rows(spec.x)) return false;
  program_.format_ = spec.format;

  // Several rows of a long x are quantised once, not by each block.
  const bool several = args_.rows > 1, normed = spec.norm_id != kNoValue;
  const bool codes = several && is_quantized(spec.format) && !normed;
  const bool of_attention = codes && leave_codes(spec.x);
  const bool apart = codes && !of_attention && spec.inputs >= kManyInputs;
  const int squares = several && normed ? leave_squares(spec.x) : 0;
  if (apart) {
    Phase& phase = next(Phase::Kind::Quantize);
    flows_.back().made = range_of(spec.x);
    phase.quantize = {nullptr, nullptr, int(spec.x.stride), int(spec.inputs)};
    refer(phase.quantize.x, spec.x.value, true);
    own_codes(phase.quantize.codes);
  }
  LinearPhase& linear = next_linear(Phase::Kind::Linear, spec, spec.x);
  if (apart || of_attention) own_codes(linear.codes);
  linear.squares = int16_t(squares);
  refer(linear.norm_weight, spec.norm_id);
  refer(linear.y, spec.y.value);
  linear.epsilon = spec.norm_epsilon;
  linear.y_stride = int(spec.y.stride);
  flows_.back().made = range_of(spec.y);
  keep_output(spec.y);
  if (spec.epilogue == LinearSpec::Epilogue::AddResidual) add_residual(linear, spec.residual);
  return true;
}

// Lets the Linear before, if it makes all of x, leave sums of squares of its tiles: how many, 0 if none.
int ProgramBuilder::leave_squares(const Rows& x) {
  if (args_.count == 0 || flows_.back().made != range_of(x)) return 0;
  Phase& before = args_.phases[args_.count - 1];
  if (before.kind != Phase::Kind::Linear || before.linear.epilogue == int8_t(LinearSpec::Epilogue::SiluMul)) return 0;
  LinearPhase& linear = before.linear;
  if (linear.y_stride != int(x.stride) || linear.squares > 0 || linear.tiles > kMostSquares) return 0;
  linear.squares = -1;
  own_at(args_.squares, squares_, kMostRows * kMostSquares * sizeof(float));
  return linear.tiles;
}
// Lets attention, if it makes all of x, leave its codes.
bool ProgramBuilder::leave_codes(const Rows& x) {
  if (args_.count == 0 || flows_.back().made != range_of(x)) return false;
  Phase& before = args_.phases[args_.count - 1];
  if (before.kind != Phase::Kind::Attention || before.attention.y_stride != int(x.stride)) return false;
  own_codes(before.attention.codes);
  return true;
}

LinearPhase& ProgramBuilder::next_linear(Phase::Kind kind, const LinearSpec& spec, const std::optional<Rows>& x) {
  LinearPhase& linear = next(kind).linear = {};
  if (x) {
    refer(linear.x, x->value, true);
    linear.x_stride = int(x->stride);
    flows_.back().reads = {range_of(*x)};
  }
  refer(linear.weights, spec.weights_id);
  refer(linear.bias, spec.bias_id);
  linear.inverse_inputs = 1.0f / float(spec.inputs);
  linear.inputs = int(spec.inputs);
  linear.outputs = int(spec.outputs);
  linear.epilogue = int8_t(spec.epilogue);
  const bool gated = spec.epilogue == LinearSpec::Epilogue::SiluMul;
  linear.blocks = gated || wants_two_blocks(linear.outputs, multiprocessors_) ? 2 : 1;
  linear.tiles = (linear.outputs + 16 * linear.blocks - 1) / (16 * linear.blocks);
  return linear;
}
void ProgramBuilder::add_residual(LinearPhase& linear, const Rows& residual) {
  refer(linear.residual, residual.value);
  linear.residual_stride = int(residual.stride);
  flows_.back().residual = range_of(residual);
}

template <>
bool ProgramBuilder::add(const HeadsAttentionSpec& spec) {
  const AttentionSpec& a = spec.attention;
  const HeadChainSpec &q = spec.of_q(), &k = spec.of_k(), &v = spec.of_v();
  if (a.elem != kF16 || a.cache_elem != kF16) return false;
  if (q.cos_id != kNoValue && (q.table_elem != kF16 || q.rotary_dim != q.head_dim)) return false;
  if (q.tables_computed && q.table_rows != 1) return false;  // a row is taken by the valid length, or the last one
  if (a.sinks_id != kNoValue || !a.masks.empty() || a.softcap > 0) return false;
  if (a.window < a.context) return false;  // parts of a KV head are taken by the number of the block alone
  if (a.head_dim != kHeadDim || a.heads_per_kv() > most_heads_per_kv(a.q.rows == 1 && has_experts_)) return false;
  if (a.q.rows * a.kv_heads > multiprocessors_ || a.k.size() > size_t(kMostRows)) return false;
  if (q.x.stride != k.x.stride || q.x.stride != v.x.stride) return false;
  for (const HeadChainSpec* chain : {&q, &k, &v}) {
    if (!is_read_by_pieces(chain->x)) return false;
  }
  if (caches_ + 2 * a.k.size() > size_t(kMostCaches) || !has_the_same_shape(spec) || !takes_rows(a.q)) return false;
  if (shared_ == nullptr) share(spec);

  Phase& phase = next(Phase::Kind::Attention);
  flows_.back().made = range_of(a.y);
  keep_output(a.y);
  AttentionPhase& attention = phase.attention = {};
  refer(attention.q, q.x.value, true);
  refer(attention.k, k.x.value, true);
  refer(attention.v, v.x.value, true);
  refer(attention.q_norm, q.norm_id);
  refer(attention.k_norm, k.norm_id);
  refer(attention.y, a.y.value);
  attention.x_stride = int(q.x.stride);
  attention.y_stride = int(a.y.stride);
  attention.q_epsilon = q.norm_epsilon;
  attention.k_epsilon = k.norm_epsilon;
  attention.scale = a.scale;
  attention.caches = int(caches_);
  for (size_t slot = 0; slot < a.k.size(); ++slot) {
    refer(args_.caches[caches_++], a.k[slot], true);
    refer(args_.caches[caches_++], a.v[slot], true);
  }
  flows_.back().reads = {range_of(q.x), range_of(k.x), range_of(v.x)};
  return true;
}

template <>
bool ProgramBuilder::add(const ElementwiseSpec& spec) {
  if (!add_elementwise(spec.op, spec.elem, spec.a, spec.y)) return false;
  ElementwisePhase& phase = args_.phases[args_.count - 1].elementwise;
  refer(phase.b, spec.b.value);
  phase.b_stride = int(spec.b.stride);
  flows_.back().reads.push_back(range_of(spec.b));
  return true;
}
template <>
bool ProgramBuilder::add(const SiluMulSpec& spec) {
  return !spec.clamped() && !spec.gelu && add_elementwise(kElementwiseOps, spec.elem, spec.x, spec.y);
}
bool ProgramBuilder::add_elementwise(int op, Elem elem, const Rows& a, const Rows& y) {
  if (elem != kF16 || !takes_rows(y)) return false;
  Phase& phase = next(Phase::Kind::Elementwise);
  flows_.back().made = range_of(y);
  keep_output(y);
  phase.elementwise = {op, nullptr, nullptr, nullptr, int(a.stride), 0, int(y.stride), int(y.cols)};
  refer(phase.elementwise.a, a.value);
  refer(phase.elementwise.y, y.value);
  flows_.back().reads = {range_of(a)};
  flows_.back().takes = flows_.back().posts = false;
  return true;
}

// All attention of a program has one shape, the same lengths and the same tables.
bool ProgramBuilder::has_the_same_shape(const HeadsAttentionSpec& spec) const {
  if (shared_ == nullptr) return true;
  const AttentionSpec &a = spec.attention, &b = shared_->attention;
  const HeadChainSpec &q = spec.of_q(), &other = shared_->of_q();
  return a.lengths == b.lengths && a.q.slot_rows == b.q.slot_rows && a.heads_per_kv() == b.heads_per_kv() &&
         a.kv_heads == b.kv_heads && a.context == b.context && q.table_rows == other.table_rows &&
         q.cos_id == other.cos_id && q.sin_id == other.sin_id;
}
void ProgramBuilder::share(const HeadsAttentionSpec& spec) {
  shared_ = &spec;
  const AttentionSpec& a = spec.attention;
  args_.slots = int(a.k.size());
  args_.slot_rows = int(a.q.slot_rows);
  args_.heads_per_kv = int(a.heads_per_kv());
  args_.kv_heads = int(a.kv_heads);
  args_.splits = std::max(1, multiprocessors_ / (args_.slots * args_.slot_rows * args_.kv_heads));
  args_.context = int(a.context);
  args_.table_rows = int(spec.of_q().table_rows);
  refer(args_.cos, spec.of_q().cos_id);
  refer(args_.sin, spec.of_q().sin_id);
  for (size_t slot = 0; slot < a.lengths.size(); ++slot) {
    refer(args_.valid[slot], a.lengths[slot].valid);
    refer(args_.current[slot], a.lengths[slot].current);
  }
}

// Behind the specialisations of add(), which must be known here.
size_t ProgramBuilder::add_next() {
  if (const auto experts = find_experts(plan_, program_.end_)) return add(*experts) ? experts->count : 0;
  return std::visit([&](const auto& spec) { return add(spec); }, plan_.steps[program_.end_]) ? 1 : 0;
}

}  // namespace tcim_lite::cuda::decode
