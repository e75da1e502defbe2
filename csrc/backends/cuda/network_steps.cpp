#include "backends/cuda/network_steps.h"

#include <algorithm>
#include <numeric>
#include <variant>

#include "backends/cuda/handles.h"
#include "backends/cuda/network_layout.h"
#include "base/error.h"
#include "graph/plan/step_name.h"

namespace tcim_lite::cuda {
namespace {

constexpr int64_t kUnfoldedBytes = 32 << 20;  // of a part of a quantised convolution, which an L2 of 50 MB holds

WindowAxis axis_args(const Window::Axis& axis) {
  return {int(axis.in),  int(axis.out),      int(axis.kernel),  int(axis.stride),
          int(axis.pad), int(axis.dilation), int(axis.upsample)};
}
WindowArgs window_args(const Window& window) { return {axis_args(window.h), axis_args(window.w)}; }

// Positions are 32-bit numbers.
void check_window(const Window& window, const char* op) {
  for (const Window::Axis* axis : {&window.h, &window.w}) {
    const int64_t farthest = axis->out * axis->stride + axis->kernel * axis->dilation + std::abs(axis->pad);
    if (farthest < INT32_MAX) continue;
    fail(
        ErrorCode::Unsupported, op, ": a window reaches ", farthest,
        " rows or columns far, the CUDA backend computes up to 2^31; load the model on the CPU (TCIM_LITE_DEVICE=cpu)");
  }
  if (window.out_pixels() >= INT32_MAX || window.in_pixels() >= INT32_MAX)
    fail(ErrorCode::Unsupported, op, ": planes of 2^31 elements; the CUDA backend computes smaller ones");
}

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

// What all numbers of a list are multiples of.
int64_t common_factor(const std::vector<int64_t>& list) {
  return std::accumulate(list.begin(), list.end(), int64_t{0}, [](int64_t a, int64_t b) { return std::gcd(a, b); });
}

}  // namespace

NetworkLauncher::NetworkLauncher(const Graph& graph, const Plan& plan, CudaMemory& memory, cudaStream_t stream)
    : plan_(plan), memory_(memory), stream_(stream), last_(values_with_channels_last(graph, plan)) {
  uint64_t scratch = 0;
  for (const StepSpec& step : plan.steps) {
    if (const auto* pool = std::get_if<PoolSpec>(&step)) check_window(pool->window, "Pool");
    if (const auto* product = std::get_if<MatMulSpec>(&step))
      prepared_[product] = memory.reserve((product->a_offsets.size() + product->b_offsets.size()) * sizeof(int64_t));
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

void NetworkLauncher::prepare() {
  for (const StepSpec& step : plan_.steps) {
    if (const auto* resample = std::get_if<ResampleSpec>(&step)) check(*resample);
    if (const auto* product = std::get_if<MatMulSpec>(&step)) prepare(*product, prepared_.at(product));
    const auto* conv = std::get_if<ConvSpec>(&step);
    if (conv != nullptr && is_laid_out(*conv)) prepare(*conv, prepared_.at(conv));
    if (conv != nullptr && conv->quantized() && prepared_.count(conv) != 0) {
      int inexact = 0;
      auto* const flag = reinterpret_cast<int*>(memory_.scratch(inexact_));
      CUDA_CHECK(cudaMemsetAsync(flag, 0, sizeof(int), stream_));
      launch_dequantise(memory_.weight(conv->weights_id), memory_.scratch(prepared_.at(conv)), conv->outputs,
                        padded_inputs(*conv), flag, stream_);
      CUDA_CHECK(cudaMemcpyAsync(&inexact, flag, sizeof(int), cudaMemcpyDeviceToHost, stream_));
      CUDA_CHECK(cudaStreamSynchronize(stream_));
      if (inexact == 0) exact_.insert(conv);
    }
  }
  CUDA_CHECK(cudaStreamSynchronize(stream_));
}

void NetworkLauncher::prepare(const ConvSpec& spec, uint64_t at) const {
  launch_product_layout(memory_.weight(spec.weights_id), memory_.scratch(at), spec.groups * spec.outputs, spec.channels,
                        spec.window.taps(), layout_of(spec), stream_);
}

void NetworkLauncher::prepare(const MatMulSpec& spec, uint64_t at) const {
  std::vector<int64_t> offsets = spec.a_offsets;
  offsets.insert(offsets.end(), spec.b_offsets.begin(), spec.b_offsets.end());
  copy_to_gpu(memory_.scratch(at), offsets.data(), offsets.size() * sizeof(int64_t));
}

void NetworkLauncher::check(const ResampleSpec& spec) const {
  std::vector<int32_t> indices(size_t(spec.count * spec.taps));
  CUDA_CHECK(cudaMemcpy(indices.data(), memory_.weight(spec.indices_id), indices.size() * sizeof(int32_t),
                        cudaMemcpyDeviceToHost));
  for (const int32_t index : indices) {
    if (index >= 0 && index < spec.extent) continue;
    fail(ErrorCode::Format, "Resample: index ", index, " is beyond its axis of ", spec.extent,
         "; compile the model again");
  }
}

const void* NetworkLauncher::operand(const Operand& operand) const {
  if (!operand.given()) return nullptr;
  return operand.weight ? memory_.weight(operand.value) : memory_.at(operand.value);
}

const int* NetworkLauncher::refused(uint32_t value) const {
  Rows rows;
  rows.value = value;
  return memory_.refusal(rows);
}

void NetworkLauncher::launch(const UnarySpec& spec) const {
  launch_unary(spec.op, spec.elem,
               {memory_.at(spec.x), memory_.at(spec.y), spec.count, spec.alpha, spec.beta, refused(spec.y)}, stream_);
}

void NetworkLauncher::launch(const BroadcastSpec& spec) const {
  BroadcastArgs args{};
  args.y = memory_.at(spec.y);
  args.count = 1;
  args.axes = spec.axes;
  args.refused = refused(spec.y);
  for (int axis = 0; axis < spec.axes; ++axis) args.count *= args.extents[axis] = spec.extents[axis];
  for (int i = 0; i < 3; ++i) {
    args.operands[i] = operand(spec.operands[i]);
    std::copy_n(spec.strides[i], kMaxAxes, args.strides[i]);
  }
  launch_broadcast(spec.op, spec.elem, args, stream_);
}

void NetworkLauncher::launch(const ReduceSpec& spec) const {
  launch_reduce(spec.op, spec.elem, {memory_.at(spec.x), memory_.at(spec.y), spec.rows, spec.cols, refused(spec.y)},
                stream_);
}

void NetworkLauncher::launch(const SoftmaxSpec& spec) const {
  launch_softmax(spec.elem, {memory_.at(spec.x), memory_.at(spec.y), spec.rows, spec.cols, refused(spec.y)}, spec.log,
                 stream_);
}

void NetworkLauncher::launch(const LayerNormSpec& spec) const {
  launch_layer_norm(spec.elem, {memory_.at(spec.x), memory_.at(spec.y), spec.rows, spec.cols, refused(spec.y)},
                    static_cast<const float*>(memory_.weight(spec.weight_id)),
                    static_cast<const float*>(memory_.weight(spec.bias_id)), spec.epsilon, stream_);
}

void NetworkLauncher::launch(const TopKSpec& spec) const {
  const int* stops = refused(spec.values) != nullptr ? refused(spec.values) : refused(spec.indices);
  launch_top_k(spec.elem, {memory_.at(spec.x), memory_.at(spec.values), spec.rows, spec.cols, stops},
               reinterpret_cast<int*>(memory_.at(spec.indices)), spec.chosen, spec.largest, stream_);
}

void NetworkLauncher::launch(const PoolSpec& spec) const {
  if (reduces_planes(spec)) {
    return launch_reduce(
        spec.mean ? kReduceMean : kReduceMax, spec.elem,
        {memory_.at(spec.x), memory_.at(spec.y), spec.planes, spec.window.in_pixels(), refused(spec.y)}, stream_);
  }
  const PoolArgs args{memory_.at(spec.x), memory_.at(spec.y), window_args(spec.window),
                      spec.planes,        spec.mean,          spec.counts_pads,
                      spec.extent_h,      spec.extent_w,      refused(spec.y)};
  if (last_[spec.y]) return launch_pool_last(args, int(spec.channels), stream_);
  launch_pool(spec.elem, args, stream_);
}

void NetworkLauncher::launch(const MoveSpec& spec) const {
  if (spec.fills) launch_fill(spec.bytes, memory_.at(spec.y), spec.count, spec.fill, refused(spec.y), stream_);
  for (const Box& box : spec.boxes) {
    BoxArgs args{};
    const auto* x = static_cast<const std::byte*>(operand(box.x)) + box.x_offset * spec.bytes;
    std::byte* y = memory_.at(spec.y) + box.y_offset * spec.bytes;
    args.x = x;
    args.y = y;
    args.count = 1;
    args.axes = box.axes;
    args.refused = refused(spec.y);
    std::copy_n(box.extents, kMaxAxes, args.extents);
    std::copy_n(box.x_strides, kMaxAxes, args.x_strides);
    std::copy_n(box.y_strides, kMaxAxes, args.y_strides);
    // Neighbours that stay neighbours move as one element.
    int64_t bytes = spec.bytes;
    const int last = box.axes - 1;
    const auto joins = [&] {
      if (last < 0 || bytes == 16 || args.extents[last] % 2 != 0 || args.x_strides[last] != 1 ||
          args.y_strides[last] != 1 || (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) % (2 * bytes))
        return false;
      for (int axis = 0; axis < last; ++axis) {
        if (args.x_strides[axis] % 2 != 0 || args.y_strides[axis] % 2 != 0) return false;
      }
      return true;
    };
    while (joins()) {
      bytes *= 2;
      args.extents[last] /= 2;
      for (int axis = 0; axis < last; ++axis) args.x_strides[axis] /= 2, args.y_strides[axis] /= 2;
    }
    for (int axis = 0; axis < box.axes; ++axis) args.count *= args.extents[axis];
    launch_box(bytes, args, stream_);
  }
}

void NetworkLauncher::launch(const GatherSpec& spec) const {
  int64_t bytes = spec.bytes, inner = spec.inner;
  const void* x = operand(spec.x);
  std::byte* y = memory_.at(spec.y);
  while (bytes < 16 && inner % 2 == 0 &&
         (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) % (2 * bytes) == 0) {
    bytes *= 2;
    inner /= 2;
  }
  launch_gather(bytes,
                {x, static_cast<const int*>(operand(spec.indices)), y, spec.outer, spec.extent, spec.count, inner,
                 refused(spec.y)},
                stream_);
}

void NetworkLauncher::launch(const ResampleSpec& spec) const {
  launch_resample(spec.elem,
                  {memory_.at(spec.x), static_cast<const int*>(memory_.weight(spec.indices_id)),
                   static_cast<const float*>(memory_.weight(spec.weights_id)), memory_.at(spec.y), spec.outer,
                   spec.extent, spec.count, spec.inner, spec.taps, refused(spec.y)},
                  stream_);
}

void NetworkLauncher::launch(const ResizerSpec& spec) const {
  ResizerArgs args{};
  args.image = reinterpret_cast<const uint8_t*>(memory_.at(spec.image));
  args.crops = spec.crops == kNoValue ? nullptr : reinterpret_cast<const int32_t*>(memory_.at(spec.crops));
  std::copy_n(spec.crop, kCropNumbers, args.crop);
  args.colours = static_cast<const float*>(memory_.weight(spec.colours_id));
  args.y = memory_.at(spec.y);
  args.batch = spec.batch;
  args.image_bytes = spec.image_bytes;
  args.form = spec.form;
  args.refused = refused(spec.y);
  launch_resizer(spec.elem, args, stream_);
}

void NetworkLauncher::launch(const MatMulSpec& spec) const {
  ProductArgs args{};
  args.a = operand(spec.a);
  args.b = operand(spec.b);
  args.y = memory_.at(spec.y);
  args.count = int(spec.a_offsets.size());
  args.m = int(spec.m);
  args.k = args.channels = int(spec.k);
  args.columns = args.pixels = int(spec.n);
  args.a_stride = spec.k;
  args.b_row = args.y_row = spec.n;
  args.y_next = spec.m * spec.n;
  args.a_offsets = reinterpret_cast<const int64_t*>(memory_.scratch(prepared_.at(&spec)));
  args.b_offsets = args.a_offsets + args.count;
  args.a_multiple = common_factor(spec.a_offsets);
  args.b_multiple = common_factor(spec.b_offsets);
  args.end.function = -1;
  args.refused = refused(spec.y);
  spec.elem == kF16 ? launch_product_half(args, stream_) : launch_product_float(args, stream_);
}

bool NetworkLauncher::is_laid_out(const ConvSpec& spec) const {
  return spec.elem == kF16 && kind_of(spec) == ConvKind::Product && needs_layout(spec.channels, spec.window.taps());
}

bool NetworkLauncher::is_copied_last(const ConvSpec& spec) const {
  return is_laid_out(spec) && spec.groups == 1 && !last_[spec.x] &&
         wants_channels_last(spec.channels, spec.window.taps());
}

ProductLayout NetworkLauncher::layout_of(const ConvSpec& spec) const {
  if (is_copied_last(spec)) return product_layout(whole_channels(spec), spec.window.taps(), true);
  return product_layout(spec.channels, spec.window.taps(), last_[spec.x]);
}

ConvArgs NetworkLauncher::conv_args(const ConvSpec& spec) const {
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
  args.end = {static_cast<const float*>(memory_.weight(spec.bias_id)), operand(spec.residual), spec.function,
              spec.alpha, spec.beta};
  args.refused = refused(spec.y);
  return args;
}

ProductArgs NetworkLauncher::product_args(const ConvSpec& spec) const {
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
  args.y_last = conv.y_last;
  args.window = conv.window;
  args.end = conv.end;
  args.refused = conv.refused;
  return args;
}

void NetworkLauncher::launch(const ConvSpec& spec) const {
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
void NetworkLauncher::launch_codes(const ConvSpec& spec) const {
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

// As a Linear of the unfolded pixels, a part of them at a time.
void NetworkLauncher::launch_quantized(const ConvSpec& spec) const {
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
      launch_linear_gemm(kF16, spec.format, linear, scratch, stream_);
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
    launch_linear_gemm(kF16, spec.format, linear, scratch, stream_);
    if (spec.function < 0) continue;
    launch_unary(UnaryOp(spec.function), kF16, {y, y, linear.rows * spec.outputs, spec.alpha, spec.beta, conv.refused},
                 stream_);
  }
}

}  // namespace tcim_lite::cuda
