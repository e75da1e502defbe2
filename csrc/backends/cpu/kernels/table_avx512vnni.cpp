#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {

// Each defined in kernels/<name>_avx512vnni.cpp.
void use_activation_avx512vnni(KernelTable& table);
void use_attention_avx512vnni(KernelTable& table);
void use_elementwise_avx512vnni(KernelTable& table);
void use_linear_float_avx512vnni(KernelTable& table);
void use_linear_w4_avx512vnni(KernelTable& table);
void use_linear_w8_avx512vnni(KernelTable& table);
void use_norm_avx512vnni(KernelTable& table);
void use_quantize_avx512vnni(KernelTable& table);

void use_avx512vnni(KernelTable& table) {
  use_activation_avx512vnni(table);
  use_attention_avx512vnni(table);
  use_elementwise_avx512vnni(table);
  use_linear_float_avx512vnni(table);
  use_linear_w4_avx512vnni(table);
  use_linear_w8_avx512vnni(table);
  use_norm_avx512vnni(table);
  use_quantize_avx512vnni(table);
}

}  // namespace tcim_lite::cpu
