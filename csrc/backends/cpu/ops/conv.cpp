#include "backends/cpu/ops/conv.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "backends/cpu/ops/windows.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kConvRows = 48;  // rows of the result whose factors are widened, and whose sums are held, at a time

constexpr int64_t kGrainTerms = 1 << 16;  // multiplications that are worth handing to a member: some microseconds

// A member's scratch for products of `k` terms.
struct Scratch {
  Scratch(std::byte* base, int64_t k)
      : panel(reinterpret_cast<float*>(base)),
        acc(panel + k * kPanel),
        factors(acc + kConvRows * kPanel),
        halves(reinterpret_cast<uint16_t*>(factors + kConvRows * k)) {}

  static int64_t bytes(int64_t k, bool half) {
    return (k * kPanel + kConvRows * kPanel) * 4 + (half ? kConvRows * k * 4 + k * kPanel * 2 : 0);
  }

  float* panel;      // [k, kPanel]
  float* acc;        // [kConvRows, kPanel]
  float* factors;    // [kConvRows, k], of fp16
  uint16_t* halves;  // [k, kPanel], of fp16
};

// Rows [row, row + rows) of `factors` times the panel, into acc.
void multiply(const RunContext& context, Elem elem, const std::byte* factors, int64_t row, int64_t rows, int64_t k,
              const Scratch& scratch) {
  const std::byte* source = factors + row * k * elem_bytes(elem);
  const auto* a = reinterpret_cast<const float*>(source);
  if (elem == kF16) {
    context.kernels.widen[kF16]({source, scratch.factors, 1, rows * k, rows * k, rows * k, 1.0f});
    a = scratch.factors;
  }
  context.kernels.gemm({a, scratch.panel, scratch.acc, rows, k, k});
}

// What a member does of `rows` rows when there are `columns` other tasks: all, or a share that keeps the pool busy.
int64_t rows_of_task(const RunContext& context, int64_t rows, int64_t columns) {
  const int64_t wanted = 4 * context.pool.size();
  const int64_t parts = std::clamp<int64_t>((wanted + columns - 1) / columns, 1, (rows + kConvRows - 1) / kConvRows);
  const int64_t share = (rows + parts - 1) / parts;
  return (share + kConvRows - 1) / kConvRows * kConvRows;
}

}  // namespace

int64_t ConvStep::member_bytes() const {
  return quantized() ? quantized_bytes() : Scratch::bytes(inputs(), elem == kF16);
}

void ConvStep::run(const RunContext& context) const {
  const int64_t panels = (window.out_pixels() + kPanel - 1) / kPanel, columns = batch * groups * panels;
  const int64_t share = rows_of_task(context, outputs, columns), shares = (outputs + share - 1) / share;
  // Depthwise convolutions have tasks of some hundred products: a member takes many at a time.
  const int64_t grain = std::max<int64_t>(1, kGrainTerms / (share * inputs() * kPanel));
  const auto run = [&](int64_t index, int member) {
    const int64_t column = index / shares, row = index % shares * share, plane = column / panels;
    const Task task{plane / groups, plane % groups, column % panels * kPanel, row, std::min(share, outputs - row)};
    quantized() ? run_quantized(context, task, member) : run_task(context, task, member);
  };
  context.pool.parallel_for(columns * shares, run, grain);
}

template <typename T>
void ConvStep::unfold_inputs(const RunContext& context, const Task& task, int64_t count, T* panel) const {
  const int64_t plane = (task.image * groups + task.group) * channels;
  for (int64_t c = 0; c < channels; ++c) {
    const auto* source = reinterpret_cast<const T*>(context.at(x)) + (plane + c) * window.in_pixels();
    unfold(window, source, task.pixel, count, T{0}, panel + c * window.taps() * kPanel);
  }
}
template void ConvStep::unfold_inputs(const RunContext&, const Task&, int64_t, uint16_t*) const;

void ConvStep::store(const RunContext& context, const Task& task, int64_t channel, int64_t rows,
                     const float* acc) const {
  const int64_t size = elem_bytes(elem), pixels = window.out_pixels(), count = std::min(kPanel, pixels - task.pixel);
  const int64_t at = ((task.image * groups * outputs + channel) * pixels + task.pixel) * size;
  std::byte* out = context.at(y) + at;
  context.kernels.gemm_store[elem]({acc, bias == nullptr ? nullptr : bias + channel,
                                    residual.given() ? added.at(context) + at : nullptr, out, rows, count, pixels});
  if (function < 0) return;
  for (int64_t row = 0; row < rows; ++row) {
    std::byte* of_row = out + row * pixels * size;
    context.kernels.unary[function][elem]({of_row, of_row, count, alpha, beta});
  }
}

