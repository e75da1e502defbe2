#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {

// Each defined in kernels/<name>_avxvnni.cpp.
void use_linear_w4_avxvnni(KernelTable& table);
void use_linear_w8_avxvnni(KernelTable& table);

void use_avxvnni(KernelTable& table) {
  use_linear_w4_avxvnni(table);
  use_linear_w8_avxvnni(table);
}

}  // namespace tcim_lite::cpu
