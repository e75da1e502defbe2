#include "backends/cpu/cpu_info.h"

#ifdef __x86_64__
#include <cpuid.h>

#include <cstdint>

#include "base/amx.h"
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace tcim_lite::cpu {

#ifdef __x86_64__
namespace {

constexpr bool bit(uint32_t word, int index) { return (word >> index) & 1u; }

// XCR0: which register state the operating system saves on a context switch. Needs OSXSAVE.
uint64_t read_xcr0() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t(high) << 32) | low;
}

}  // namespace

CpuInfo read_cpu_info() {
  CpuInfo info;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(0, &a, &b, &c, &d)) return info;
  info.intel = b == signature_INTEL_ebx;
  info.amd = b == signature_AMD_ebx;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return info;
  info.family = int((a >> 8) & 15u) + (((a >> 8) & 15u) == 15 ? int((a >> 20) & 255u) : 0);
  info.model = int((a >> 4) & 15u) + int((a >> 16) & 15u) * 16;
  const bool fma = bit(c, 12), osxsave = bit(c, 27), avx = bit(c, 28), f16c = bit(c, 29);
  if (!osxsave || !avx || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return info;
  const uint32_t subleaves = a;
  const uint64_t saved = read_xcr0();
  const bool ymm = (saved & 0x06) == 0x06;
  const bool zmm = (saved & 0xe6) == 0xe6;  // opmask, upper halves of zmm0-15, zmm16-31
  info.avx2 = ymm && bit(b, 5) && fma && f16c;
  const bool f = bit(b, 16), dq = bit(b, 17), bw = bit(b, 30), vl = bit(b, 31), vnni = bit(c, 11);
#ifdef TCIM_LITE_EMULATE_AVX512
  constexpr bool kEmulated = true;
#else
  constexpr bool kEmulated = false;
#endif
  info.avx512 = info.avx2 && (kEmulated || (zmm && f && dq && bw && vl));
  info.avx512vnni = info.avx512 && vnni;
  const bool tiles = (saved & 0x60000) == 0x60000, amx_tile = bit(d, 24), amx_int8 = bit(d, 25);
  info.amx = info.avx512vnni && tiles && amx_tile && amx_int8 && request_amx_tiles();
  info.avxvnni = info.avx2 && subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && bit(a, 4);
  return info;
}
#elif defined(__aarch64__)
CpuInfo read_cpu_info() {
  // arch/arm64/include/uapi/asm/hwcap.h; older headers lack the names.
  constexpr unsigned long kAsimd = 1ul << 1, kAsimdDotProduct = 1ul << 20;
  CpuInfo info;
  info.neon = getauxval(AT_HWCAP) & kAsimd;
  info.neondotprod = info.neon && (getauxval(AT_HWCAP) & kAsimdDotProduct);
  return info;
}
#else
CpuInfo read_cpu_info() { return {}; }
#endif

}  // namespace tcim_lite::cpu
