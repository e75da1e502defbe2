#include "backends/cpu/ops/conv.h"

#include <algorithm>

#include "backends/cpu/dispatch.h"
#include "backends/cpu/ops/blocks.h"
#include "backends/cpu/ops/panel_product.h"
#include "backends/cpu/ops/units.h"
#include "backends/cpu/ops/windows.h"
#include "base/half.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kUnitRows = 12;  // of the product kernels, or a multiple

constexpr int64_t kPanelsOfMember = 8;    // fewer are prepared first, for several tasks each
constexpr int64_t kShareBytes = 1 << 18;  // of the weights of a task that goes through all panels: they stay in the
                                          // second cache meanwhile
constexpr int64_t kWholeBytes = 5 << 17;  // of all weights, which each member reads a few times from its second cache
constexpr int64_t kFullPanels = 3;        // of a member, at least

}  // namespace

int64_t ConvStep::panels() const { return batch * groups * parts_of(window.out_pixels(), kPanel); }

ConvStep::Panel ConvStep::panel(int64_t index) const {
  const int64_t of_group = parts_of(window.out_pixels(), kPanel), image = index / (groups * of_group);
  index -= image * groups * of_group;
  // Groups one after another, but the first pixels of all of them first where there are enough for every member.
  const int members = ThreadPool::instance().size();
  const int64_t some = has_rows_for(window, members) ? parts_of(of_group, members) : of_group;
  const int64_t first = index / (groups * some) * some, here = std::min(some, of_group - first);
  index -= first * groups;
  const int64_t pixel = (first + index % here) * kPanel;
  return {image, index / here, pixel, std::min(kPanel, window.out_pixels() - pixel)};
}

int64_t ConvStep::share(int64_t members) const {
  const int64_t row_bytes = inputs() * (quantized() ? 1 : elem_bytes(elem)), tasks = kTasksOfMember * members;
  if (panels() >= kPanelsOfMember * members) return outputs;
  // Fewer full ones, if every member gets as many: no codes of one are then read by another. Layers of more outputs are
  // quicker by shares, which fill whole lines of y. What is left over must cost little, as it does on AVX-512 VNNI.
  const int64_t full = batch * (window.out_pixels() / kPanel);
  if (members > 1 && quantized() && kernels().gathers_codes && outputs <= inputs() &&
      outputs * row_bytes <= kWholeBytes && full % members == 0 && full >= kFullPanels * members)
    return outputs;
  const int64_t unit = quantized() ? kBlockOutputs : kUnitRows;
  const int64_t rows = std::min((outputs + tasks - 1) / tasks, kShareBytes / row_bytes);
  return std::max<int64_t>(1, (rows + unit - 1) / unit) * unit;
}

int64_t ConvStep::prepared_bytes() const { return quantized() ? quantized_bytes() : inputs() * kPanel * 4; }

int64_t ConvStep::shared_bytes() const {
  if (is_joined_) return 0;
  if (wide_) return wide_->direct_shared_bytes();
  if (is_depthwise_in_blocks()) return blocks_bytes();
  if (!direct_offsets_.empty()) return blocks_bytes() + direct_shared_bytes();
  const bool prepares_first = !is_depthwise() && share(ThreadPool::instance().size()) < outputs;
  return prepares_first ? panels() * prepared_bytes() : 0;
}

int64_t ConvStep::member_bytes() const {
  if (is_joined_) return 0;
  if (wide_) return joined_member_bytes();
  if (is_depthwise_in_blocks()) return window.taps() * kBlock * 4;
  if (is_depthwise()) return depthwise_bytes();
  if (!direct_offsets_.empty()) return direct_member_bytes();
  return quantized() ? quantized_member_bytes()
                     : PanelScratch::bytes(inputs(), elem == kF16 || format != WeightFormat::Dense);
}

void ConvStep::run(const RunContext& context) const {
  if (is_joined_) return;
  if (wide_) return run_joined(context);
  if (is_depthwise_in_blocks()) return run_depthwise_blocks(context);
  if (is_depthwise()) return run_depthwise(context);
  if (!direct_offsets_.empty()) return run_direct(context);
  const int64_t count = panels(), share = this->share(context.pool.size()), shares = (outputs + share - 1) / share;
  if (shares == 1) {
    // Grouped convolutions have tasks of some hundred products: a member takes many at a time.
    const int64_t grain = std::max<int64_t>(1, kGrainTerms / (outputs * inputs() * kPanel));
    // Neighbouring panels share lines of memory, of x, y and the residual: each member takes a run of them.
    return context.pool.parallel_runs(parts_of(count, grain), [&](int64_t index, int member) {
      for (int64_t i = index * grain, end = std::min(i + grain, count); i < end; ++i) {
        const Panel panel = this->panel(i);
        std::byte* prepared = context.member(member);
        prepare(context, panel, member, prepared);
        multiply(context, panel, prepared, 0, outputs, member);
      }
    });
  }
  // A member takes a share through all panels, so that it reads the weights once.
  const auto at = [&](int64_t index) { return context.shared_scratch + index * prepared_bytes(); };
  context.pool.parallel_runs(count,
                             [&](int64_t index, int member) { prepare(context, panel(index), member, at(index)); });
  context.pool.parallel_runs(shares, [&](int64_t index, int member) {
    const int64_t row = index * share;
    for (int64_t i = 0; i < count; ++i) multiply(context, panel(i), at(i), row, std::min(share, outputs - row), member);
  });
}

