#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {

// Defined in kernels/linear_quant_amx.cpp.
void use_linear_quant_amx(KernelTable& table);

void use_amx(KernelTable& table) { use_linear_quant_amx(table); }

}  // namespace tcim_lite::cpu
