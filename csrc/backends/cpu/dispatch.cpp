#include "backends/cpu/dispatch.h"

#include <initializer_list>

#include "base/env.h"
#include "base/error.h"

namespace tcim_lite::cpu {

namespace {

// A level overwrites what it does better than the levels before it.
struct Level {
  const char* name;
  bool CpuInfo::* has;
  void (*use)(KernelTable& table);
};

#define LEVEL(isa) {#isa, &CpuInfo::isa, use_##isa},
constexpr std::initializer_list<Level> kLevels = {TCIM_LITE_LEVELS};  // those CMakeLists.txt builds
#undef LEVEL

}  // namespace

Tuning tuning_of(const CpuInfo& cpu) {
  constexpr int kSapphireRapids = 0x8f, kEmeraldRapids = 0xcf, kGraniteRapids = 0xad, kGraniteRapidsD = 0xae;
  Tuning tuning;
  for (const int model : {kSapphireRapids, kEmeraldRapids, kGraniteRapids, kGraniteRapidsD}) {
    if (cpu.intel && cpu.family == 6 && cpu.model == model) tuning.fetch = WeightFetch::PastPage;
  }
  constexpr int kZen5 = 26;  // the family
  if (cpu.amd && cpu.family == kZen5) tuning.fetch = WeightFetch::IntoFirst;
  return tuning;
}

std::vector<std::string> available_isas() {
  const CpuInfo cpu = read_cpu_info();
  std::vector<std::string> names = {"ref"};
  for (const Level& level : kLevels) {
    if (cpu.*level.has) names.push_back(level.name);
  }
  return names;
}

KernelTable make_table(std::string_view isa) { return make_table(isa, tuning_of(read_cpu_info())); }

KernelTable make_table(std::string_view isa, const Tuning& tuning) {
  const CpuInfo cpu = read_cpu_info();
  KernelTable table{};
  table.tuning = tuning;
  use_ref(table);
  table.isa = "ref";
  std::string has = table.isa;
  for (const Level& level : kLevels) {
    if (!(cpu.*level.has)) continue;
    has += std::string(", ") + level.name;
    if (isa == table.isa) continue;  // reached
    level.use(table);
    table.isa = level.name;
  }
  if (isa != table.isa) {
    fail(ErrorCode::Unsupported, "instruction set '", isa,
         "' (TCIM_LITE_ISA) is unknown or not to be had here: this machine has ", has,
         "; set it to one of them or unset it");
  }
  for (LinearKernels& linear : table.linear) {
    if (linear.few == nullptr) linear.few = linear.quantised;
    if (linear.many == nullptr) linear.many = linear.quantised;
  }
  return table;
}

const KernelTable& kernels() {
  static const KernelTable table = [] {
    const auto forced = env_text("TCIM_LITE_ISA");
    KernelTable made = make_table(forced ? *forced : available_isas().back());
    env_is_settled({"TCIM_LITE_ISA"});
    return made;
  }();
  return table;
}

LinearQuantKernel linear_kernel(const KernelTable& table, WeightFormat format, int64_t rows) {
  const LinearKernels& linear = table.linear[int(format)];
  if (rows >= table.many_from) return linear.many;
  return rows <= kFewRows && rows >= linear.few_from ? linear.few : linear.quantised;
}

}  // namespace tcim_lite::cpu
