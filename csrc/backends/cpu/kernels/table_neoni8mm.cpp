#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {

// Each defined in kernels/<name>_neoni8mm.cpp.
void use_linear_w4_neoni8mm(KernelTable& table);
void use_linear_w8_neoni8mm(KernelTable& table);

void use_neoni8mm(KernelTable& table) {
  use_linear_w4_neoni8mm(table);
  use_linear_w8_neoni8mm(table);
}

}  // namespace tcim_lite::cpu
