#include "layers/faults/fired.h"

#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "layers/faults/rules.h"

namespace tcim_lite::layers {
namespace {

constexpr size_t kKeptOfRule = 100;

// A leaf lock, taken inside of calls and runs only.
struct FiredList {
  std::mutex mutex;
  std::vector<FiredFault> kept;
  std::map<uint64_t, size_t> counts;  // by rule, since the last take
};

FiredList& fired_list() {
  static auto* const instance = new FiredList;
  return *instance;
}

}  // namespace

void note_fired(const FaultRule& rule, int device, const std::string& text) {
  size_t count;
  {
    const std::lock_guard lock(fired_list().mutex);
    count = ++fired_list().counts[rule.number];
    if (count <= kKeptOfRule) {
      fired_list().kept.push_back(
          {rule.number, rule.place, std::string(rule.kind_name), std::string(rule.call), device, text});
    }
  }
  const bool repeated = rule.kind == FaultKind::Slow && count > 1;
  log(repeated ? LogLevel::Debug : LogLevel::Warn, concat("faults: ", rule.kind_name, ": ", text));
}

std::vector<FiredFault> take_fired_faults() {
  const std::lock_guard lock(fired_list().mutex);
  fired_list().counts.clear();
  return std::exchange(fired_list().kept, {});
}

}  // namespace tcim_lite::layers
