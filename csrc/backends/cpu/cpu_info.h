// What the CPU and the operating system let this process run. Looks at cpuid and xgetbv, and asks Linux for the use of
// AMX, which a process does not have by itself.
#pragma once

namespace tcim_lite::cpu {

struct CpuInfo {
  bool avx2 = false;        // AVX2, FMA and F16C, ymm state saved by the system
  bool avx512vnni = false;  // AVX-512 F, BW, VL, DQ and VNNI on top of avx2, zmm state saved by the system
  bool amx = false;         // AMX tiles and int8 on top of avx512vnni, their use granted to this process
};

CpuInfo read_cpu_info();

}  // namespace tcim_lite::cpu