void ConvStep::run_task(const RunContext& context, const Task& task, int member) const {
  const int64_t k = inputs(), count = std::min(kPanel, window.out_pixels() - task.pixel);
  const Scratch scratch(context.member(member), k);
  if (elem == kF16) {
    unfold_inputs(context, task, count, scratch.halves);
    context.kernels.widen[kF16]({scratch.halves, scratch.panel, k, count, kPanel, kPanel, 1.0f});
  } else {
    unfold_inputs(context, task, count, scratch.panel);
  }
  for (int64_t done = 0; done < task.rows; done += kConvRows) {
    const int64_t rows = std::min(kConvRows, task.rows - done);
    const int64_t channel = task.group * outputs + task.row + done;
    multiply(context, elem, weights, channel, rows, k, scratch);
    store(context, task, channel, rows, scratch.acc);
  }
}

int64_t MatMulStep::member_bytes() const { return Scratch::bytes(k, elem == kF16); }

void MatMulStep::run(const RunContext& context) const {
  const int64_t size = elem_bytes(elem), panels = (n + kPanel - 1) / kPanel;
  const int64_t columns = int64_t(a_offsets.size()) * panels;
  const int64_t share = rows_of_task(context, m, columns), shares = (m + share - 1) / share;
  context.pool.parallel_for(columns * shares, [&](int64_t index, int member) {
    const int64_t product = index / shares / panels, column = index / shares % panels * kPanel;
    const int64_t count = std::min(kPanel, n - column), first = index % shares * share;
    const Scratch scratch(context.member(member), k);
    const std::byte* matrix = right.at(context) + (b_offsets[size_t(product)] + column) * size;
    context.kernels.widen[elem]({matrix, scratch.panel, k, count, n, kPanel, 1.0f});
    const std::byte* factors = left.at(context) + a_offsets[size_t(product)] * size;
    for (int64_t row = first; row < std::min(first + share, m); row += kConvRows) {
      const int64_t rows = std::min({kConvRows, first + share - row, m - row});
      multiply(context, elem, factors, row, rows, k, scratch);
      std::byte* out = context.at(y) + ((product * m + row) * n + column) * size;
      context.kernels.gemm_store[elem]({scratch.acc, nullptr, nullptr, out, rows, count, n});
    }
  });
}

int64_t PoolStep::member_bytes() const { return (window.taps() + 1) * kPanel * 4 + window.taps() * kPanel * 2; }

void PoolStep::run(const RunContext& context) const {
  constexpr uint16_t kHalfLowest = 0xfc00;  // -infinity
  const int64_t size = elem_bytes(elem), taps = window.taps(), pixels = window.out_pixels();
  const int64_t panels = (pixels + kPanel - 1) / kPanel;
  const float outside = mean ? 0.0f : -std::numeric_limits<float>::infinity();
  const int64_t chunk = std::max<int64_t>(1, 512 / (taps * panels));
  context.pool.parallel_for((planes + chunk - 1) / chunk, [&](int64_t index, int member) {
    auto* panel = reinterpret_cast<float*>(context.member(member));
    float* counts = panel + taps * kPanel;
    auto* halves = reinterpret_cast<uint16_t*>(counts + kPanel);
    for (int64_t pixel = 0; pixel < pixels; pixel += kPanel) {
      const int64_t count = std::min(kPanel, pixels - pixel);
      if (mean) count_taps(window, counts_pads ? extent_h : 0, counts_pads ? extent_w : 0, pixel, count, counts);
      for (int64_t plane = index * chunk; plane < std::min(index * chunk + chunk, planes); ++plane) {
        const std::byte* source = context.at(x) + plane * window.in_pixels() * size;
        if (elem == kF16) {
          unfold(window, reinterpret_cast<const uint16_t*>(source), pixel, count, mean ? uint16_t{0} : kHalfLowest,
                 halves);
          context.kernels.widen[kF16]({halves, panel, taps, count, kPanel, kPanel, 1.0f});
        } else {
          unfold(window, reinterpret_cast<const float*>(source), pixel, count, outside, panel);
        }
        context.kernels.pool[elem](
            {panel, mean ? counts : nullptr, context.at(y) + (plane * pixels + pixel) * size, taps, count});
      }
    }
  });
}

}  // namespace tcim_lite::cpu
