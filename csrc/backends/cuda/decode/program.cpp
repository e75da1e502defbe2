// Which steps of a plan become one launch (kernel.h), and its arguments.
#include <algorithm>
#include <memory>
#include <variant>

#include "backends/cuda/decode/kernel.h"
#include "backends/cuda/part.h"
#include "base/env.h"

namespace tcim_lite::cuda {

using namespace decode;

namespace {

constexpr int kFewestPhases = 3;  // less is not worth a launch that nothing overlaps

bool program_wanted() { return env_text("TCIM_LITE_CUDA_CHAIN") != "off"; }

}  // namespace

bool CudaPart::linear_phase(const LinearSpec& spec, LinearPhase& linear) const {
  if (spec.elem != kF16 || (is_quantized(spec.format) && !spec.quantized())) return false;
  linear.x = at(spec.x.value);
  linear.weights = weight(spec.weights_id);
  linear.norm_weight = static_cast<const float*>(weight(spec.norm_id));
  linear.bias = static_cast<const float*>(weight(spec.bias_id));
  linear.residual = spec.epilogue == LinearSpec::Epilogue::AddResidual ? at(spec.residual.value) : nullptr;
  linear.y = at(spec.y.value);
  linear.epsilon = spec.norm_epsilon;
  linear.x_stride = int(spec.x.stride);
  linear.residual_stride = int(spec.residual.stride);
  linear.y_stride = int(spec.y.stride);
  linear.inputs = int(spec.inputs);
  linear.outputs = int(spec.outputs);
  linear.epilogue = int8_t(spec.epilogue);
  return place_linear(spec.format, linear);
}

// What all attention of a program shares goes to `args`; false where it differs from what is there.
bool CudaPart::attention_phase(const HeadsSpec& heads, const AttentionSpec& spec, ProgramArgs& args,
                               AttentionPhase& attention) const {
  if (spec.k.size() > size_t(kMostRows) || !matches(heads, spec)) return false;
  const DecodeAttentionArgs fused = fused_args(heads, spec);
  const AttentionArgs& a = fused.a;
  const int rows = a.slots * a.slot_rows;
  if (!supports_heads(rows, a.q_heads / a.kv_heads, a.kv_heads, a.head_dim)) return false;
  if (fused.x_stride % 8 != 0) return false;
  for (const void* x : {fused.x_q, fused.x_k, fused.x_v}) {
    if (reinterpret_cast<uintptr_t>(x) % 16 != 0) return false;
  }
  ProgramArgs shared = args;
  shared.slots = a.slots;
  shared.slot_rows = a.slot_rows;
  shared.heads_per_kv = a.q_heads / a.kv_heads;
  shared.kv_heads = a.kv_heads;
  shared.splits = splits_of(rows * a.kv_heads);
  shared.context = a.context;
  shared.table_rows = fused.table_rows;
  shared.cos = fused.cos;
  shared.sin = fused.sin;
  std::copy_n(a.valid, a.slots, shared.valid);
  std::copy_n(fused.current, a.slots, shared.current);
  const auto same = [](const ProgramArgs& a, const ProgramArgs& b) {
    return a.slots == b.slots && a.slot_rows == b.slot_rows && a.heads_per_kv == b.heads_per_kv &&
           a.kv_heads == b.kv_heads && a.context == b.context && a.table_rows == b.table_rows && a.cos == b.cos &&
           a.sin == b.sin && std::equal(a.valid, a.valid + a.slots, b.valid) &&
           std::equal(a.current, a.current + a.slots, b.current);
  };
  if (args.slots != 0 && !same(args, shared)) return false;
  args = shared;
  attention.q = fused.x_q;
  attention.k = fused.x_k;
  attention.v = fused.x_v;
  attention.x_stride = int(fused.x_stride);
  attention.q_norm = fused.q_norm;
  attention.k_norm = fused.k_norm;
  attention.y = a.y;
  attention.y_stride = int(a.y_stride);
  attention.q_epsilon = fused.q_epsilon;
  attention.k_epsilon = fused.k_epsilon;
  attention.scale = a.scale;
  return true;
}

size_t CudaPart::launch_program_from(size_t first, size_t end) {
  if (!program_runs_here() || num_gathers() > 0 || !program_wanted()) return 0;
  const auto args = std::make_unique<ProgramArgs>();
  WeightFormat format = WeightFormat::Dense;
  size_t step = first;
  int caches = 0;
  const auto fits = [&](const Rows& x) {
    if (args->count == 0) args->rows = int(x.rows);
    return x.rows == args->rows && x.rows <= kMostRows;
  };
  auto* const codes = reinterpret_cast<char*>(memory_.get() + codes_);
  const auto is_output = [&](const Rows& y) { return plan_.storage[y.value].place == Plan::Place::Output; };
  while (step < end && args->count + 1 < kMostPhases) {
    Phase* phase = &args->phases[args->count];
    if (const auto* linear = std::get_if<LinearSpec>(&plan_.steps[step])) {
      if (format != WeightFormat::Dense && linear->format != format) break;
      LinearPhase made{};
      if (!fits(linear->x) || !linear_phase(*linear, made)) break;
      format = linear->format;
      if (args->rows > 1 && is_quantized(format) && linear->norm_id == kNoValue && linear->inputs >= kManyInputs) {
        phase->kind = Phase::Kind::Quantize;
        phase->quantize = {made.x, codes, made.x_stride, made.inputs};
        made.codes = codes;
        phase = &args->phases[++args->count];
      }
      phase->kind = Phase::Kind::Linear;
      phase->linear = made;
      phase->keeps = is_output(linear->y);
      step += 1;
    } else {
      const auto* heads = std::get_if<HeadsSpec>(&plan_.steps[step]);
      const auto* spec = step + 1 < end ? std::get_if<AttentionSpec>(&plan_.steps[step + 1]) : nullptr;
      AttentionPhase made{};
      if (heads == nullptr || spec == nullptr || !fits(spec->q)) break;
      if (caches + 2 * spec->k.size() > size_t(kMostCaches)) break;
      if (!attention_phase(*heads, *spec, *args, made)) break;
      phase->kind = Phase::Kind::Attention;
      made.caches = caches;
      phase->attention = made;
      phase->keeps = is_output(spec->y);
      for (size_t slot = 0; slot < spec->k.size(); ++slot) {
        args->caches[caches++] = at(spec->k[slot]);
        args->caches[caches++] = at(spec->v[slot]);
      }
      step += 2;
    }
    ++args->count;
  }
  if (args->count < kFewestPhases || format == WeightFormat::Dense) return 0;
  args->refused = reinterpret_cast<const int*>(memory_.get() + refused_);
  args->partial = reinterpret_cast<float*>(memory_.get() + partials_);
  args->arrived = reinterpret_cast<int*>(memory_.get() + arrived_);
  args->barrier = reinterpret_cast<unsigned*>(memory_.get() + barrier_);
  args->mail = reinterpret_cast<uint64_t*>(memory_.get() + mail_);
  plan_handovers(*args);
  launch_program(format, *args, stream());
  return step - first;
}

}  // namespace tcim_lite::cuda
