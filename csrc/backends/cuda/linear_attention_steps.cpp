// The launches of steps of linear attention.
#include "backends/cuda/kernels/linear_attention.h"
#include "backends/cuda/steps.h"
#include "base/error.h"

namespace tcim_lite::cuda {

void StepLauncher::launch_step(const CausalConvSpec& spec) {
  CausalConvArgs args{};
  args.x = memory_.at(spec.x.value);
  args.state = memory_.at(spec.state);
  args.y = memory_.at(spec.y.value);
  args.weight = static_cast<const float*>(memory_.weight(spec.weight_id));
  args.bias = static_cast<const float*>(memory_.weight(spec.bias_id));
  args.slots = int(spec.slots());
  args.tokens = int(spec.x.slot_rows);
  args.channels = int(spec.x.cols);
  args.taps = int(spec.taps);
  args.columns = int(spec.columns);
  args.x_stride = spec.x.stride;
  args.y_stride = spec.y.stride;
  args.silu = spec.silu;
  args.current = spec.current == kNoValue ? nullptr : memory_.length(spec.current);
  args.live = memory_.live(spec.y);
  args.refused = memory_.refused();
  args.count = spec.new_states.size() == 1 ? args.tokens : 1;
  for (const uint32_t id : spec.new_states) {
    args.new_state = memory_.at(id);
    launch_causal_conv(spec.elem, args, stream_);
    args.first += args.count;
  }
}

void StepLauncher::launch_step(const DeltaRuleSpec& spec) {
  DeltaRuleArgs args{};
  args.q = memory_.at(spec.q.value);
  args.k = memory_.at(spec.k.value);
  args.v = memory_.at(spec.v.value);
  args.decay = spec.has_decay ? memory_.at(spec.decay.value) : nullptr;
  args.beta = spec.has_beta ? memory_.at(spec.beta.value) : nullptr;
  args.mask = spec.mask == kNoValue ? nullptr : memory_.at(spec.mask);
  args.state = memory_.at(spec.state);
  args.y = memory_.at(spec.y.value);
  args.rate = static_cast<const float*>(memory_.weight(spec.rate_id));
  args.bias = static_cast<const float*>(memory_.weight(spec.bias_id));
  args.skip = static_cast<const float*>(memory_.weight(spec.skip_id));
  args.q_stride = spec.q.stride;
  args.k_stride = spec.k.stride;
  args.v_stride = spec.v.stride;
  args.decay_stride = spec.decay.stride;
  args.beta_stride = spec.beta.stride;
  args.y_stride = spec.y.stride;
  args.slots = int(spec.slots());
  args.tokens = int(spec.v.slot_rows);
  args.heads = int(spec.heads);
  args.q_heads = int(spec.q_heads);
  args.k_heads = int(spec.k_heads);
  args.keys = int(spec.keys);
  args.values = int(spec.values);
  args.decays = spec.has_decay ? int(spec.decays()) : 0;
  args.scale = spec.scale;
  args.live = memory_.live(spec.y);
  args.refused = memory_.refused();
  if (!delta_rule_supports(args))
    fail(ErrorCode::Unsupported, "DeltaRule: ", args.keys, " keys of a head are more than the CUDA backend computes; ",
         "load it on the CPU (TCIM_LITE_DEVICE=cpu)");
  args.count = spec.new_states.size() == 1 ? args.tokens : 1;
  for (const uint32_t id : spec.new_states) {
    args.new_state = memory_.at(id);
    launch_delta_rule(spec.elem, args, stream_);
    args.state = args.new_state;
    args.first += args.count;
  }
}

void StepLauncher::launch_step(const GateMulSpec& spec) {
  launch_gate_mul(spec.elem,
                  {memory_.at(spec.x.value), memory_.at(spec.gate.value), memory_.at(spec.y.value), int(spec.y.rows),
                   int(spec.y.cols), spec.x.stride, spec.gate.stride, spec.y.stride, spec.function, int(spec.each()),
                   memory_.live(spec.y), memory_.refusal(spec.y)},
                  stream_);
}

}  // namespace tcim_lite::cuda
