#include "backends/cuda/decode/expert_steps.h"

#include <algorithm>
#include <initializer_list>
#include <variant>

namespace tcim_lite::cuda::decode {
namespace {

// Hands out the steps one after another, null where the next one is of another kind.
class Steps {
 public:
  Steps(const Plan& plan, size_t first) : plan_(plan), next_(first) {}

  template <typename Spec>
  const Spec* take() {
    const Spec* spec = next_ < plan_.steps.size() ? std::get_if<Spec>(&plan_.steps[next_]) : nullptr;
    if (spec != nullptr) ++next_;
    return spec;
  }
  size_t next() const { return next_; }

 private:
  const Plan& plan_;
  size_t next_;
};

bool fit_together(const ExpertSteps& s) {
  const LinearSpec &router = *s.router, &gate_up = s.gate_up->linear, &down = s.down->linear;
  const uint32_t product = s.clamped != nullptr ? s.clamped->y.value : gate_up.y.value;
  return s.norm->groups == 1 && router.norm_id == kNoValue && router.epilogue == LinearSpec::Epilogue::Store &&
         router.x.value == s.norm->y.value && s.route->logits.value == router.y.value && !s.route->scored() &&
         s.route->threshold == 0 && s.route->kept_groups == s.route->groups && !s.gate_up->in_order &&
         gate_up.x.value == s.norm->y.value && s.gate_up->ids.value == s.route->ids.value &&
         (s.clamped == nullptr || s.clamped->x.value == gate_up.y.value) && down.x.value == product &&
         down.epilogue == LinearSpec::Epilogue::Store && s.down->x_per_expert() &&
         s.down->ids.value == s.route->ids.value && s.combine->x.value == down.y.value &&
         s.combine->weights.value == s.route->weights.value && s.combine->adds &&
         s.combine->residual.value == s.norm->x.value;
}

}  // namespace

std::optional<ExpertSteps> find_experts(const Plan& plan, size_t first) {
  if (!plan.gathers.empty()) return std::nullopt;
  Steps steps(plan, first);
  ExpertSteps s{};
  s.norm = steps.take<RmsNormSpec>();
  s.router = steps.take<LinearSpec>();
  s.route = steps.take<MoERouteSpec>();
  s.gate_up = steps.take<MoELinearSpec>();
  if (s.gate_up == nullptr) return std::nullopt;
  if (s.gate_up->linear.epilogue != LinearSpec::Epilogue::SiluMul) {
    s.clamped = steps.take<SiluMulSpec>();
    if (s.clamped == nullptr || !s.clamped->clamped()) return std::nullopt;
  }
  s.down = steps.take<MoELinearSpec>();
  s.combine = steps.take<MoECombineSpec>();
  s.count = steps.next() - first;
  if (s.norm == nullptr || s.router == nullptr || s.route == nullptr || s.down == nullptr || s.combine == nullptr ||
      !fit_together(s))
    return std::nullopt;
  if (s.norm->elem != kF16 || s.norm->x.rows != 1) return std::nullopt;
  const auto stays_inside = [&](uint32_t value) {
    return plan.storage[value].place == Plan::Place::Arena && plan.last_use[value] < int64_t(steps.next());
  };
  const uint32_t product = s.down->linear.x.value;
  for (const uint32_t value : {s.norm->y.value, s.router->y.value, s.route->ids.value, s.route->weights.value,
                               s.gate_up->linear.y.value, product, s.down->linear.y.value}) {
    if (!stays_inside(value)) return std::nullopt;
  }
  return s;
}

}  // namespace tcim_lite::cuda::decode
