#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {

// Defined in kernels/linear_few_amx.cpp, kernels/linear_quant_amx.cpp, kernels/linear_w4_avx512vnni.cpp and
// kernels/linear_w8_avx512vnni.cpp.
void use_linear_few_amx(KernelTable& table);
void use_linear_quant_amx(KernelTable& table);
void use_linear_w4_intel_avx512vnni(KernelTable& table);
void use_linear_w8_intel_avx512vnni(KernelTable& table);

// Only Intel's CPUs have AMX, and their prefetchers need this help.
void use_amx(KernelTable& table) {
  use_linear_few_amx(table);
  use_linear_quant_amx(table);
  use_linear_w4_intel_avx512vnni(table);
  use_linear_w8_intel_avx512vnni(table);
}

}  // namespace tcim_lite::cpu
