#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {

// Each defined in kernels/<name>.cpp, those for Intel beside those for all CPUs.
void use_linear_quant_amx(KernelTable& table);
void use_linear_w4_few_amx(KernelTable& table);
void use_linear_w4_intel_avx512vnni(KernelTable& table);
void use_linear_w8_few_amx(KernelTable& table);
void use_linear_w8_intel_avx512vnni(KernelTable& table);

// Only Intel's CPUs have AMX, and their prefetchers need this help.
void use_amx(KernelTable& table) {
  use_linear_quant_amx(table);
  use_linear_w4_few_amx(table);
  use_linear_w4_intel_avx512vnni(table);
  use_linear_w8_few_amx(table);
  use_linear_w8_intel_avx512vnni(table);
}

}  // namespace tcim_lite::cpu