template <typename T>
void ConvStep::unfold_inputs(const RunContext& context, const Panel& panel, T* unfolded) const {
  const int64_t plane = (panel.image * groups + panel.group) * channels;
  const auto* planes = reinterpret_cast<const T*>(context.at(x)) + plane * window.in_pixels();
  unfold(window, planes, channels, panel.pixel, panel.count, T{0}, unfolded);
}
template void ConvStep::unfold_inputs(const RunContext&, const Panel&, uint16_t*) const;

void ConvStep::store(const RunContext& context, const Panel& panel, int64_t channel, int64_t rows,
                     const float* acc) const {
  const int64_t size = elem_bytes(elem), pixels = window.out_pixels();
  const int64_t at = ((panel.image * groups * outputs + channel) * pixels + panel.pixel) * size;
  std::byte* out = context.at(y) + at;
  context.kernels.gemm_store[elem]({acc, bias == nullptr ? nullptr : bias + channel,
                                    residual.given() ? added.at(context) + at : nullptr, out, rows, panel.count, pixels,
                                    stored_end()});
  end_planes(context, out, rows, panel.count);
}

void ConvStep::end_planes(const RunContext& context, std::byte* planes, int64_t count, int64_t pixels) const {
  if (can_end(function)) return;
  const int64_t stride = window.out_pixels();
  UnaryArgs args{planes, planes, pixels, alpha, beta, count, stride, stride};
  // As one row: behind a row's end a masked store would keep the next row's first load waiting.
  if (pixels == stride) args.count *= args.rows, args.rows = 1;
  context.kernels.unary[function][elem](args);
}

void ConvStep::prepare(const RunContext& context, const Panel& panel, int member, std::byte* prepared) const {
  if (quantized()) return prepare_quantized(context, panel, member, prepared);
  auto* floats = reinterpret_cast<float*>(prepared);
  if (elem == kF32) return unfold_inputs(context, panel, floats);
  const int64_t k = inputs();
  uint16_t* halves = PanelScratch(context.member(member), k).halves;
  unfold_inputs(context, panel, halves);
  context.kernels.widen[kF16]({halves, floats, k, panel.count, kPanel, kPanel, 1.0f});
}

void ConvStep::multiply(const RunContext& context, const Panel& panel, const std::byte* prepared, int64_t row,
                        int64_t rows, int member) const {
  if (quantized()) return multiply_quantized(context, panel, prepared, row, rows, member);
  const int64_t k = inputs();
  const PanelScratch scratch(context.member(member), k);
  for (int64_t done = 0; done < rows; done += kPanelRows) {
    const int64_t some = std::min(kPanelRows, rows - done), channel = panel.group * outputs + row + done;
    const auto* inputs = reinterpret_cast<const float*>(prepared);
    if (format == WeightFormat::Dense) {
      multiply_panel(context, elem, weights, channel, some, k, inputs, scratch);
    } else {
      unpack_rows(channel, some, scratch.factors);
      context.kernels.gemm({scratch.factors, inputs, scratch.acc, some, k, k});
    }
    store(context, panel, channel, some, scratch.acc);
  }
}

void ConvStep::unpack_rows(int64_t row, int64_t rows, float* to) const {
  const WeightLayout layout = layout_of(format);
  const int64_t k = inputs(), stride = block_bytes(layout, k);
  for (int64_t end = row + rows; row < end; ++row) {
    const std::byte* block = weights + row / kBlockOutputs * stride;
    for (int64_t i = 0; i < k; ++i) {
      const int64_t at = float_offset(layout, row % kBlockOutputs, i);
      *to++ = elem == kF16 ? half_to_float(reinterpret_cast<const uint16_t*>(block)[at])
                           : reinterpret_cast<const float*>(block)[at];
    }
  }
}

}  // namespace tcim_lite::cpu
