#include "backends/cuda/conv_steps.h"

#include <algorithm>
#include <variant>

#include "backends/cuda/handles.h"
#include "backends/cuda/window_args.h"
#include "base/error.h"
#include "graph/plan/step_name.h"

namespace tcim_lite::cuda {
namespace {

constexpr int64_t kUnfoldedBytes = 32 << 20;  // of a part of a quantised convolution, which an L2 of 50 MB holds

bool is_plain(const Window::Axis& axis) {
  return axis.kernel == 1 && axis.stride == 1 && axis.pad == 0 && axis.upsample == 1 && axis.in == axis.out;
}
// Whether an output pixel reads the input's pixel of the same place and nothing else.
bool is_plain(const Window& window) { return is_plain(window.h) && is_plain(window.w); }

// Of a convolution with packed weights.
int64_t padded_inputs(const ConvSpec& spec) { return (spec.inputs() + 63) / 64 * 64; }
int64_t rows_at_once(const ConvSpec& spec) {
  const int64_t rows = spec.batch * spec.window.out_pixels();
  return std::min(rows, std::max<int64_t>(128, kUnfoldedBytes / (2 * padded_inputs(spec)) / 128 * 128));
}
uint64_t whole(uint64_t bytes) { return (bytes + 255) / 256 * 256; }
int64_t whole_channels(const ConvSpec& spec) { return (spec.channels + 7) / 8 * 8; }
uint64_t unfolded_bytes(const ConvSpec& spec) { return whole(uint64_t(rows_at_once(spec) * padded_inputs(spec) * 2)); }
uint64_t sums_bytes(const ConvSpec& spec) { return whole(uint64_t(rows_at_once(spec) * spec.outputs * 2)); }

}  // namespace

ConvLauncher::ConvLauncher(const Plan& plan, CudaMemory& memory, const std::vector<bool>& last, cudaStream_t stream)
    : plan_(plan), memory_(memory), stream_(stream), last_(last) {
  uint64_t scratch = 0;
  for (const StepSpec& step : plan.steps) {
    const auto* conv = std::get_if<ConvSpec>(&step);
    if (conv == nullptr) continue;
    check_window(conv->window, "Conv");
    if (conv->batch * conv->window.out_pixels() >= INT32_MAX)
      fail(ErrorCode::Unsupported, name_of(step).op, ": 2^31 output pixels; the CUDA backend computes fewer");
    if (is_laid_out(*conv)) {
      if (is_copied_last(*conv)) {
        scratch =
            std::max(scratch, whole(uint64_t(conv->batch * conv->window.in_pixels() * whole_channels(*conv) * 2)));
      }
      prepared_[conv] = memory.reserve(uint64_t(conv->groups * conv->outputs * layout_of(*conv).row * 2));
    }
    if (conv->quantized()) {
      if (linear_wgmma_supports(kF16))
        prepared_[conv] = memory.reserve(uint64_t(conv->outputs * padded_inputs(*conv) * 2));
      scratch = std::max(scratch, unfolded_bytes(*conv) + sums_bytes(*conv) +
                                      uint64_t(gemm_scratch_bytes(rows_at_once(*conv), padded_inputs(*conv))));
    }
  }
  scratch_ = memory.reserve(scratch);
  inexact_ = memory.reserve(sizeof(int));
}

void ConvLauncher::prepare() {
  for (const StepSpec& step : plan_.steps) {
    const auto* conv = std::get_if<ConvSpec>(&step);
    if (conv == nullptr) continue;
    if (is_laid_out(*conv)) lay_out(*conv);
    if (conv->quantized() && prepared_.count(conv) != 0 && dequantise(*conv)) exact_.insert(conv);
  }
}

void ConvLauncher::lay_out(const ConvSpec& spec) const {
  launch_product_layout(memory_.weight(spec.weights_id), memory_.scratch(prepared_.at(&spec)),
                        spec.groups * spec.outputs, spec.channels, spec.window.taps(), layout_of(spec), stream_);
}

bool ConvLauncher::dequantise(const ConvSpec& spec) const {
  int inexact = 0;
  auto* const flag = reinterpret_cast<int*>(memory_.scratch(inexact_));
  CUDA_CHECK(cudaMemsetAsync(flag, 0, sizeof(int), stream_));
  launch_dequantise(memory_.weight(spec.weights_id), memory_.scratch(prepared_.at(&spec)), spec.outputs,
                    padded_inputs(spec), flag, stream_);
  CUDA_CHECK(cudaMemcpyAsync(&inexact, flag, sizeof(int), cudaMemcpyDeviceToHost, stream_));
  CUDA_CHECK(cudaStreamSynchronize(stream_));
  return inexact == 0;
}

bool ConvLauncher::is_laid_out(const ConvSpec& spec) const {
  return spec.elem == kF16 && kind_of(spec) == ConvKind::Product && needs_layout(spec.channels, spec.window.taps());
}

bool ConvLauncher::is_copied_last(const ConvSpec& spec) const {
  return is_laid_out(spec) && spec.groups == 1 && !last_[spec.x] &&
         wants_channels_last(spec.channels, spec.window.taps());
}

ProductLayout ConvLauncher::layout_of(const ConvSpec& spec) const {
  if (is_copied_last(spec)) return product_layout(whole_channels(spec), spec.window.taps(), true);
  return product_layout(spec.channels, spec.window.taps(), last_[spec.x]);
}

ConvArgs ConvLauncher::conv_args(const ConvSpec& spec) const {
  ConvArgs args{};
  args.x = memory_.at(spec.x);
  args.weights = memory_.weight(spec.weights_id);
  args.y = memory_.at(spec.y);
  args.window = window_args(spec.window);
  args.batch = int(spec.batch);
  args.groups = int(spec.groups);
  args.channels = int(spec.channels);
  args.outputs = int(spec.outputs);
  args.x_last = last_[spec.x];
  args.y_last = last_[spec.y];
  args.end = {static_cast<const float*>(memory_.weight(spec.bias_id)), memory_.operand(spec.residual), spec.function,
              spec.alpha, spec.beta};
  args.refused = memory_.refusal(spec.y);
  return args;
}

ProductArgs ConvLauncher::product_args(const ConvSpec& spec) const {
  const ConvArgs conv = conv_args(spec);
  const int64_t in_pixels = spec.window.in_pixels(), out_pixels = spec.window.out_pixels();
  ProductArgs args{};
  args.a = conv.weights;
  args.b = conv.x;
  args.y = conv.y;
  args.count = conv.groups;
  args.m = conv.outputs;
  args.k = int(spec.inputs());
  args.channels = conv.channels;
  args.by_taps = spec.window.taps() == 1;
  args.a_stride = args.k;
  if (is_laid_out(spec)) {
    const ProductLayout layout = layout_of(spec);
    args.a = memory_.scratch(prepared_.at(&spec));
    args.by_taps = layout.tap > 0;
    args.a_stride = args.k = int(layout.row);
  }
  args.b_row = in_pixels;
  args.b_image = spec.groups * spec.channels * in_pixels;
  if (is_copied_last(spec)) {
    args.b = memory_.scratch(scratch_);
    args.b_last = true;
    args.channels = int(whole_channels(spec));
    args.b_image = args.channels * in_pixels;
  }
  args.pixels = int(out_pixels);
  args.columns = int(spec.batch * out_pixels);
  args.b_next = args.b_multiple = spec.channels * in_pixels;
  args.y_row = out_pixels;
  args.y_next = spec.outputs * out_pixels;
  args.y_image = spec.groups * args.y_next;
  args.a_next = args.a_multiple = spec.outputs * args.a_stride;
  args.windows = !is_plain(spec.window);
  args.b_last = args.b_last || conv.x_last;
  if (args.b_last) args.b_column = args.channels;
  args.y_last = conv.y_last;
  args.window = conv.window;
  args.end = conv.end;
  args.refused = conv.refused;
  return args;
}

void ConvLauncher::launch(const ConvSpec& spec) const {
  switch (kind_of(spec)) {
    case ConvKind::Linear:
      return exact_.count(&spec) != 0 ? launch_codes(spec) : launch_quantized(spec);
    case ConvKind::Direct:
      return launch_conv_direct(spec.elem, conv_args(spec), stream_);
    case ConvKind::Product:
      const ProductArgs args = product_args(spec);
      if (is_copied_last(spec)) {
        launch_channels_last(memory_.at(spec.x), memory_.scratch(scratch_), spec.batch, spec.channels,
                             spec.window.in_pixels(), stream_);
      }
      return spec.elem == kF16 ? launch_product_half(args, stream_) : launch_product_float(args, stream_);
  }
}

// As a float16 product of the unfolded pixels' codes, a part of them at a time.
void ConvLauncher::launch_codes(const ConvSpec& spec) const {
  const ConvArgs conv = conv_args(spec);
  const int64_t inputs = padded_inputs(spec);
  std::byte* const x = memory_.scratch(scratch_);
  const bool is_rows = conv.x_last && is_plain(spec.window) && spec.channels == inputs;
  ProductArgs args = product_args(spec);
  args.a = memory_.scratch(prepared_.at(&spec));
  args.b = x;
  args.k = args.channels = int(inputs);
  args.a_stride = inputs;
  args.b_last = true;
  args.windows = false;
  const auto plain = [](const Window::Axis& axis) { return WindowAxis{int(axis.out), int(axis.out), 1, 1, 0, 1, 1}; };
  args.window = {plain(spec.window.h), plain(spec.window.w)};
  args.b_image = spec.window.out_pixels() * inputs;
  const int64_t rows = spec.batch * spec.window.out_pixels(), step = rows_at_once(spec);
  for (int64_t first = 0; first < rows; first += step) {
    args.first = int(first);
    args.columns = int(std::min(step, rows - first));
    if (!is_rows) launch_unfold(conv, x, first, args.columns, inputs, stream_);
    const void* from = is_rows ? static_cast<const uint16_t*>(conv.x) + first * inputs : static_cast<const void*>(x);
    launch_round_groups(from, x, args.columns * inputs, stream_);
    launch_product_last(args, stream_);
  }
}

// As a Linear of the unfolded pixels, a part of them at a time, with exact codes: launch_codes() has the weights that
// fp16 holds.
void ConvLauncher::launch_quantized(const ConvSpec& spec) const {
  const ConvArgs conv = conv_args(spec);
  std::byte* const x = memory_.scratch(scratch_);
  std::byte* const sums = x + unfolded_bytes(spec);
  std::byte* const scratch = sums + sums_bytes(spec);
  LinearArgs linear{};
  linear.x = x;
  linear.inputs = int(padded_inputs(spec));
  linear.x_stride = linear.inputs;
  linear.outputs = conv.outputs;
  linear.weights = conv.weights;
  linear.bias = conv.end.bias;
  linear.y = sums;
  linear.y_stride = conv.outputs;
  // Pixels of which each is a row already.
  const bool is_rows = conv.x_last && is_plain(spec.window) && spec.channels == linear.inputs;
  ConvArgs fold = conv;
  fold.end.bias = nullptr;
  const int64_t rows = spec.batch * spec.window.out_pixels(), step = rows_at_once(spec);
  for (int64_t first = 0; first < rows; first += step) {
    linear.rows = int(std::min(step, rows - first));
    if (is_rows)
      linear.x = static_cast<const uint16_t*>(conv.x) + first * spec.channels;
    else
      launch_unfold(conv, x, first, linear.rows, linear.inputs, stream_);
    if (!conv.y_last) {
      launch_linear_gemm(kF16, spec.format, linear, false, scratch, stream_);
      launch_fold_end(fold, sums, first, linear.rows, stream_);
      continue;
    }
    // Rows of y are the rows of the Linear.
    const int64_t at = first * spec.outputs;
    auto* const y = static_cast<uint16_t*>(conv.y) + at;
    linear.y = y;
    if (conv.end.residual != nullptr) {
      linear.epilogue = int(LinearSpec::Epilogue::AddResidual);
      linear.residual = static_cast<const uint16_t*>(conv.end.residual) + at;
      linear.residual_stride = conv.outputs;
    }
    launch_linear_gemm(kF16, spec.format, linear, false, scratch, stream_);
    if (spec.function < 0) continue;
    launch_unary(UnaryOp(spec.function), kF16, {y, y, linear.rows * spec.outputs, spec.alpha, spec.beta, conv.refused},
                 stream_);
  }
}

}  // namespace tcim_lite::cuda
