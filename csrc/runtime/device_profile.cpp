#include "runtime/device_profile.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/named_file.h"
#include "runtime/api_call.h"

namespace tcim_lite {
namespace {

constexpr const char* kSources = "HOUMO_VISIBLE_DEVICES, TCIM_LITE_DEVICES and TCIM_LITE_DEVICE_NUM";

constexpr uint64_t kMaxProfileBytes = 4 << 20;

std::string_view strip(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool parse_number(std::string_view text, uint64_t& number, std::string_view& rest) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  rest = strip(std::string_view(parsed.ptr, size_t(text.data() + text.size() - parsed.ptr)));
  return parsed.ec == std::errc();
}

// "16 GiB", "16G", "512M" or bytes; units are powers of 1024.
bool parse_bytes(std::string_view text, uint64_t& bytes) {
  std::string_view unit;
  if (!parse_number(text, bytes, unit)) return false;
  if (unit.empty() || unit == "B") return true;
  const auto power = std::string_view("KMGT").find(unit[0]);
  unit.remove_prefix(1);
  const unsigned shift = unsigned(10 * (power + 1));
  if (power == std::string_view::npos || (!unit.empty() && unit != "B" && unit != "iB")) return false;
  if (bytes >> (64 - shift) != 0) return false;
  bytes <<= shift;
  return true;
}

bool set_key(DeviceProfile& profile, std::string_view key, std::string_view value) {
  uint64_t number = 0;
  std::string_view rest;
  if (key == "name") {
    profile.name = value;
    return !value.empty();
  }
  if (key == "memory") return parse_bytes(value, profile.memory_bytes) && profile.memory_bytes != 0;
  if (!parse_number(value, number, rest) || number < 1 || number > 1'000'000) return false;
  if (key == "cores" && rest.empty()) {
    profile.cores = int(number);
    return true;
  }
  if ((key == "clock" || key == "clocks") && (rest.empty() || rest == "MHz")) {
    profile.clock_mhz = int(number);
    return true;
  }
  return false;
}

std::vector<DeviceProfile> read_profile(const std::string& path) {
  std::istringstream file(read_named_file(path, kMaxProfileBytes, ErrorCode::Device,
                                          concat("TCIM_LITE_DEVICES='", path, "': the device profile")));
  std::vector<DeviceProfile> profiles;
  std::set<std::string, std::less<>> given;  // keys of the section
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    const std::string_view line = strip(std::string_view(text).substr(0, text.find('#')));
    if (line.empty()) continue;
    if (line == "[device]") {
      if (profiles.size() == kMaxDevices)
        fail(ErrorCode::Device, path, ":", number, ": more than ", kMaxDevices, " devices");
      DeviceProfile profile;
      profile.id = int(profiles.size());
      profiles.push_back(profile);
      given.clear();
      continue;
    }
    const auto equals = line.find('=');
    if (profiles.empty() || equals == std::string_view::npos ||
        !set_key(profiles.back(), strip(line.substr(0, equals)), strip(line.substr(equals + 1)))) {
      fail(ErrorCode::Device, path, ":", number, ": '", printable_start(line),
           "': expected [device] or one of name = text, memory = 16 GiB, cores = 2, clocks = 1400 below it");
    }
    std::string_view key = strip(line.substr(0, equals));
    if (key == "clock") key = "clocks";
    if (!given.emplace(key).second) {
      fail(ErrorCode::Device, path, ":", number, ": '", printable_start(line), "': ", key,
           " is given already; expected it once below each [device]");
    }
  }
  if (profiles.empty())
    fail(ErrorCode::Device, "TCIM_LITE_DEVICES='", path,
         "': the profile has no [device] section; add one per device (docs/devices.md)");
  return profiles;
}

// Once for each value of the variable: devices are looked up at every call that asks for them.
void warn_of_repeated(const std::string& list, int id) {
  static std::mutex mutex;
  static auto* const warned = new std::string;
  const std::lock_guard lock(mutex);
  if (*warned == list) return;
  *warned = list;
  log(LogLevel::Warn, concat("HOUMO_VISIBLE_DEVICES='", list, "' lists device ", id,
                             " more than once; it is one device. List as many different ids as devices are wanted"));
}

std::vector<int> parse_ids(const std::string& list) {
  std::vector<int> ids;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view item = strip(std::string_view(list).substr(begin, end - begin));
    begin = end + 1;
    uint64_t id = 0;
    std::string_view rest;
    if (item.empty() || !parse_number(item, id, rest) || !rest.empty() || id >= kMaxDevices) {
      fail(ErrorCode::Device, "HOUMO_VISIBLE_DEVICES='", list,
           "': expected a comma list of device ids such as 0,1, each below ", kMaxDevices);
    }
    if (std::find(ids.begin(), ids.end(), int(id)) == ids.end()) {
      ids.push_back(int(id));
    } else {
      warn_of_repeated(list, int(id));
    }
  }
  return ids;
}

}  // namespace

uint64_t DeviceProfile::total_memory() const {
  return memory_bytes != 0 ? memory_bytes : uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
}

std::vector<DeviceProfile> visible_devices() {
  std::vector<DeviceProfile> profiles;
  if (const auto path = env_text("TCIM_LITE_DEVICES")) profiles = read_profile(*path);
  if (const auto list = env_text("HOUMO_VISIBLE_DEVICES")) {
    std::vector<DeviceProfile> visible;
    for (const int id : parse_ids(*list)) {
      if (size_t(id) < profiles.size()) {
        visible.push_back(profiles[size_t(id)]);
      } else {
        visible.emplace_back().id = id;
      }
    }
    return visible;
  }
  if (!profiles.empty()) return profiles;
  const int64_t count = env_int("TCIM_LITE_DEVICE_NUM", 0, kMaxDevices).value_or(1);
  for (int64_t id = 0; id < count; ++id) profiles.emplace_back().id = int(id);
  return profiles;
}

size_t count_visible_devices() {
  return api_call(host_call<"get_device_num">, Undescribed(), [] { return visible_devices().size(); });
}

DeviceProfile visible_device(int id) {
  const std::vector<DeviceProfile> profiles = visible_devices();
  std::string ids;
  for (const DeviceProfile& profile : profiles) {
    if (profile.id == id) return profile;
    ids += (ids.empty() ? "" : ", ") + std::to_string(profile.id);
  }
  fail(ErrorCode::Device, "device ", id, " does not exist; the ",
       profiles.size() == 1 ? "only device is " : "devices are ", ids.empty() ? "none" : ids, " (set by ", kSources,
       ")");
}

}  // namespace tcim_lite
