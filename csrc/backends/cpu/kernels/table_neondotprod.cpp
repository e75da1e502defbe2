#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {

// Each defined in kernels/<name>_neondotprod.cpp.
void use_linear_w4_neondotprod(KernelTable& table);
void use_linear_w8_neondotprod(KernelTable& table);

void use_neondotprod(KernelTable& table) {
  use_linear_w4_neondotprod(table);
  use_linear_w8_neondotprod(table);
}

}  // namespace tcim_lite::cpu
