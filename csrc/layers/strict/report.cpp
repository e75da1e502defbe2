#include "layers/strict/report.h"

#include "base/error.h"
#include "base/log.h"
#include "layers/strict/catalogue.h"

namespace tcim_lite::layers {
namespace {

constexpr size_t kKept = 1000;

// A leaf lock, taken inside of calls and runs only.
struct Findings {
  std::mutex mutex;
  std::vector<Finding> kept;
  std::set<std::pair<std::string, std::string>> told;  // code, site
};

Findings& findings() {
  static auto* const instance = new Findings;
  return *instance;
}

}  // namespace

void report(StrictMode mode, std::string_view code, const std::string& detail, const std::string& site, bool raise) {
  const FindingKind& kind = kind_of(code);
  const std::string message = concat(code, ": ", kind.title, " ", detail, " At ", site, ". Rule: ", kind.rule,
                                     " Fault: ", kind.fault, ". Fix: ", kind.fix, " (tcim-lite explain ", code, ")");
  bool is_new;
  {
    const std::lock_guard lock(findings().mutex);
    is_new = findings().told.emplace(code, site).second;
    if (is_new && findings().kept.size() < kKept) findings().kept.push_back({std::string(code), detail, site, message});
  }
  if (raise && mode == StrictMode::Error) throw Error(ErrorCode::Strict, message, kind.status_code);
  if (is_new) log(LogLevel::Warn, message);
}

std::vector<Finding> take_findings() {
  const std::lock_guard lock(findings().mutex);
  findings().told.clear();
  return std::exchange(findings().kept, {});
}

}  // namespace tcim_lite::layers
