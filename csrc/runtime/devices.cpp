#include "runtime/devices.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/env.h"
#include "base/error.h"
#include "runtime/stream.h"

namespace tcim_lite {
namespace {

constexpr const char* kSources = "HOUMO_VISIBLE_DEVICES, TCIM_LITE_DEVICES and TCIM_LITE_DEVICE_NUM";

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
    return true;
  }
  if (key == "memory") return parse_bytes(value, profile.memory_bytes);
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
  std::ifstream file(path);
  if (!file) fail(ErrorCode::Device, "TCIM_LITE_DEVICES='", path, "': the device profile cannot be read");
  std::vector<DeviceProfile> profiles;
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    const std::string_view line = strip(std::string_view(text).substr(0, text.find('#')));
    if (line.empty()) continue;
    if (line == "[device]") {
      DeviceProfile profile;
      profile.id = int(profiles.size());
      profiles.push_back(profile);
      continue;
    }
    const auto equals = line.find('=');
    if (profiles.empty() || equals == std::string_view::npos ||
        !set_key(profiles.back(), strip(line.substr(0, equals)), strip(line.substr(equals + 1)))) {
      fail(ErrorCode::Device, path, ":", number, ": '", line,
           "': expected [device] or one of name = text, memory = 16 GiB, cores = 2, clocks = 1400 below it");
    }
  }
  if (profiles.empty()) fail(ErrorCode::Device, "TCIM_LITE_DEVICES='", path, "': the profile has no [device] section");
  return profiles;
}

std::vector<int> parse_ids(const std::string& list) {
  std::vector<int> ids;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view item = strip(std::string_view(list).substr(begin, end - begin));
    begin = end + 1;
    uint64_t id = 0;
    std::string_view rest;
    if (item.empty() || !parse_number(item, id, rest) || !rest.empty() || id > 4095) {
      fail(ErrorCode::Device, "HOUMO_VISIBLE_DEVICES='", list, "': expected a comma list of device ids such as 0,1");
    }
    if (std::find(ids.begin(), ids.end(), int(id)) == ids.end()) ids.push_back(int(id));
  }
  return ids;
}

Backend& chosen_backend() {
  const std::string kind = env_text("TCIM_LITE_DEVICE").value_or("cpu");
  if (kind == "cpu") return cpu_backend();
  if (kind == "cuda") {
    fail(ErrorCode::Unsupported, "TCIM_LITE_DEVICE=cuda: this build has no CUDA backend; unset it or use cpu");
  }
  fail(ErrorCode::Unsupported, "TCIM_LITE_DEVICE='", kind, "': expected cpu or cuda");
}

struct Registry {
  std::mutex mutex;
  std::map<int, std::unique_ptr<Device>> devices;
};

// Never destroyed: tensors may outlive every static object.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

}  // namespace

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
  const int64_t count = env_int("TCIM_LITE_DEVICE_NUM", 0, 4096).value_or(1);
  for (int64_t id = 0; id < count; ++id) profiles.emplace_back().id = int(id);
  return profiles;
}

std::string resolve_backend(const std::string& name) {
  const std::string asked = name.empty() ? env_text("TCIM_BACKEND").value_or("Xh2HalBackend") : name;
  if (asked == "Xh2HalBackend" || asked == "Xh2aHalBackend" || asked == "xh2") return "Xh2HalBackend";
  if (asked == "Xh1HdiBackend") {
    fail(ErrorCode::Unsupported, "backend 'Xh1HdiBackend' (M30) is not emulated; use Xh2HalBackend");
  }
  fail(ErrorCode::Argument, "unknown backend '", asked, "'; expected Xh2HalBackend, Xh2aHalBackend or xh2");
}

Device::Device(DeviceProfile profile, Backend& backend)
    : profile_(std::move(profile)), backend_(backend), default_stream_(std::make_shared<Stream>()) {}

void Device::charge(uint64_t bytes, MemoryUse use) {
  const uint64_t capacity = profile_.memory_bytes;
  const uint64_t before = memory_used_.fetch_add(bytes, std::memory_order_relaxed);
  if (capacity == 0 || (bytes <= capacity && before <= capacity - bytes)) {
    ledger_[size_t(use)].fetch_add(bytes, std::memory_order_relaxed);
    return;
  }
  memory_used_.fetch_sub(bytes, std::memory_order_relaxed);
  static constexpr const char* kNames[] = {"weights", "tensors and caches", "scratch"};
  std::string holders;
  for (size_t i = 0; i < ledger_.size(); ++i) {
    holders += concat(i == 0 ? "" : ", ", kNames[i], " ", ledger_[i].load(std::memory_order_relaxed));
  }
  fail(ErrorCode::Device, "device ", id(), " (", profile_.name, ") is out of memory: ", bytes, " more bytes for ",
       kNames[size_t(use)], " do not fit, ", before, " of ", capacity, " are in use (", holders,
       "); free modules or tensors, or raise memory in TCIM_LITE_DEVICES");
}

void Device::discharge(uint64_t bytes, MemoryUse use) noexcept {
  ledger_[size_t(use)].fetch_sub(bytes, std::memory_order_relaxed);
  memory_used_.fetch_sub(bytes, std::memory_order_relaxed);
}

Device& use_device(int id) {
  Backend& backend = chosen_backend();
  const std::vector<DeviceProfile> profiles = visible_devices();
  const auto found = std::find_if(profiles.begin(), profiles.end(), [id](const auto& p) { return p.id == id; });
  if (found == profiles.end()) {
    std::string ids;
    for (const DeviceProfile& profile : profiles) ids += (ids.empty() ? "" : ", ") + std::to_string(profile.id);
    fail(ErrorCode::Device, "device ", id, " does not exist; there ", profiles.size() == 1 ? "is " : "are ",
         ids.empty() ? "none" : ids, " (set by ", kSources, ")");
  }
  const std::lock_guard lock(registry().mutex);
  std::unique_ptr<Device>& device = registry().devices[id];
  if (device == nullptr) device = std::make_unique<Device>(*found, backend);
  return *device;
}

uint64_t device_memory_used(int id) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().devices.find(id);
  return found == registry().devices.end() ? 0 : found->second->memory_used();
}

}  // namespace tcim_lite
