// Conv with packed 8-bit weights: a panel becomes codes, pixel by pixel as a row of a quantised Linear
// (docs/numerics.md section 11), and is multiplied as it lies.
#include <algorithm>

#include "backends/cpu/ops/conv.h"
#include "backends/cpu/ops/windows.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kChannels =
    kPanelBlocks * kBlockOutputs;  // whose sums are held at a time; shares of tasks are multiples

int64_t groups_of(int64_t inputs) { return (inputs + kGroup - 1) / kGroup; }

// A prepared panel; every part is a multiple of 64 bytes.
struct Codes {
  Codes(std::byte* base, int64_t groups)
      : codes(reinterpret_cast<int32_t*>(base)),
        scales(reinterpret_cast<float*>(codes + groups * (kGroup / 4) * kPanel)),
        starts(reinterpret_cast<int32_t*>(scales + groups * kPanel)) {}

  static int64_t bytes(int64_t groups) { return groups * (kGroup + 8) * kPanel; }

  int32_t* codes;   // [groups * 16, kPanel]
  float* scales;    // [groups, kPanel]
  int32_t* starts;  // [groups, kPanel]
};

constexpr int64_t kMostTaps = 64;  // whose runs a panel finds

bool gathers_codes(const Window& window, const KernelTable& kernels) {
  return kernels.gathers_codes && window.taps() <= kMostTaps && window.w.stride <= 2 && window.h.upsample == 1 &&
         window.w.upsample == 1;
}

// A member's scratch: a prepared panel, then what the pixels read or the sums, whichever is needed.
std::byte* behind_panel(std::byte* base, int64_t groups) { return base + Codes::bytes(groups); }

}  // namespace

int64_t ConvStep::quantized_bytes() const { return Codes::bytes(groups_of(inputs())); }

int64_t ConvStep::quantized_member_bytes() const {
  return quantized_bytes() + std::max(inputs() * kPanel * 2, kChannels * kPanel * 4);
}

void ConvStep::prepare_quantized(const RunContext& context, const Panel& panel, int member, std::byte* prepared) const {
  const int64_t k = inputs();
  const Codes to(prepared, groups_of(k));
  if (is_identity(window)) {
    const auto* first = reinterpret_cast<const uint16_t*>(context.at(x));
    const int64_t pixels = window.in_pixels();
    return context.kernels.panel_codes({first + panel.image * channels * pixels + panel.pixel, k, panel.count, pixels,
                                        to.codes, to.scales, to.starts});
  }
  if (gathers_codes(window, context.kernels)) {
    WindowRun runs[kMostTaps * kPanel];
    const auto* first = reinterpret_cast<const uint16_t*>(context.at(x));
    const int64_t pixels = window.in_pixels(), of_tap = window_runs(window, panel.pixel, panel.count, runs);
    return context.kernels.window_codes({first + panel.image * channels * pixels, k, panel.count, pixels, runs,
                                         window.taps(), of_tap, window.w.stride, to.codes, to.scales, to.starts});
  }
  auto* unfolded = reinterpret_cast<uint16_t*>(behind_panel(context.member(member), groups_of(k)));
  unfold_inputs(context, panel, unfolded);
  context.kernels.panel_codes({unfolded, k, panel.count, kPanel, to.codes, to.scales, to.starts});
}

void ConvStep::multiply_quantized(const RunContext& context, const Panel& panel, const std::byte* prepared, int64_t row,
                                  int64_t rows, int member) const {
  const int64_t parts = groups_of(inputs()), stride = block_bytes(format, parts * kGroup);
  const Codes from(const_cast<std::byte*>(prepared), parts);
  auto* acc = reinterpret_cast<float*>(behind_panel(context.member(member), parts));
  // The last panel of some width fetches the rows behind these, which this member multiplies next.
  const bool fetches = row + rows < outputs && panel.pixel / kPanel == (window.out_pixels() - kPanel / 2) / kPanel;
  const int64_t later = rows / kBlockOutputs * stride;
  for (int64_t done = 0; done < rows; done += kChannels) {
    const int64_t some = std::min(kChannels, rows - done), channel = row + done;
    const auto* packed = reinterpret_cast<const uint8_t*>(weights) + channel / kBlockOutputs * stride;
    context.kernels.panel_quant({packed, stride, (some + kBlockOutputs - 1) / kBlockOutputs, parts, inputs(),
                                 from.codes, from.scales, from.starts, acc, panel.count,
                                 fetches ? packed + later : nullptr});
    store(context, panel, channel, some, acc);
  }
}

}  // namespace tcim_lite::cpu
