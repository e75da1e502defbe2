#include "layers/registry.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/env.h"
#include "base/error.h"
#include "layers/clock/clock.h"
#include "layers/faults/faults.h"
#include "layers/record/record.h"
#include "layers/strict/strict.h"
#include "layers/trace.h"
#include "runtime/api_call.h"

namespace tcim_lite::layers {
namespace {

struct Layer {
  std::string_view name;
  std::shared_ptr<Observer> (*make)(const Options&);
};

constexpr Layer kLayers[] = {{"clock", make_clock},
                             {"faults", make_faults},
                             {"record", make_record},
                             {"strict", make_strict},
                             {"trace", make_trace}};

struct Active {
  std::string name;
  std::shared_ptr<Observer> observer;
};

struct State {
  std::mutex mutex;
  std::vector<Active> active;
};

// Never destroyed: calls may come from other threads while the process exits.
State& state() {
  static auto* const instance = new State;
  return *instance;
}

std::string known_layers() {
  std::string names;
  for (const Layer& layer : kLayers) names += (names.empty() ? "" : ", ") + std::string(layer.name);
  return names;
}

const Layer& find(const std::string& name, const char* where) {
  const auto* const found =
      std::find_if(std::begin(kLayers), std::end(kLayers), [&](const Layer& layer) { return layer.name == name; });
  if (found != std::end(kLayers)) return *found;
  fail(ErrorCode::Argument, where, ": there is no layer '", name, "'; expected one of ", known_layers());
}

void remove(std::vector<Active>& active, const std::string& name) {
  std::erase_if(active, [&](const Active& each) {
    if (each.name != name) return false;
    remove_observer(each.observer.get());
    each.observer->ended();
    return true;
  });
}

void start(const Layer& layer, const Options& options) {
  std::shared_ptr<Observer> observer = layer.make(options);
  const std::lock_guard lock(state().mutex);
  remove(state().active, std::string(layer.name));
  add_observer(observer);
  state().active.push_back({std::string(layer.name), std::move(observer)});
}

std::vector<std::string> names_of(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    std::string name = list.substr(begin, end - begin);
    name.erase(0, name.find_first_not_of(' '));
    name.erase(name.find_last_not_of(' ') + 1);
    if (!name.empty()) names.push_back(std::move(name));
    begin = end + 1;
  }
  if (names.empty()) {
    fail(ErrorCode::Argument, "TCIM_LITE_LAYERS='", list, "' names no layer; expected a comma list of ",
         known_layers());
  }
  return names;
}

// "trace:calls.txt" is the layer trace with the option file=calls.txt.
std::pair<const Layer*, Options> layer_and_options(const std::string& entry) {
  const size_t colon = entry.find(':');
  const Layer& layer = find(entry.substr(0, colon), "TCIM_LITE_LAYERS");
  if (colon == std::string::npos) return {&layer, {}};
  if (colon + 1 == entry.size()) {
    fail(ErrorCode::Argument, "TCIM_LITE_LAYERS: '", entry, "' names no file; expected LAYER or LAYER:FILE");
  }
  return {&layer, {{"file", entry.substr(colon + 1)}}};
}

// All or nothing: a name that is wrong starts none.
void start_from_environment() {
  std::vector<std::pair<const Layer*, Options>> wanted;
  if (const auto list = env_text("TCIM_LITE_LAYERS")) {
    for (const std::string& entry : names_of(*list)) {
      wanted.push_back(layer_and_options(entry));
      const Layer* layer = wanted.back().first;
      if (std::count_if(wanted.begin(), wanted.end(), [&](const auto& each) { return each.first == layer; }) > 1) {
        fail(ErrorCode::Argument, "TCIM_LITE_LAYERS='", *list, "' lists ", layer->name,
             " twice; expected each layer once, with at most one file");
      }
    }
  }
  if (const auto strict = strict_wanted()) {
    const Layer& layer = find("strict", "TCIM_LITE_STRICT");
    std::erase_if(wanted, [&](const auto& each) { return each.first == &layer; });
    if (*strict) wanted.insert(wanted.begin(), {&layer, {}});
  }
  const Layer& faults = find("faults", "TCIM_LITE_FAULTS");
  const bool has_faults =
      std::any_of(wanted.begin(), wanted.end(), [&](const auto& each) { return each.first == &faults; });
  if (faults_wanted() && !has_faults) wanted.push_back({&faults, {}});
  const Layer& clock = find("clock", "TCIM_LITE_CLOCK");
  const bool has_clock =
      std::any_of(wanted.begin(), wanted.end(), [&](const auto& each) { return each.first == &clock; });
  // First: it says how late it is to the others.
  if (clock_wanted() && !has_clock) wanted.insert(wanted.begin(), {&clock, {}});
  for (const auto& [layer, options] : wanted) start(*layer, options);
  env_is_settled({"TCIM_LITE_LAYERS", "TCIM_LITE_STRICT", "TCIM_LITE_FAULTS", "TCIM_LITE_CLOCK"});
  warn_of_unknown_variables();  // the last: what throws before is tried again
}

[[maybe_unused]] const bool kInstalled = (set_observer_source(&start_from_environment), true);

}  // namespace

std::string setting(const Options& options, const char* key, const char* variable, const char* otherwise) {
  const auto found = options.find(key);
  return found != options.end() ? found->second : env_text(variable).value_or(otherwise);
}

void check_options(std::string_view layer, const Options& options, const std::vector<std::string_view>& known) {
  for (const auto& [key, value] : options) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string names;
    for (const std::string_view name : known) names += (names.empty() ? "" : ", ") + std::string(name);
    fail(ErrorCode::Argument, "layer '", layer, "' has no option '", key, "'; expected one of ", names);
  }
}

std::vector<std::string> known() {
  std::vector<std::string> names;
  for (const Layer& layer : kLayers) names.emplace_back(layer.name);
  return names;
}

std::vector<std::string> active() {
  const ApiCall inside;
  start_observers();
  const std::lock_guard lock(state().mutex);
  std::vector<std::string> names;
  for (const Active& each : state().active) names.push_back(each.name);
  return names;
}

void enable(const std::string& name, const Options& options) {
  const Layer& layer = find(name, "enable");
  const ApiCall inside;
  start_observers();
  start(layer, options);
}

void disable(const std::string& name) {
  find(name, "disable");
  const ApiCall inside;
  start_observers();
  const std::lock_guard lock(state().mutex);
  remove(state().active, name);
}

}  // namespace tcim_lite::layers
