#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {

// Each defined in kernels/<name>_ref.cpp.
void use_activation_ref(KernelTable& table);
void use_attention_ref(KernelTable& table);
void use_elementwise_ref(KernelTable& table);
void use_linear_float_ref(KernelTable& table);
void use_linear_quant_ref(KernelTable& table);
void use_norm_ref(KernelTable& table);
void use_quantize_ref(KernelTable& table);

void use_ref(KernelTable& table) {
  use_activation_ref(table);
  use_attention_ref(table);
  use_elementwise_ref(table);
  use_linear_float_ref(table);
  use_linear_quant_ref(table);
  use_norm_ref(table);
  use_quantize_ref(table);
}

}  // namespace tcim_lite::cpu
