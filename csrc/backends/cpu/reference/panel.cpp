#include <bit>
#include <cmath>

#include "backends/cpu/reference/element.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kSteps = kGroup / 4;

// The columns of whole vectors beyond `cols` are those of zeros.
void panel_codes(const PanelCodesArgs& args) {
  using Row = RefRow<kF16>;
  const int64_t columns = (args.cols + 15) / 16 * 16;
  for (int64_t first = 0; first < args.k; first += kGroup) {
    const int64_t group = first / kGroup;
    for (int64_t j = 0; j < columns; ++j) {
      const auto value = [&](int64_t row) {
        return row < args.k && j < args.cols ? Row::load(args.x, row * args.x_stride + j) : 0.0f;
      };
      float amax = 0;
      for (int64_t i = 0; i < kGroup; ++i) amax = std::fmax(amax, std::fabs(value(first + i)));
      int exponent = amax > 0 ? std::ilogb(amax) - 6 : -30;
      exponent = exponent < -30 ? -30 : exponent > 9 ? 9 : exponent;
      int32_t sum = 0;
      for (int64_t step = 0; step < kSteps; ++step) {
        uint32_t four = 0;
        for (int64_t i = 0; i < 4; ++i) {
          const float scaled = std::ldexp(value(first + 4 * step + i), -exponent);
          const float limited = scaled < -127.0f ? -127.0f : scaled < 127.0f ? scaled : 127.0f;
          const auto code = int32_t(std::nearbyint(limited));
          sum += code;
          four |= uint32_t(uint8_t(int8_t(code))) << (8 * i);
        }
        args.codes[(group * kSteps + step) * kPanel + j] = std::bit_cast<int32_t>(four);
      }
      args.scales[group * kPanel + j] = std::ldexp(1.0f, exponent);
      args.starts[group * kPanel + j] = -128 * sum;
    }
  }
}

void window_codes(const WindowCodesArgs& args) {
  for (int64_t first = 0; first < args.k; first += kGroup) {
    const int64_t group = first / kGroup, rows = args.k - first < kGroup ? args.k - first : kGroup;
    uint16_t gathered[kGroup * kPanel] = {};
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t k = first + row;
      const uint16_t* plane = args.x + k / args.taps * args.x_stride;
      const WindowRun* runs = args.runs + k % args.taps * args.runs_of_tap;
      for (int64_t r = 0; r < args.runs_of_tap; ++r) {
        for (int64_t j = 0; j < kPanel; ++j) {
          if (runs[r].columns >> j & 1) gathered[row * kPanel + j] = plane[runs[r].at + j * args.step];
        }
      }
    }
    panel_codes({gathered, rows, args.cols, kPanel, args.codes + group * kSteps * kPanel, args.scales + group * kPanel,
                 args.starts + group * kPanel});
  }
}

void panel_quant(const PanelQuantArgs& args) {
  constexpr WeightLayout kLayout = layout_of(WeightFormat::LinearW8);
  for (int64_t output = 0; output < args.blocks * kBlockOutputs; ++output) {
    const uint8_t* block = args.weights + output / kBlockOutputs * args.block_stride;
    const int64_t n = output % kBlockOutputs;
    for (int64_t j = 0; j < args.cols; ++j) {
      float acc = 0;
      for (int64_t group = 0; group < args.groups; ++group) {
        const uint8_t* weights = block + codes_offset(kLayout, group);
        const auto exponent = int8_t(block[scales_offset(kLayout, args.groups * kGroup, group) + n]);
        int32_t dot = 0;
        for (int64_t k = 0; k < kGroup; ++k) {
          const int32_t four = args.codes[(group * kSteps + k / 4) * kPanel + j];
          dot += code_at(kLayout, weights, n, k) * int8_t(uint8_t(uint32_t(four) >> (8 * (k % 4))));
        }
        const float scale = std::bit_cast<float>(uint32_t(exponent + 127) << 23) * args.scales[group * kPanel + j];
        acc = std::fmaf(float(dot), scale, acc);
      }
      args.acc[output * kPanel + j] = acc;
    }
  }
}

}  // namespace

void use_panel_ref(KernelTable& table) {
  table.panel_codes = panel_codes;
  table.window_codes = window_codes;
  table.panel_quant = panel_quant;
}

}  // namespace tcim_lite::cpu
