#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {

// Each defined in kernels/<name>_neon.cpp.
void use_activation_neon(KernelTable& table);
void use_attention_neon(KernelTable& table);
void use_elementwise_neon(KernelTable& table);
void use_linear_float_neon(KernelTable& table);
void use_linear_w4_neon(KernelTable& table);
void use_linear_w8_neon(KernelTable& table);
void use_norm_neon(KernelTable& table);
void use_quantize_neon(KernelTable& table);

void use_neon(KernelTable& table) {
  use_activation_neon(table);
  use_attention_neon(table);
  use_elementwise_neon(table);
  use_linear_float_neon(table);
  use_linear_w4_neon(table);
  use_linear_w8_neon(table);
  use_norm_neon(table);
  use_quantize_neon(table);
}

}  // namespace tcim_lite::cpu
