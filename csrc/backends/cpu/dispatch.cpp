#include "backends/cpu/dispatch.h"

#include "backends/cpu/cpu_info.h"
#include "base/env.h"
#include "base/error.h"

namespace tcim_lite::cpu {

std::vector<std::string> available_isas() {
  const CpuInfo cpu = read_cpu_info();
  std::vector<std::string> names = {"ref"};
  if (cpu.avx2) names.push_back("avx2");
  if (cpu.avx512vnni) names.push_back("avx512vnni");
  return names;
}

KernelTable make_table(std::string_view isa) {
  std::string has;
  bool known = false;
  for (const std::string& name : available_isas()) {
    known = known || name == isa;
    has += (has.empty() ? "" : ", ") + name;
  }
  if (!known) {
    fail(ErrorCode::Unsupported, "instruction set '", isa,
         "' (TCIM_LITE_ISA) is unknown or not to be had here: this machine has ", has,
         "; set it to one of them or unset it");
  }
  KernelTable table{};
  use_ref(table);
  table.isa = "ref";
#ifdef TCIM_LITE_X86
  if (isa == "avx2" || isa == "avx512vnni") {
    use_avx2(table);
    table.isa = "avx2";
  }
  if (isa == "avx512vnni") {
    use_avx512vnni(table);
    table.isa = "avx512vnni";
  }
#endif
  return table;
}

const KernelTable& kernels() {
  static const KernelTable table = [] {
    const auto forced = env_text("TCIM_LITE_ISA");
    return make_table(forced ? *forced : available_isas().back());
  }();
  return table;
}

}  // namespace tcim_lite::cpu
