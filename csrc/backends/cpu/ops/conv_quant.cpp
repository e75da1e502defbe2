// Conv with packed 8-bit weights: the pixels of a panel are rows of a quantised Linear (docs/numerics.md section 11).
#include <algorithm>

#include "backends/cpu/dispatch.h"
#include "backends/cpu/ops/conv.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kChunkBlocks = 3;  // blocks of 16 channels at a time, as many as a share of a task has at least
constexpr int64_t kTerms = 64;       // terms turned at a time: their part of the panel fits the first cache
constexpr int64_t kChannels = kChunkBlocks * kBlockOutputs;

int64_t whole_groups(int64_t inputs) { return (inputs + kGroup - 1) / kGroup * kGroup; }

// A member's scratch; every part is a multiple of 64 bytes.
struct QuantScratch {
  QuantScratch(std::byte* base, int64_t inputs)
      : codes(reinterpret_cast<int8_t*>(base)),
        rows(reinterpret_cast<uint16_t*>(codes + kPanel * whole_groups(inputs))),
        panel(rows + kPanel * whole_groups(inputs)),
        scales(reinterpret_cast<float*>(panel + kPanel * inputs)),
        sums(reinterpret_cast<int32_t*>(scales + kPanel * (whole_groups(inputs) / kGroup))),
        acc(reinterpret_cast<float*>(sums + kPanel * (whole_groups(inputs) / kGroup))),
        turned(acc + kPanel * kChannels) {}

  static int64_t bytes(int64_t inputs) {
    return kPanel * (whole_groups(inputs) * 3 + inputs * 2 + whole_groups(inputs) / kGroup * 8 + kChannels * 8);
  }

  int8_t* codes;    // [kPanel, padded]
  uint16_t* rows;   // [kPanel, padded]
  uint16_t* panel;  // [inputs, kPanel]
  float* scales;    // [kPanel, groups]
  int32_t* sums;    // [kPanel, groups]
  float* acc;       // [kPanel, kChannels]
  float* turned;    // [kChannels, kPanel]
};

}  // namespace

int64_t ConvStep::quantized_bytes() const { return QuantScratch::bytes(inputs()); }

void ConvStep::run_quantized(const RunContext& context, const Task& task, int member) const {
  const int64_t k = inputs(), whole = whole_groups(k), count = std::min(kPanel, window.out_pixels() - task.pixel);
  const QuantScratch scratch(context.member(member), k);
  unfold_inputs(context, task, count, scratch.panel);
  for (int64_t first = 0; first < k; first += kTerms) {
    const int64_t last = std::min(k, first + kTerms);
    for (int64_t pixel = 0; pixel < count; ++pixel) {
      uint16_t* row = scratch.rows + pixel * whole;
      for (int64_t i = first; i < last; ++i) row[i] = scratch.panel[i * kPanel + pixel];
    }
  }
  for (int64_t pixel = 0; pixel < count; ++pixel) {
    std::fill(scratch.rows + pixel * whole + k, scratch.rows + (pixel + 1) * whole, uint16_t{0});
  }
  const int64_t parts = whole / kGroup;
  context.kernels.quantize[kF16]({scratch.rows, scratch.codes, scratch.scales, scratch.sums, count, parts, whole});

  const int64_t stride = block_bytes(format, whole);
  for (int64_t done = 0; done < task.rows; done += kChannels) {
    const int64_t rows = std::min(kChannels, task.rows - done), blocks = (rows + kBlockOutputs - 1) / kBlockOutputs;
    const int64_t channel = task.row + done;
    const auto* from = reinterpret_cast<const uint8_t*>(weights) + channel / kBlockOutputs * stride;
    linear_kernel(context.kernels, format, count)({from, stride, blocks, parts, scratch.codes, scratch.scales,
                                                   scratch.sums, count, scratch.acc, blocks * kBlockOutputs});
    for (int64_t pixel = 0; pixel < count; ++pixel) {
      const float* of_pixel = scratch.acc + pixel * blocks * kBlockOutputs;
      for (int64_t row = 0; row < rows; ++row) scratch.turned[row * kPanel + pixel] = of_pixel[row];
    }
    store(context, task, channel, rows, scratch.turned);
  }
}

}  // namespace tcim_lite::cpu
