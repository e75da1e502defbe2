// use_<isa> of kernel_table.h, once per instruction set. CMake names its kernels: TCIM_LITE_KERNELS is
// KERNEL(activation) KERNEL(attention) ..., each a file of this folder with one TCIM_LITE_USE function.
#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {

#define KERNEL(name) void TCIM_LITE_USE(name)(KernelTable & table);
TCIM_LITE_KERNELS
#undef KERNEL

#define KERNEL(name) TCIM_LITE_USE(name)(table);
void TCIM_LITE_USE_ALL(KernelTable& table) { TCIM_LITE_KERNELS }

}  // namespace tcim_lite::cpu
