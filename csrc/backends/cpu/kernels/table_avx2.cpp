#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {

// Each defined in kernels/<name>_avx2.cpp.
void use_activation_avx2(KernelTable& table);
void use_attention_avx2(KernelTable& table);
void use_elementwise_avx2(KernelTable& table);
void use_linear_float_avx2(KernelTable& table);
void use_linear_w4_avx2(KernelTable& table);
void use_linear_w8_avx2(KernelTable& table);
void use_norm_avx2(KernelTable& table);
void use_quantize_avx2(KernelTable& table);

void use_avx2(KernelTable& table) {
  use_activation_avx2(table);
  use_attention_avx2(table);
  use_elementwise_avx2(table);
  use_linear_float_avx2(table);
  use_linear_w4_avx2(table);
  use_linear_w8_avx2(table);
  use_norm_avx2(table);
  use_quantize_avx2(table);
}

}  // namespace tcim_lite::cpu
