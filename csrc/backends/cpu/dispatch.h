// Chooses the kernel table once per process: the best the CPU and the operating system allow, or TCIM_LITE_ISA.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/cpu_info.h"
#include "backends/cpu/kernel_table.h"
#include "graph/weight_format.h"

namespace tcim_lite::cpu {

// Names of the instruction sets this machine can run, slowest first: "ref", then e.g. "avx2", "avxvnni".
std::vector<std::string> available_isas();

// Known are Intel's servers from Sapphire Rapids on (measured: Emerald Rapids) and Zen 5; any other CPU gets what suits
// Zen 3 and Zen 4.
Tuning tuning_of(const CpuInfo& cpu);

// Error(Unsupported) when the name is unknown or the machine lacks it; the message lists what it has. Without a tuning,
// this CPU's.
KernelTable make_table(std::string_view isa);
KernelTable make_table(std::string_view isa, const Tuning& tuning);

// TCIM_LITE_ISA, else the best available.
const KernelTable& kernels();

using LinearQuantKernel = void (*)(const LinearQuantArgs&);

// The table's kernel for so many rows of a Linear with quantised weights and activations.
LinearQuantKernel linear_kernel(const KernelTable& table, WeightFormat format, int64_t rows);

}  // namespace tcim_lite::cpu
