// Products, convolutions and pools of networks: every instruction set against ref bit for bit, over sizes around the
// vectors, with guard pages behind operands and results, and results poisoned before.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "backends/cpu/dispatch.h"
#include "base/half.h"
#include "check.h"
#include "guarded_buffer.h"
#include "same_everywhere.h"

using namespace tcim_lite;
using namespace tcim_lite::cpu;

namespace {

// A right side with gaps between its rows, as it lies or turned, by a left side of few rows and more.
template <typename T>
void check_few_rows(int64_t cols, int64_t k) {
  for (const bool turned : {false, true}) {
    const int64_t rows = uniform(1, 10), run = turned ? k : cols, lines = turned ? cols : k;
    const int64_t b_stride = run + uniform(0, 3), y_stride = cols + uniform(0, 3);
    const Numbers<float> a(rows * k);
    const Numbers<T> b((lines - 1) * b_stride + run);
    same_everywhere<T>(concat("few rows of ", rows, " x ", k, turned ? ", turned" : ""), (rows - 1) * y_stride + cols,
                       [&](const KernelTable& table, T* y) {
                         table.few_rows[kElem<T>]({a.data(), b.data(), y, rows, k, cols, b_stride, y_stride, turned});
                       });
  }
}

void check_gemm(int64_t rows, int64_t k) {
  const Numbers<float> a(rows * k), b(k * kPanel);
  same_everywhere<float>(concat("gemm of ", rows, " x ", k), rows * kPanel,
                         [&](const KernelTable& table, float* y) { table.gemm({a.data(), b.data(), y, rows, k, k}); });
}

// Of the bounds of the last, fp16 has none.
const ConvEnd kEnds[] = {{}, {kRelu}, {kClip, -0.5f, 6.0f}, {kClip, -0.1f, 5.9f}, {kClip, 0.0f, 6.0f}};
constexpr int kForms = 4 * 5;  // of an end: with a bias, a residual, both or neither

// Of sums that lie as the kernels of this member of the table read them, `sums` in all.
template <typename T, auto kernels>
void check_store(const std::string& what, int64_t sums, int64_t rows, int64_t cols) {
  const Numbers<float> acc(sums), bias(rows);
  const int64_t stride = cols + uniform(0, 5), count = (rows - 1) * stride + cols;
  const Numbers<T> residual(count);
  for (int form = 0; form < kForms; ++form) {
    same_everywhere<T>(concat(what, " of ", rows, " x ", cols), count, [&](const KernelTable& table, T* y) {
      (table.*kernels)[kElem<T>]({acc.data(), form & 1 ? bias.data() : nullptr, form & 2 ? residual.data() : nullptr, y,
                                  rows, cols, stride, kEnds[form / 4]});
    });
  }
}

// With a `side`, taps are a square of so many rows of the input.
template <typename T>
void check_depthwise(int64_t rows, int64_t cols, int64_t taps, int64_t side = 0) {
  const int64_t stride = cols + 16 + uniform(0, 3), reach = side > 0 ? (side - 1) * (stride + 1) : uniform(0, 40);
  const Numbers<float> x((rows - 1) * stride + cols + 16 + reach), weights(taps), bias(1);
  const Numbers<T> residual(rows * cols);
  GuardedBuffer<int64_t> offsets(taps);
  for (int64_t& offset : offsets) offset = uniform(0, int(reach));
  for (int64_t tap = 0; side > 0 && tap < taps; ++tap) offsets[tap] = tap / side * stride + tap % side;
  for (int form = 0; form < kForms; ++form) {
    same_everywhere<T>(
        concat("depthwise of ", taps, " taps, ", rows, " rows"), rows * cols, [&](const KernelTable& table, T* y) {
          table.depthwise[kElem<T>]({x.data(), offsets.data(), weights.data(), form & 1 ? bias.data() : nullptr,
                                     form & 2 ? residual.data() : nullptr, y, taps, rows, cols, stride,
                                     kEnds[form / 4]});
        });
  }
}

// Planes where they lie, between guard pages, as wholes and as rows in their middle.
template <typename T>
void check_depthwise_planes(int64_t in_rows, int64_t in_cols, int64_t stride) {
  const int64_t planes = uniform(1, 3), rows = (in_rows + stride - 1) / stride, cols = (in_cols + stride - 1) / stride;
  const Numbers<T> x(planes * in_rows * in_cols), weights(planes * 9), residual(planes * rows * cols);
  const Numbers<float> bias(planes);
  for (int form = 0; form < kForms; ++form) {
    const int64_t first = form % 2 ? uniform(0, int(rows) - 1) : 0;
    const int64_t some = form % 2 ? uniform(1, int(rows - first)) : rows;
    same_everywhere<T>(
        concat("depthwise of planes of ", in_rows, " x ", in_cols, ", stride ", stride), planes * rows * cols,
        [&](const KernelTable& table, T* y) {
          const int64_t at = first * cols;
          table.depthwise_planes[kElem<T>]({x.data(), weights.data(), form & 1 ? bias.data() : nullptr,
                                            form & 2 ? residual.data() + at : nullptr, y + at, planes, in_rows, in_cols,
                                            stride, first, some, cols, rows * cols, kEnds[form / 4]});
        });
  }
}

// Weights of a slab as the kernels turn them, terms from k = terms on poisoned.
template <typename T>
void check_slab(int64_t rows, int64_t terms) {
  const int64_t stride = terms + uniform(0, 5), vectors = (rows + 15) / 16;
  const Numbers<T> weights((rows - 1) * stride + terms);
  same_everywhere<float>(
      concat("slab of ", rows, " x ", terms), vectors * kSlabTerms * 16,
      [&](const KernelTable& table, float* y) { table.slab[kElem<T>]({weights.data(), rows, terms, stride, y}); });
}

// The same from pairs of terms, poisoned from the last pair on.
void check_half_slab(int64_t vectors, int64_t terms) {
  const int64_t pairs = (terms + 1) / 2, stride = (pairs + uniform(0, 3)) * 32;
  const Numbers<uint16_t> weights((vectors - 1) * stride + pairs * 32);
  same_everywhere<float>(
      concat("slab of ", vectors, " packed blocks x ", terms), vectors * kSlabTerms * 16,
      [&](const KernelTable& table, float* y) { table.half_slab({weights.data(), vectors, terms, stride, y}); });
}

// The lines that are fetched meanwhile change nothing.
void check_direct(int64_t vectors, int64_t pixels, int64_t terms) {
  const int64_t reach = uniform(0, 40), packed_stride = (terms + uniform(0, 300)) * 16;
  const Numbers<float> x(2 * pixels + reach), packed((vectors - 1) * packed_stride + terms * 16);
  GuardedBuffer<int64_t> offsets(terms), places(pixels);
  for (int64_t& offset : offsets) offset = uniform(0, int(reach));
  const int64_t row = uniform(1, 30);  // neighbours lie side by side, but for the ends of rows
  for (int64_t i = 0; i < pixels; ++i) places[i] = i + std::min(pixels, i / row);
  const auto* first = reinterpret_cast<const std::byte*>(packed.data());
  for (const bool again : {false, true}) {
    const auto run = [&](const KernelTable& table, float* acc) {
      DirectArgs args{x.data(), places.data(), offsets.data(), packed.data(), packed_stride,
                      acc,      terms,         vectors,        pixels,        true};
      table.direct(args);
      if (!again) return;
      args.begins = false;
      for (FetchArgs& fetch : args.fetches) fetch = {first, 3, 256, uniform(0, 9)};
      table.direct(args);
    };
    same_everywhere<float>(concat("direct of ", vectors, " vectors, ", pixels, " pixels, ", terms, " terms"),
                           pixels * vectors * 16, run);
  }
}

// Results in blocks of channels from pixel `pixel` on, the last block with lanes that are no outputs.
void check_direct_blocks(Elem elem, int64_t outputs, int64_t pixels, int64_t terms) {
  const int64_t vectors = (outputs + 15) / 16, pixel = uniform(0, 3), row = uniform(1, 30);
  const int64_t y_stride = (pixel + pixels + uniform(0, 2)) * 16, count = (vectors - 1) * y_stride + y_stride;
  const Numbers<float> x((2 * pixels + 1) * 16), packed(vectors * terms * 16), bias(outputs), residual(count);
  GuardedBuffer<int64_t> offsets(terms), places(pixels);
  for (int64_t& offset : offsets) offset = uniform(0, 31);
  for (int64_t i = 0; i < pixels; ++i) places[i] = (i + std::min(pixels - 1, i / row)) * 16;
  for (int form = 0; form < kForms; ++form) {
    const bool begins = uniform(0, 1) == 0;  // or goes on with sums of another call
    same_everywhere<float>(
        concat("direct into blocks of ", outputs, " outputs, ", pixels, " pixels, ", terms, " terms, ", name_of(elem)),
        count, [&](const KernelTable& table, float* y) {
          GuardedBuffer<float> acc(pixels * vectors * 16);
          DirectArgs args{x.data(),   places.data(), offsets.data(), packed.data(), terms * 16,
                          acc.data(), terms,         vectors,        pixels,        true};
          args.step = kBlock;
          if (!begins) table.direct(args);
          args.begins = begins;
          table.direct_blocks({args, form & 1 ? bias.data() : nullptr,
                               form & 2 ? residual.data() + pixel * 16 : nullptr, y + pixel * 16, outputs, y_stride,
                               elem, kEnds[form / 4]});
        });
  }
}

// Windows over a block with biases of `channels`, between guard pages, as a whole and as rows in its middle.
void check_block(Elem elem, int64_t channels, int64_t in_rows, int64_t in_cols, int64_t side, int64_t stride,
                 int64_t dilation, int64_t pad) {
  const int64_t reach = (side - 1) * dilation + 1 - 2 * pad;
  if (in_rows < reach || in_cols < reach) return;
  const int64_t rows = (in_rows - reach) / stride + 1, cols = (in_cols - reach) / stride + 1;
  const Numbers<float> x(in_rows * in_cols * kBlock), residual(rows * cols * kBlock), weights(side * side * kBlock);
  const Numbers<float> bias(channels);
  const std::string what = concat("block of ", channels, " channels, ", name_of(elem), ", ", in_rows, " x ", in_cols,
                                  ", side ", side, ", stride ", stride, ", dilation ", dilation);
  for (int form = 0; form < kForms; ++form) {
    const int64_t first = form % 2 ? uniform(0, int(rows) - 1) : 0;
    const int64_t some = form % 2 ? uniform(1, int(rows - first)) : rows, at = first * cols * kBlock;
    const BlockWindow window{
        {in_rows, side, stride, pad, dilation}, {in_cols, side, stride, pad, dilation}, first, some, cols};
    same_everywhere<float>("depthwise of a " + what, rows * cols * kBlock, [&](const KernelTable& table, float* y) {
      table.depthwise_block({window, x.data(), weights.data(), form & 1 ? bias.data() : nullptr,
                             form & 2 ? residual.data() + at : nullptr, y + at, channels, elem, kEnds[form / 4]});
    });
    if (form < 2) {
      same_everywhere<float>("largest of a " + what, rows * cols * kBlock,
                             [&](const KernelTable& table, float* y) { table.pool_block({window, x.data(), y + at}); });
    }
  }
}

// Codes, scales and sums of a panel, then its product with weights of any stored byte but a scale that is no number.
void check_panel(int64_t k, int64_t cols, int64_t blocks) {
  const int64_t groups = (k + kGroup - 1) / kGroup, stride = cols + uniform(0, 5);
  const Numbers<uint16_t> x((k - 1) * stride + cols);
  const int64_t numbers = groups * (kGroup / 4) * kPanel, part = groups * kPanel;
  const auto parts_of = [&](int32_t* y) {
    return PanelCodesArgs{x.data(), k, cols, stride, y, reinterpret_cast<float*>(y + numbers), y + numbers + part};
  };
  same_everywhere<int32_t>(concat("codes of ", k, " x ", cols), numbers + 2 * part,
                           [&](const KernelTable& table, int32_t* y) { table.panel_codes(parts_of(y)); });

  GuardedBuffer<int32_t> prepared(numbers + 2 * part);
  const PanelCodesArgs from = parts_of(prepared.data());
  tables()[0].panel_codes(from);
  const int64_t block = block_bytes(WeightFormat::LinearW8, groups * kGroup);
  GuardedBuffer<uint8_t> weights(blocks * block, 64);
  for (uint8_t& byte : weights) byte = uniform(0, 3) ? uint8_t(uniform(0, 255)) : uint8_t(uniform(0, 1) * 255);
  for (int64_t i = 0; i < blocks; ++i) {
    int8_t* exponents = reinterpret_cast<int8_t*>(weights.data() + i * block) + groups * kGroup * kBlockOutputs;
    const int least = uniform(0, 1) ? -126 : -96;  // or such that no product with the scale of a column is subnormal
    for (int64_t n = 0; n < groups * kBlockOutputs; ++n) exponents[n] = int8_t(uniform(least, 60));
  }
  same_everywhere<float>(
      concat("panel of ", k, " x ", cols), blocks * kBlockOutputs * kPanel, [&](const KernelTable& table, float* y) {
        const uint8_t* later = uniform(0, 1) ? weights.data() : nullptr;
        table.panel_quant(
            {weights.data(), block, blocks, groups, k, from.codes, from.scales, from.starts, y, cols, later});
        for (int64_t n = 0; n < blocks * kBlockOutputs; ++n)
          std::fill(y + n * kPanel + cols, y + (n + 1) * kPanel, 0.0f);
      });
}

template <typename T>
void check_all(int64_t size) {
  for (const int64_t k : {1, 15, 16, 17, 63, 64, 65, 150}) check_few_rows<T>(size, k);
  if (size <= kPanel) {
    const int64_t rows = uniform(1, 5);
    check_store<T, &KernelTable::gemm_store>("gemm store", rows * kPanel, rows, size);
  }
  for (const int64_t taps : {1, 9, 25}) check_depthwise<T>(uniform(1, 20), size, taps);
  for (const int64_t rows : {1, 2, 5, 9}) {
    for (const int64_t side : {3, 5, 7}) check_depthwise<T>(rows, size, side * side, side);
  }
  for (const int64_t rows : {1, 2, 7}) {
    for (const int64_t stride : {1, 2}) check_depthwise_planes<T>(rows, size, stride);
  }
}

}  // namespace

