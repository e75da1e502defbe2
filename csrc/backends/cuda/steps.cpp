// The launches of each step of a plan; attention_steps.cpp has those of heads and attention.
#include "backends/cuda/steps.h"

#include <algorithm>
#include <variant>
#include <vector>

namespace tcim_lite::cuda {
namespace {

// Whether cuBLAS computes the product, where it is found.
bool wants_library(const LinearSpec& spec) {
  return spec.elem == kF16 && spec.format == WeightFormat::LinearF16 && spec.x.rows > kStreamRows;
}

// Bytes of x after its norm, where a kernel of its own computes that.
uint64_t norm_bytes(const LinearSpec& spec) {
  if (spec.norm_id == kNoValue) return 0;
  return uint64_t(spec.x.rows * spec.inputs * elem_bytes(spec.elem) + 255) / 256 * 256;
}

bool takes_gemm(const LinearSpec& spec) { return spec.quantized() && has_items(spec.format); }

// Whether Hopper's products may find x quantised.
bool takes_operand(const LinearSpec& spec) {
  return linear_wgmma_supports(spec.elem) && takes_gemm(spec) && spec.x.rows > kStreamRows && spec.norm_id == kNoValue;
}

// What a step makes that it may leave as an operand.
const Rows* left_by(const StepSpec& step) {
  if (const auto* spec = std::get_if<AttentionSpec>(&step)) return &spec->y;
  if (const auto* spec = std::get_if<HeadsAttentionSpec>(&step)) return &spec->attention.y;
  const auto* linear = std::get_if<LinearSpec>(&step);
  return linear != nullptr && linear->epilogue == LinearSpec::Epilogue::SiluMul ? &linear->y : nullptr;
}

// Whether fp16 rows share memory.
bool overlap(const Plan& plan, const Rows& a, const Rows& b) {
  const Plan::Storage &at = plan.storage[a.value], &other = plan.storage[b.value];
  return at.place == other.place && at.port == other.port && at.offset < other.offset + b.rows * b.stride * 2 &&
         other.offset < at.offset + a.rows * a.stride * 2;
}

uint64_t scratch_of(const LinearSpec& spec) {
  if (takes_gemm(spec)) return uint64_t(gemm_scratch_bytes(spec.x.rows, spec.inputs));
  return norm_bytes(spec) + (wants_library(spec) ? uint64_t(spec.x.rows * spec.outputs * 4) : 0);
}

uint64_t scratch_of(const MoELinearSpec& spec) {
  const LinearSpec& linear = spec.linear;
  if (!linear.quantized() || !has_items(linear.format)) return 0;
  return uint64_t(experts_scratch_bytes(linear.x.rows, linear.inputs, spec.experts, spec.chosen, spec.x_per_expert()));
}

}  // namespace

StepLauncher::StepLauncher(const Graph& graph, const Plan& plan, CudaMemory& memory, cudaStream_t stream)
    : plan_(plan), memory_(memory), stream_(stream), network_(graph, plan, memory, stream) {
  uint64_t linear = 0, left = 0;
  for (const StepSpec& step : plan.steps) {
    if (const auto* spec = std::get_if<LinearSpec>(&step)) {
      linear = std::max(linear, scratch_of(*spec));
      if (takes_operand(*spec)) left = std::max(left, uint64_t(wgmma_operand_bytes(spec->x.rows, spec->inputs)));
    }
    if (const auto* spec = std::get_if<MoELinearSpec>(&step)) linear = std::max(linear, scratch_of(*spec));
  }
  linear_scratch_ = memory.reserve(linear);
  left_ = memory.reserve(left);
  outside_ = memory.reserve(plan.steps.size() * sizeof(int));
  reserve_attention(plan, memory);
}

void StepLauncher::prepare() {
  network_.prepare();
  if (linear_wgmma_supports(kF16)) check_scales();
}

void StepLauncher::check_scales() {
  auto* const outside = reinterpret_cast<int*>(memory_.scratch(outside_));
  const auto wgmma_linear = [&](size_t step) {
    const auto* spec = std::get_if<LinearSpec>(&plan_.steps[step]);
    return spec != nullptr && takes_gemm(*spec) && spec->elem == kF16 ? spec : nullptr;
  };
  for (size_t step = 0; step < plan_.steps.size(); ++step) {
    if (const LinearSpec* spec = wgmma_linear(step))
      launch_scales_check(spec->format, memory_.weight(spec->weights_id), spec->outputs, spec->inputs, outside + step,
                          stream_);
  }
  std::vector<int> found(plan_.steps.size());
  CUDA_CHECK(cudaMemcpyAsync(found.data(), outside, found.size() * sizeof(int), cudaMemcpyDeviceToHost, stream_));
  CUDA_CHECK(cudaStreamSynchronize(stream_));
  for (size_t step = 0; step < found.size(); ++step) {
    if (const LinearSpec* spec = wgmma_linear(step); spec != nullptr && found[step] == 0) fp16_weights_.insert(spec);
  }
}

const LinearSpec* StepLauncher::reader_of(const StepSpec& step) const {
  const size_t next = size_t(&step - plan_.steps.data()) + 1;
  const Rows* y = left_by(step);
  if (y == nullptr || next == plan_.steps.size() || !plan_.gathers.empty()) return nullptr;
  const auto* linear = std::get_if<LinearSpec>(&plan_.steps[next]);
  if (linear == nullptr || !takes_operand(*linear) || fp16_weights_.count(linear) == 0) return nullptr;
  if (linear->x.value != y->value || linear->x.rows != y->rows || linear->x.cols != y->cols) return nullptr;
  const Plan::Storage& storage = plan_.storage[y->value];
  if (storage.place != Plan::Place::Arena || plan_.last_use[y->value] != int64_t(next)) return nullptr;
  if (linear->epilogue == LinearSpec::Epilogue::AddResidual && overlap(plan_, linear->residual, *y)) return nullptr;
  return linear;
}

void StepLauncher::launch(const StepSpec& step) {
  reader_ = reader_of(step);
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
  if (takes_gemm(spec)) {
    if (prepared_ == &spec) {
      args.prepared = memory_.scratch(left_);
    } else if (reader_ != nullptr) {
      args.operand = memory_.scratch(left_);
    }
    const bool wgmma = fp16_weights_.count(&spec) != 0;
    prepared_ = launch_linear_gemm(spec.elem, spec.format, args, wgmma, scratch, stream_) ? reader_ : nullptr;
    return;
  }

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
  (spec.gelu ? launch_gelu_mul : launch_silu_mul)(spec.elem, args, stream_);
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
  args.sigmoid = spec.sigmoid;
  args.softmax_scores = spec.softmax_scores;
  args.threshold = spec.threshold;
  args.bias = static_cast<const float*>(memory_.weight(spec.bias_id));
  args.groups = int(spec.groups);
  args.kept_groups = int(spec.kept_groups);
  args.live = memory_.live(spec.logits);
  args.refused = memory_.refusal(spec.weights);
  launch_route(spec.elem, args, stream_);
}

void StepLauncher::launch_step(const MoELinearSpec& spec) {
  const LinearSpec& linear = spec.linear;
  ExpertsArgs args{};
  args.linear = linear_args(linear);
  args.ids = spec.in_order ? nullptr : reinterpret_cast<const int*>(memory_.at(spec.ids.value));
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
