// The CPU model, and the instructions that it and the operating system let this process run. Reads cpuid and xgetbv, or
// the auxiliary vector on aarch64, and asks Linux for permission to use AMX, which a process does not have by default.
#pragma once

namespace tcim_lite::cpu {

struct CpuInfo {
  bool avx2 = false;         // AVX2, FMA and F16C, ymm state saved by the system
  bool avxvnni = false;      // AVX-VNNI (ymm vpdpbusd) on top of avx2
  bool avx512 = false;       // AVX-512 F, BW, VL and DQ on top of avx2, zmm state saved by the system
  bool avx512vnni = false;   // VNNI (zmm vpdpbusd) on top of avx512
  bool amx = false;          // AMX tiles and int8 on top of avx512vnni, their use granted to this process
  bool neon = false;         // aarch64
  bool neondotprod = false;  // sdot on top of neon

  bool intel = false, amd = false;  // x86: by whom; family and model as cpuid counts them, extended parts included
  int family = 0, model = 0;
};

CpuInfo read_cpu_info();

}  // namespace tcim_lite::cpu
