// What the kernel benchmarks share.
#pragma once

#include <functional>
#include <vector>

#include "base/aligned_buffer.h"

namespace tcim_lite::bench {

// Shortest of the tries that fit into `seconds`, at least three: the machine is often shared.
double best_seconds(const std::function<void()>& run, double seconds = 0.4);

// Kernels that work on rows of activations, from the second cache: norms, quantisation, RoPE, what ends a Linear.
void bench_rows();

// Float Linears: one row against the read rate, many rows against the fp32 peak.
void bench_float_linears();

}  // namespace tcim_lite::bench
