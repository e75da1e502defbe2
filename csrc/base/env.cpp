#include "base/env.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/named_file.h"

namespace tcim_lite {
namespace {

constexpr std::string_view kPrefix = "TCIM_LITE_";

// All that docs/environment.md lists, without the prefix; some are read by Python only.
constexpr std::string_view kNames[] = {"API_KEY",     "CLOCK",        "CLOCK_PROFILE", "CUBLAS",     "CUDA_ONE_LAUNCH",
                                       "CUDA_WGMMA",  "DEVICE",       "DEVICES",       "DEVICE_NUM", "EMULATE",
                                       "FAULTS",      "ISA",          "LAYERS",        "LOG",        "NUMERICS",
                                       "RECORD_DATA", "RECORD_SITES", "STRICT",        "TAPS",       "THREADS",
                                       "TRACE_FILE",  "TRACE_FORMAT", "TRACE_PHASES",  "VERIFY",     "WEIGHTS"};
constexpr std::string_view kNamesOfTests[] = {"CUDA_ARCHITECTURES", "EMULATED", "FUZZ_SECONDS", "LOCATE",
                                              "MUTATIONS",          "NETWORKS", "SEEDED_FAULT"};

bool is_one_of(std::string_view name, const auto& names) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// How many characters have to be put in, left out or replaced to make `b` of `a`.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);  // to the first j characters of b
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// What may be meant: one name, or all where none is near.
std::string meant_by(std::string_view name) {
  const auto* const near = std::min_element(std::begin(kNames), std::end(kNames),
                                            [&](auto a, auto b) { return distance(name, a) < distance(name, b); });
  if (distance(name, *near) <= 1 + name.size() / 3) return concat("did you mean ", kPrefix, *near, "?");
  std::string all;
  for (const std::string_view each : kNames) all += (all.empty() ? "" : ", ") + std::string(each);
  return concat("what may follow ", kPrefix, " is ", all);
}

struct Settled {
  std::mutex mutex;
  std::map<std::string, std::optional<std::string>> values;
};

Settled& settled() {
  static auto* const instance = new Settled;
  return *instance;
}

}  // namespace

std::optional<std::string> env_text(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<int64_t> env_int(const char* name, int64_t low, int64_t high) {
  const auto text = env_text(name);
  if (!text) return std::nullopt;
  int64_t number = 0;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < low || number > high) {
    fail(ErrorCode::Argument, name, "='", *text, "': expected a whole number from ", low, " to ", high);
  }
  return number;
}

bool env_is(const char* name, const char* yes, const char* no) {
  const auto text = env_text(name);
  if (!text || *text == no) return false;
  if (*text != yes) fail(ErrorCode::Argument, name, "='", *text, "': expected ", yes, " or ", no);
  return true;
}

void warn_of_unknown_variables() {
  for (char** each = environ; *each != nullptr; ++each) {
    std::string_view name(*each);
    if (!name.starts_with(kPrefix)) continue;
    name = name.substr(0, name.find('='));
    const std::string_view rest = name.substr(kPrefix.size());
    if (is_one_of(rest, kNames) || is_one_of(rest, kNamesOfTests)) continue;
    log(LogLevel::Warn,
        concat("the environment has ", printable_start(name), ", which has no effect; ", meant_by(rest)));
  }
}

void env_is_settled(std::initializer_list<const char*> names) {
  const std::lock_guard lock(settled().mutex);
  for (const char* name : names) settled().values.emplace(name, env_text(name));
}

void warn_of_late_variables() {
  std::vector<std::string> warnings;
  {
    const std::lock_guard lock(settled().mutex);
    for (auto& [name, value] : settled().values) {
      const auto now = env_text(name.c_str());
      if (!now || now == value) continue;
      warnings.push_back(concat(name, "='", printable_start(*now), "' comes too late: this process has read it as ",
                                value ? concat("'", printable_start(*value), "'") : "unset",
                                " and does not read it again; set it before the first call of tcim_lite"));
      value = now;
    }
  }
  for (const std::string& warning : warnings) log(LogLevel::Warn, warning);
}

}  // namespace tcim_lite
