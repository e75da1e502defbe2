// What the CPU and the operating system let this process run. Looks at cpuid and xgetbv, nothing else.
#pragma once

namespace tcim_lite::cpu {

struct CpuInfo {
  bool avx2 = false;        // AVX2, FMA and F16C, ymm state saved by the system
  bool avx512vnni = false;  // AVX-512 F, BW, VL, DQ and VNNI on top of avx2, zmm state saved by the system
};

CpuInfo read_cpu_info();

}  // namespace tcim_lite::cpu