int main() {
  for (const int64_t size : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 1000}) {
    check_all<uint16_t>(size);
    check_all<float>(size);
  }
  for (const int64_t rows : {1, 2, 5, 6, 7, 11, 12, 13, 24, 25, 48}) {
    for (const int64_t k : {1, 2, 27, 147, 576}) check_gemm(rows, k);
  }
  for (const int64_t rows : {1, 15, 16, 17, 31, 48, 63, 64}) {
    for (const int64_t terms : {1, 15, 16, 17, 100, 256}) {
      check_slab<uint16_t>(rows, terms);
      check_slab<float>(rows, terms);
    }
    for (const int64_t cols : {1, 7, 15, 16, 17, 49, 100}) {
      check_store<uint16_t, &KernelTable::turned_store>("turned store", cols * ((rows + 15) / 16 * 16), rows, cols);
      check_store<float, &KernelTable::turned_store>("turned store", cols * ((rows + 15) / 16 * 16), rows, cols);
    }
  }
  for (const int64_t vectors : {1, 2, 3, 4}) {
    for (const int64_t terms : {1, 2, 15, 16, 101, 256}) check_half_slab(vectors, terms);
    for (int64_t pixels = 1; pixels <= 30; ++pixels) check_direct(vectors, pixels, uniform(1, 256));
    check_direct(vectors, 112, 17);
  }
  for (const int64_t outputs : {1, 16, 24, 40, 64}) {
    for (const int64_t pixels : {1, 5, 6, 7, 13, 29, 60}) {
      for (const Elem elem : {kF16, kF32}) check_direct_blocks(elem, outputs, pixels, uniform(1, 60));
    }
  }
  for (const int64_t channels : {1, 7, 8, 16}) {
    for (const int64_t cols : {1, 2, 7, 14, 20}) {
      for (const int64_t side : {1, 3, 5}) {
        const int64_t stride = uniform(1, 3), dilation = uniform(1, 2), pad = uniform(0, int((side - 1) * dilation));
        for (const Elem elem : {kF16, kF32})
          check_block(elem, channels, uniform(1, 7), cols, side, stride, dilation, pad);
      }
    }
  }
  for (int64_t cols = 1; cols <= 40; cols += cols < 12 ? 1 : 7) {
    for (const int64_t stride : {1, 2}) {
      for (const Elem elem : {kF16, kF32}) check_block(elem, 16, uniform(1, 7), cols, 3, stride, 1, 1);
    }
  }
  for (const int64_t k : {64, 65, 67, 127, 147, 576}) {
    for (const int64_t cols : {1, 4, 15, 16, 17, 31, 32}) check_panel(k, cols, uniform(1, 3));
  }
  return check_result();
}
