#include "runtime/chip_profile.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/env.h"
#include "base/error.h"
#include "base/named_file.h"
#include "base/toml.h"

namespace tcim_lite {
namespace {

constexpr char kBuiltIn[] =
#include "m50_toml.inc"
    ;

constexpr uint64_t kMaxBytes = 1 << 16;

struct Key {
  std::string_view table, name;
  double ChipProfile::* number;
};

constexpr Key kNumbers[] = {
    {"public", "conv_int8_tops", &ChipProfile::conv_int8_tops},
    {"public", "conv_float_tops", &ChipProfile::conv_float_tops},
    {"public", "set_input_us", &ChipProfile::set_input_us},
    {"public", "to_device_gb", &ChipProfile::to_device_gb},
    {"public", "to_host_gb", &ChipProfile::to_host_gb},
    {"fitted", "read_gb", &ChipProfile::read_gb},
    {"fitted", "linear_int8_tops", &ChipProfile::linear_int8_tops},
    {"fitted", "attention_tops", &ChipProfile::attention_tops},
    {"fitted", "op_us", &ChipProfile::op_us},
    {"fitted", "exchange_gb", &ChipProfile::exchange_gb},
    {"fitted", "exchange_us", &ChipProfile::exchange_us},
    {"fitted", "stage_ms", &ChipProfile::stage_ms},
    {"power", "idle_watts", &ChipProfile::idle_watts},
    {"power", "busy_watts", &ChipProfile::busy_watts},
    {"thermal", "ambient_c", &ChipProfile::ambient_c},
    {"thermal", "c_per_watt", &ChipProfile::c_per_watt},
};

// Of [chip].
struct Whole {
  std::string_view name;
  int ChipProfile::* number;
};
constexpr Whole kWholes[] = {{"cores", &ChipProfile::cores}, {"clock_mhz", &ChipProfile::clock_mhz}};

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  void take(const TomlTable& table, const std::string& key, const TomlValue& value) {
    const std::string full = table.name.empty() ? key : concat(table.name, ".", key);
    if (table.repeated || !seen_.insert(full).second)
      refuse(value, concat("'", full, "' is there twice, expected it once"));
    if (table.name == "chip") return take_chip(key, value);
    for (const Key& known : kNumbers) {
      if (known.table != table.name || known.name != key) continue;
      made_.*known.number = positive(key, value);
      return;
    }
    refuse(value, concat("there is no key '", full, "'; expected those of csrc/runtime/m50.toml"));
  }

  ChipProfile finish() const {
    for (const Key& known : kNumbers) need(concat(known.table, ".", known.name));
    for (const Whole& known : kWholes) need(concat("chip.", known.name));
    need("chip.name");
    if (made_.busy_watts < made_.idle_watts)
      fail(ErrorCode::Argument, file_, ": busy_watts is ", made_.busy_watts, ", expected idle_watts, ",
           made_.idle_watts, ", or more");
    return made_;
  }

 private:
  void take_chip(const std::string& key, const TomlValue& value) {
    if (key == "name") {
      const auto* const text = std::get_if<std::string>(&value.value);
      if (text == nullptr || text->empty()) refuse(value, concat("name is ", kind_name(value), ", expected a text"));
      made_.name = *text;
      return;
    }
    for (const Whole& known : kWholes) {
      if (known.name != key) continue;
      const auto* const number = std::get_if<int64_t>(&value.value);
      if (number == nullptr || *number < 1 || *number > 1'000'000)
        refuse(value, concat(key, " is wrong, expected an integer from 1 to 1000000"));
      made_.*known.number = int(*number);
      return;
    }
    refuse(value, concat("there is no key 'chip.", key, "'; expected those of csrc/runtime/m50.toml"));
  }

  double positive(const std::string& key, const TomlValue& value) const {
    double number = 0;
    if (const auto* const whole = std::get_if<int64_t>(&value.value)) number = double(*whole);
    if (const auto* const real = std::get_if<double>(&value.value)) number = *real;
    if (!std::isfinite(number) || number <= 0) refuse(value, concat(key, " is wrong, expected a number above 0"));
    return number;
  }

  void need(const std::string& full) const {
    if (seen_.count(full) == 0)
      fail(ErrorCode::Argument, file_, ": there is no ", full, "; start from csrc/runtime/m50.toml");
  }

  [[noreturn]] void refuse(const TomlValue& value, const std::string& why) const {
    fail(ErrorCode::Argument, file_, ":", value.line, ": ", why);
  }

  const std::string& file_;
  std::set<std::string> seen_;
  ChipProfile made_;
};

}  // namespace

ChipProfile parse_chip_profile(std::string_view text, const std::string& file) {
  Reader reader(file);
  for (const TomlTable& table : parse_toml(text, file, ErrorCode::Argument)) {
    for (const auto& [key, value] : table.entries) reader.take(table, key, value);
  }
  return reader.finish();
}

const ChipProfile& chip_profile() {
  static const ChipProfile profile = [] {
    const auto path = env_text("TCIM_LITE_CLOCK_PROFILE");
    if (!path) return parse_chip_profile(kBuiltIn, "csrc/runtime/m50.toml");
    return parse_chip_profile(read_named_file(*path, kMaxBytes, ErrorCode::Argument,
                                              concat("TCIM_LITE_CLOCK_PROFILE='", *path, "': the profile of the chip")),
                              *path);
  }();
  return profile;
}

}  // namespace tcim_lite
