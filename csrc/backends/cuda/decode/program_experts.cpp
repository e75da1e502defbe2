// The phases of a mixture of experts.
#include "backends/cuda/decode/program_builder.h"

namespace tcim_lite::cuda::decode {
namespace {

constexpr int kMostGroupsOfAWarp = kMostCombined / 64 / kMostChosen;

}  // namespace

void ProgramBuilder::add_norm(LinearPhase& linear, const RmsNormSpec& norm) {
  refer(linear.norm_weight, norm.weight_id);
  linear.epsilon = norm.epsilon;
}

// Between its phases a mixture of experts uses memory of the program's own: the plan's may be given to what one of its
// later steps makes.
bool ProgramBuilder::add(const ExpertSteps& s) {
  const LinearSpec &router = *s.router, &gate_up = s.gate_up->linear, &down = s.down->linear;
  const int64_t experts = s.route->experts, chosen = s.route->chosen;
  if (experts > kMostExperts || chosen > kMostChosen || experts > 16 * multiprocessors_) return false;
  if (!takes(router) || !takes(gate_up) || !takes(down) || down.inputs * chosen > kMostCombined) return false;
  if (down.inputs / 64 > kMostGroupsOfAWarp * (kMostChosen / chosen)) return false;
  const bool half = gate_up.format == WeightFormat::LinearF16;
  if (router.format != (half ? WeightFormat::LinearF16 : WeightFormat::LinearW8)) return false;
  if (!is_the_format(gate_up) || down.format != gate_up.format || gate_up.outputs % 32 != 0) return false;
  if (!is_read_by_pieces(s.norm->x) || !takes_rows(s.norm->x)) return false;
  program_.format_ = gate_up.format;

  LinearPhase& scores = next_linear(Phase::Kind::Router, router, s.norm->x);
  add_norm(scores, *s.norm);
  own_at(scores.y, logits_, kMostExperts * 2);
  scores.blocks = 1;
  scores.tiles = int(experts + 15) / 16;

  RoutePhase& route = next(Phase::Kind::Route).route = {};
  own_at(route.logits, logits_, kMostExperts * 2);
  route.experts = int16_t(experts);
  route.chosen = int16_t(chosen);
  route.softmax_first = s.route->softmax_first;
  route.normalise = s.route->normalise;
  flows_.back().takes = false;

  LinearPhase& product = next_linear(Phase::Kind::Linear, gate_up, s.norm->x);
  add_norm(product, *s.norm);
  own_at(product.y, product_, kMostCombined * 2);
  product.chosen = int8_t(chosen);
  product.blocks = 2;
  product.outputs = int(chosen * gate_up.outputs);
  product.tiles = product.outputs / 32;
  if (s.clamped != nullptr) {
    product.epilogue = kClampedGlu;
    product.clamp = {s.clamped->alpha, s.clamped->limit};
  }
  flows_.back().takes = flows_.back().meets = false;

  LinearPhase& sum = next_linear(Phase::Kind::Linear, down, std::nullopt);
  own_at(sum.x, product_, kMostCombined * 2);
  refer(sum.y, s.combine->y.value);
  sum.chosen = int8_t(chosen);
  sum.combines = true;
  sum.epilogue = int8_t(LinearSpec::Epilogue::AddResidual);
  flows_.back().made = range_of(s.combine->y);
  flows_.back().takes = false;
  keep_output(s.combine->y);
  add_residual(sum, s.combine->residual);
  return true;
}

}  // namespace tcim_lite::cuda::decode
