#include "backends/cuda/network_steps.h"

#include <algorithm>
#include <numeric>
#include <variant>

#include "backends/cuda/handles.h"
#include "backends/cuda/network_layout.h"
#include "backends/cuda/window_args.h"
#include "base/error.h"
#include "graph/plan/step_name.h"

namespace tcim_lite::cuda {
namespace {

// What all numbers of a list are multiples of.
int64_t common_factor(const std::vector<int64_t>& list) {
  return std::accumulate(list.begin(), list.end(), int64_t{0}, [](int64_t a, int64_t b) { return std::gcd(a, b); });
}

}  // namespace

NetworkLauncher::NetworkLauncher(const Graph& graph, const Plan& plan, CudaMemory& memory, cudaStream_t stream)
    : plan_(plan),
      memory_(memory),
      stream_(stream),
      last_(values_with_channels_last(graph, plan)),
      convs_(plan, memory, last_, stream) {
  for (const StepSpec& step : plan.steps) {
    if (const auto* pool = std::get_if<PoolSpec>(&step)) check_window(pool->window, "Pool");
    if (const auto* product = std::get_if<MatMulSpec>(&step))
      offsets_[product] = memory.reserve((product->a_offsets.size() + product->b_offsets.size()) * sizeof(int64_t));
  }
}

void NetworkLauncher::prepare() {
  for (const StepSpec& step : plan_.steps) {
    if (const auto* resample = std::get_if<ResampleSpec>(&step)) check(*resample);
    if (const auto* product = std::get_if<MatMulSpec>(&step)) prepare(*product);
  }
  convs_.prepare();
  CUDA_CHECK(cudaStreamSynchronize(stream_));
}

void NetworkLauncher::prepare(const MatMulSpec& spec) const {
  std::vector<int64_t> offsets = spec.a_offsets;
  offsets.insert(offsets.end(), spec.b_offsets.begin(), spec.b_offsets.end());
  copy_to_gpu(memory_.scratch(offsets_.at(&spec)), offsets.data(), offsets.size() * sizeof(int64_t));
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

void NetworkLauncher::launch(const UnarySpec& spec) const {
  launch_unary(spec.op, spec.elem,
               {memory_.at(spec.x), memory_.at(spec.y), spec.count, spec.alpha, spec.beta, memory_.refusal(spec.y)},
               stream_);
}

void NetworkLauncher::launch(const BroadcastSpec& spec) const {
  BroadcastArgs args{};
  args.y = memory_.at(spec.y);
  args.count = 1;
  args.axes = spec.axes;
  args.refused = memory_.refusal(spec.y);
  for (int axis = 0; axis < spec.axes; ++axis) args.count *= args.extents[axis] = spec.extents[axis];
  for (int i = 0; i < 3; ++i) {
    args.operands[i] = memory_.operand(spec.operands[i]);
    std::copy_n(spec.strides[i], kMaxAxes, args.strides[i]);
  }
  if (spec.elem == kI32) return launch_integers(spec.op, args, stream_);
  launch_broadcast(spec.op, spec.elem, args, stream_);
}

void NetworkLauncher::launch(const ReduceSpec& spec) const {
  const VectorArgs args{memory_.at(spec.x), memory_.at(spec.y), spec.rows, spec.cols, memory_.refusal(spec.y)};
  if (spec.elem == kI32) return launch_reduced_integers(spec.op, args, stream_);
  launch_reduce(spec.op, spec.elem, args, stream_);
}

void NetworkLauncher::launch(const SoftmaxSpec& spec) const {
  launch_softmax(spec.elem, {memory_.at(spec.x), memory_.at(spec.y), spec.rows, spec.cols, memory_.refusal(spec.y)},
                 spec.log, stream_);
}

void NetworkLauncher::launch(const LayerNormSpec& spec) const {
  launch_layer_norm(spec.elem, {memory_.at(spec.x), memory_.at(spec.y), spec.rows, spec.cols, memory_.refusal(spec.y)},
                    static_cast<const float*>(memory_.weight(spec.weight_id)),
                    static_cast<const float*>(memory_.weight(spec.bias_id)), spec.epsilon, stream_);
}

void NetworkLauncher::launch(const TopKSpec& spec) const {
  const int* stops =
      memory_.refusal(spec.values) != nullptr ? memory_.refusal(spec.values) : memory_.refusal(spec.indices);
  launch_top_k(spec.elem, {memory_.at(spec.x), memory_.at(spec.values), spec.rows, spec.cols, stops},
               reinterpret_cast<int*>(memory_.at(spec.indices)), spec.chosen, spec.largest, stream_);
}

void NetworkLauncher::launch(const PoolSpec& spec) const {
  if (reduces_planes(spec)) {
    return launch_reduce(
        spec.mean ? kReduceMean : kReduceMax, spec.elem,
        {memory_.at(spec.x), memory_.at(spec.y), spec.planes, spec.window.in_pixels(), memory_.refusal(spec.y)},
        stream_);
  }
  const PoolArgs args{memory_.at(spec.x), memory_.at(spec.y), window_args(spec.window),
                      spec.planes,        spec.mean,          spec.counts_pads,
                      spec.extent_h,      spec.extent_w,      memory_.refusal(spec.y)};
  if (last_[spec.y]) return launch_pool_last(args, int(spec.channels), stream_);
  launch_pool(spec.elem, args, stream_);
}

void NetworkLauncher::launch(const MoveSpec& spec) const {
  if (spec.fills) launch_fill(spec.bytes, memory_.at(spec.y), spec.count, spec.fill, memory_.refusal(spec.y), stream_);
  for (const Box& box : spec.boxes) {
    BoxArgs args{};
    const auto* x = static_cast<const std::byte*>(memory_.operand(box.x)) + box.x_offset * spec.bytes;
    std::byte* y = memory_.at(spec.y) + box.y_offset * spec.bytes;
    args.x = x;
    args.y = y;
    args.count = 1;
    args.axes = box.axes;
    args.refused = memory_.refusal(spec.y);
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
  const void* x = memory_.operand(spec.x);
  std::byte* y = memory_.at(spec.y);
  while (bytes < 16 && inner % 2 == 0 &&
         (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) % (2 * bytes) == 0) {
    bytes *= 2;
    inner /= 2;
  }
  launch_gather(bytes,
                {x, static_cast<const int*>(memory_.operand(spec.indices)), y, spec.outer, spec.extent, spec.count,
                 inner, memory_.refusal(spec.y)},
                stream_);
}

void NetworkLauncher::launch(const ResampleSpec& spec) const {
  launch_resample(spec.elem,
                  {memory_.at(spec.x), static_cast<const int*>(memory_.weight(spec.indices_id)),
                   static_cast<const float*>(memory_.weight(spec.weights_id)), memory_.at(spec.y), spec.outer,
                   spec.extent, spec.count, spec.inner, spec.taps, memory_.refusal(spec.y)},
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
  args.parts = spec.parts;
  args.image_bytes = spec.image_bytes;
  args.form = spec.form;
  args.refused = memory_.refusal(spec.y);
  launch_resizer(spec.elem, args, stream_);
}

void NetworkLauncher::launch(const CastSpec& spec) const {
  launch_cast(spec.from, spec.to, {memory_.at(spec.x), memory_.at(spec.y), spec.count, memory_.refusal(spec.y)},
              stream_);
}

void NetworkLauncher::launch(const MatMulSpec& spec) const {
  ProductArgs args{};
  args.a = memory_.operand(spec.a);
  args.b = memory_.operand(spec.b);
  args.y = memory_.at(spec.y);
  args.count = int(spec.a_offsets.size());
  args.m = int(spec.m);
  args.k = args.channels = int(spec.k);
  args.columns = args.pixels = int(spec.n);
  args.a_stride = spec.k;
  args.b_row = spec.b_turned ? 1 : spec.b_stride;
  args.b_column = spec.b_turned ? spec.b_stride : 1;
  args.y_row = spec.n;
  args.y_next = spec.m * spec.n;
  args.a_offsets = reinterpret_cast<const int64_t*>(memory_.scratch(offsets_.at(&spec)));
  args.b_offsets = args.a_offsets + args.count;
  args.a_multiple = common_factor(spec.a_offsets);
  args.b_multiple = common_factor(spec.b_offsets);
  args.end.function = -1;
  args.refused = memory_.refusal(spec.y);
  // Columns whose terms lie side by side, 16 bytes at a time, are pixels with their channels last.
  args.b_last = spec.elem == kF16 && spec.b_turned && (spec.b_stride == spec.k || args.count > 1) &&
                spec.b_stride % 8 == 0 && spec.k % 8 == 0 && args.b_multiple % 8 == 0 &&
                reinterpret_cast<uintptr_t>(args.b) % 16 == 0;
  if (args.b_last) args.window = {{1, 1, 1, 1, 0, 1, 1}, {args.pixels, args.pixels, 1, 1, 0, 1, 1}};
  spec.elem == kF16 ? launch_product_half(args, stream_) : launch_product_float(args, stream_);
}

}  // namespace tcim_lite::cuda
