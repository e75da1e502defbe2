// What the kernel benchmarks share.
#pragma once

#include <functional>
#include <vector>

#include "backends/cpu/dispatch.h"
#include "base/aligned_buffer.h"

namespace tcim_lite::bench {

// Shortest of the tries that fit into `seconds`, at least three: the machine is often shared.
double best_seconds(const std::function<void()>& run, double seconds = 0.4);

// The kernel that LinearStep takes for `tile` rows at a time of a quantised Linear, and what it needs beside codes.
struct LinearBench {
  LinearBench(const cpu::KernelTable& table, WeightFormat format, const cpu::LinearQuantArgs& rows, int64_t tile)
      : arranged(table.linear[int(format)].arranged),
        kernel(cpu::linear_kernel(table, format, tile)),
        form(arranged.row_bytes(rows.groups) * rows.rows) {
    if (arranged.arrange == nullptr || tile < arranged.from) return;
    arranged.arrange({rows.codes, rows.scales, form.data(), rows.rows, rows.groups});
    kernel = arranged.multiply;
  }
  // `args` are of rows from `row` on; scratch: a member's.
  void run(cpu::LinearQuantArgs args, int64_t row, const AlignedBuffer& scratch) const {
    args.arranged = form.data() + row * arranged.row_bytes(args.groups);
    args.scratch = scratch.data();
    kernel(args);
  }

  cpu::ArrangedKernels arranged;
  cpu::LinearQuantKernel kernel;
  AlignedBuffer form;
};

// Kernels that work on rows of activations, from the second cache: norms, quantisation, RoPE, what ends a Linear.
void bench_rows();

// Float Linears: one row against the read rate, many rows against the fp32 peak.
void bench_float_linears();

}  // namespace tcim_lite::bench
