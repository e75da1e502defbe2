#include "layers/faults/rules.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/named_file.h"
#include "base/toml.h"
#include "runtime/device_profile.h"
#include "runtime/observer.h"

namespace tcim_lite::layers {
namespace {

constexpr double kMostSeconds = 600;  // of a hang: a typing error must not stop a program for a day
constexpr double kMostDelay = 60;     // seconds, which Ctrl-C does not end
constexpr double kMostDays = 1e6;     // seconds
constexpr int64_t kMostCount = int64_t(1) << 53;

struct Kind {
  std::string_view name;
  FaultKind kind;
  std::string_view call;   // where no rule says another
  std::string_view calls;  // the only others, split by blanks; "*": every call that needs a device
  std::string_view keys;   // besides those of every rule
  bool repeats;            // happens again and again unless `times` says otherwise
};

constexpr Kind kKinds[] = {
    {"device_lost", FaultKind::DeviceLost, kExecute, "*", "", false},
    {"hang", FaultKind::Hang, kExecute, "*", "timeout_s", false},
    {"out_of_memory", FaultKind::OutOfMemory, "Module.load", "Tensor.allocate Tensor.clone Tensor.astype Buffer.create",
     "", false},
    {"load_failure", FaultKind::LoadFailure, "Module.load", "", "", false},
    {"firmware", FaultKind::Firmware, "Module.load", "", "version", true},
    {"slow", FaultKind::Slow, kExecute, "*", "delay_s factor", true},
    {"throttle", FaultKind::Throttle, kExecute, "*", "clock_mhz lasts_s", false},
    {"bit_flip", FaultKind::BitFlip, kExecute, "Module.load", "input output weight byte bit", false},
    {"reset", FaultKind::Reset, kExecute, "*", "", false},
    {"flaky_sync", FaultKind::FlakySync, "Module.sync", "", "", false},
};

constexpr std::string_view kCommonKeys = "kind call model device after_s before_s nth probability seed times";

bool has_word(std::string_view words, std::string_view word) {
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    if (words.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

std::string listed(std::string_view words) {
  std::string text;
  for (const char c : words) text += c == ' ' ? std::string(", ") : std::string(1, c);
  return text;
}

std::string shown(const TomlValue& value) {
  if (const auto* text = std::get_if<std::string>(&value.value)) return "'" + printable_start(*text) + "'";
  if (const auto* flag = std::get_if<bool>(&value.value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value.value)) return std::to_string(*whole);
  return concat(std::get<double>(value.value));
}

// The keys of one rule.
class Keys {
 public:
  Keys(const TomlTable& table, const std::string& file) : table_(table), file_(file) {}

  [[noreturn]] void refuse(int line, const std::string& got, const std::string& expected) const {
    fail(ErrorCode::Argument, file_, ":", line, ": got ", got, ", expected ", expected);
  }
  const TomlValue* find(std::string_view key) const {
    for (const auto& [name, value] : table_.entries) {
      if (name == key) return &value;
    }
    return nullptr;
  }

  std::string text(std::string_view key, const std::string& expected = "a text that is not empty") const {
    const TomlValue* value = find(key);
    if (value == nullptr) return {};
    const auto* text = std::get_if<std::string>(&value->value);
    if (text == nullptr || text->empty()) refuse(value->line, concat(key, " = ", shown(*value)), expected);
    return *text;
  }
  std::optional<int64_t> whole(std::string_view key, int64_t low, int64_t high) const {
    const TomlValue* value = find(key);
    if (value == nullptr) return std::nullopt;
    const auto* number = std::get_if<int64_t>(&value->value);
    if (number == nullptr || *number < low || *number > high)
      refuse(value->line, concat(key, " = ", shown(*value)), concat("an integer from ", low, " to ", high));
    return *number;
  }
  double real(std::string_view key, double low, double high, double otherwise) const {
    const TomlValue* value = find(key);
    if (value == nullptr) return otherwise;
    double number = std::numeric_limits<double>::quiet_NaN();
    if (const auto* real = std::get_if<double>(&value->value)) number = *real;
    if (const auto* whole = std::get_if<int64_t>(&value->value)) number = double(*whole);
    if (!(number >= low && number <= high))
      refuse(value->line, concat(key, " = ", shown(*value)), concat("a number from ", low, " to ", high));
    return number;
  }

 private:
  const TomlTable& table_;
  const std::string& file_;
};

const Kind& kind_of(const Keys& keys, const TomlTable& table) {
  std::string names;
  for (const Kind& kind : kKinds) names += (names.empty() ? "one of " : ", ") + std::string(kind.name);
  if (keys.find("kind") == nullptr) keys.refuse(table.line, "a rule without kind", "kind = \"...\", " + names);
  const std::string name = keys.text("kind", names);
  const auto* const found =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& kind) { return kind.name == name; });
  if (found == std::end(kKinds)) keys.refuse(keys.find("kind")->line, "kind = '" + printable_start(name) + "'", names);
  return *found;
}

void check_names(const Keys& keys, const TomlTable& table, const Kind& kind) {
  for (const auto& [key, value] : table.entries) {
    if (has_word(kCommonKeys, key) || has_word(kind.keys, key)) continue;
    const std::string own = kind.keys.empty() ? "" : concat("; of ", kind.name, ": ", listed(kind.keys));
    keys.refuse(value.line, "the key '" + printable_start(key) + "'", "one of " + listed(kCommonKeys) + own);
  }
}

// Those that a rule of this kind can name, the usual one first.
std::vector<std::string_view> calls_of(const Kind& kind) {
  std::vector<std::string_view> calls{kind.call};
  for (const KnownCall* call = KnownCall::first(); call != nullptr; call = call->next) {
    if (kind.calls == "*" ? call->needs_device : has_word(kind.calls, call->name)) calls.push_back(call->name);
  }
  std::sort(calls.begin() + 1, calls.end());
  return calls;
}

std::string_view call_of(const Keys& keys, const Kind& kind) {
  const std::string name = keys.text("call");
  if (name.empty()) return kind.call;
  const std::vector<std::string_view> calls = calls_of(kind);
  const auto found = std::find(calls.begin(), calls.end(), name);
  if (found != calls.end()) return *found;
  std::string expected;
  for (const std::string_view call : calls) expected += (expected.empty() ? "" : ", ") + std::string(call);
  keys.refuse(keys.find("call")->line, "call = '" + printable_start(name) + "'",
              concat("for ", kind.name, ": ", expected));
}

void read_bit(const Keys& keys, const TomlTable& table, FaultRule& rule) {
  constexpr std::pair<const char*, BitIn> kPlaces[] = {
      {"input", BitIn::Input}, {"output", BitIn::Output}, {"weight", BitIn::Weight}};
  for (const auto& [key, place] : kPlaces) {
    const std::string name = keys.text(key, "the name of a tensor");
    if (name.empty()) continue;
    if (!rule.tensor.empty()) keys.refuse(keys.find(key)->line, concat("a second tensor, ", key), "one tensor");
    rule.tensor = name;
    rule.bit_in = place;
  }
  if (rule.tensor.empty()) keys.refuse(table.line, "bit_flip without a tensor", "input, output or weight = \"name\"");
  const bool at_load = rule.call != kExecute;
  if (keys.find("call") == nullptr && rule.bit_in == BitIn::Weight) rule.call = "Module.load";
  if (at_load && rule.bit_in != BitIn::Weight)
    keys.refuse(keys.find("call")->line, "call = 'Module.load' with an input or output", "execute, or a weight");
  if (const auto byte = keys.whole("byte", 0, kMostCount)) rule.byte = uint64_t(*byte);
  if (const auto bit = keys.whole("bit", 0, 7)) rule.bit = int(*bit);
}

FaultRule read_rule(const TomlTable& table, const std::string& file, size_t number) {
  const Keys keys(table, file);
  FaultRule rule;
  rule.number = number;
  rule.place = concat(file, ":", table.line);
  const Kind& kind = kind_of(keys, table);
  check_names(keys, table, kind);
  rule.kind_name = kind.name;
  rule.kind = kind.kind;
  rule.call = call_of(keys, kind);
  rule.model = keys.text("model");
  if (const auto device = keys.whole("device", 0, kMaxDevices - 1)) rule.device = int(*device);
  rule.after_s = keys.real("after_s", 0, kMostDays, 0);
  rule.before_s = keys.real("before_s", 0, kMostDays, 0);
  if (rule.before_s != 0 && rule.before_s <= rule.after_s)
    keys.refuse(keys.find("before_s")->line, concat("before_s = ", rule.before_s), "more than after_s");
  rule.nth = uint64_t(keys.whole("nth", 1, kMostCount).value_or(1));
  rule.probability = keys.real("probability", 0, 1, 1);
  rule.seed = uint64_t(keys.whole("seed", 0, kMostCount).value_or(0));
  const bool endless = kind.repeats || keys.find("probability") != nullptr;
  rule.times = uint64_t(keys.whole("times", 0, kMostCount).value_or(endless && !keys.find("nth") ? 0 : 1));
  rule.timeout_s = keys.real("timeout_s", 0, kMostSeconds, 1);
  rule.delay_s = keys.real("delay_s", 0, kMostDelay, 0);
  rule.factor = keys.real("factor", 1, 1000, 1);
  rule.clock_mhz = int(keys.whole("clock_mhz", 1, 1'000'000).value_or(0));
  rule.lasts_s = keys.real("lasts_s", 0, kMostDays, 0);
  rule.version = keys.text("version");
  if (rule.kind == FaultKind::Slow && rule.delay_s == 0 && rule.factor == 1)
    keys.refuse(table.line, "slow without its measure", "delay_s, or a factor above 1");
  if (rule.factor != 1 && rule.call != kExecute)
    keys.refuse(keys.find("factor")->line, "factor of a call", "delay_s; a factor is of call = \"execute\"");
  if (rule.kind == FaultKind::Throttle && rule.clock_mhz == 0)
    keys.refuse(table.line, "throttle without clock_mhz", "clock_mhz = 700 or another clock");
  if (rule.kind == FaultKind::Firmware && rule.version.empty())
    keys.refuse(table.line, "firmware without version", "version = \"1.3.0\" or another");
  if (rule.kind == FaultKind::BitFlip) read_bit(keys, table, rule);
  return rule;
}

}  // namespace

std::vector<FaultRule> read_rules(std::string_view text, const std::string& file) {
  const std::vector<TomlTable> tables = parse_toml(text, file, ErrorCode::Argument);
  if (!tables[0].entries.empty())
    fail(ErrorCode::Argument, file, ":", tables[0].entries[0].second.line, ": got the key '",
         tables[0].entries[0].first, "' above the first rule, expected [[fault]]");
  std::vector<FaultRule> rules;
  for (size_t i = 1; i < tables.size(); ++i) {
    if (tables[i].name != "fault" || !tables[i].repeated)
      fail(ErrorCode::Argument, file, ":", tables[i].line, ": got the table '", tables[i].name,
           "', expected [[fault]] before each rule");
    rules.push_back(read_rule(tables[i], file, i));
  }
  if (rules.empty()) fail(ErrorCode::Argument, file, ": got no rule, expected [[fault]] and its keys below it");
  return rules;
}

// SplitMix64.
uint64_t draw(uint64_t seed, uint64_t count) {
  uint64_t z = seed * 0xd1342543de82ef95u + (count + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace tcim_lite::layers
