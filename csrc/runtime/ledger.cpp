#include "runtime/ledger.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/error.h"
#include "runtime/devices.h"

namespace tcim_lite {
namespace {

constexpr size_t kLinesShown = 8;
constexpr size_t kHolderShown = 80;  // characters; the end of a path says more than its beginning

std::string describe_use(MemoryUse use, std::string_view holder) {
  static constexpr const char* kNames[] = {"weights", "tensors", "scratch"};
  const std::string name = kNames[size_t(use)];
  if (holder.empty()) return name + " of the program";
  if (holder.size() <= kHolderShown) return concat(name, " of ", holder);
  return concat(name, " of ...", holder.substr(holder.size() - kHolderShown));
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 10240) return concat(bytes, " bytes");
  double value = double(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit < 3; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %s", value, kUnits[unit]);
  return text;
}

std::shared_ptr<Ledger::Line> Ledger::line(MemoryUse use, std::string_view holder) {
  const std::lock_guard lock(mutex_);
  std::pair key(std::string(holder), use);
  const auto known = lines_.find(key);
  if (known != lines_.end()) {
    if (auto line = known->second.lock()) return line;
  }
  std::erase_if(lines_, [](const auto& item) { return item.second.expired(); });
  auto line = std::make_shared<Line>(0);
  lines_[std::move(key)] = line;
  return line;
}

std::vector<std::pair<uint64_t, std::string>> Ledger::held() const {
  std::vector<std::pair<uint64_t, std::string>> held;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, weak] : lines_) {
      const auto line = weak.lock();
      const uint64_t bytes = line == nullptr ? 0 : line->load(std::memory_order_relaxed);
      if (bytes != 0) held.emplace_back(bytes, describe_use(key.second, key.first));
    }
  }
  std::stable_sort(held.begin(), held.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  return held;
}

std::string Ledger::describe() const {
  const auto held = this->held();
  if (held.empty()) return "nothing";
  std::string text;
  const size_t shown = std::min(held.size(), kLinesShown);
  for (size_t i = 0; i < shown; ++i) text += concat(i == 0 ? "" : ", ", bytes_text(held[i].first), " ", held[i].second);
  uint64_t rest = 0;
  for (size_t i = shown; i < held.size(); ++i) rest += held[i].first;
  if (rest != 0) text += concat(" and ", held.size() - shown, " more (", bytes_text(rest), ")");
  return text;
}

Charge::Charge(Device& device, uint64_t bytes, MemoryUse use, std::string_view holder) {
  auto line = device.ledger().line(use, holder);
  if (!device.take_memory(bytes)) {
    const uint64_t capacity = device.profile().memory_bytes;
    fail(ErrorCode::Device, "device ", device.id(), " (", device.profile().name,
         ") is out of memory: ", bytes_text(bytes), " more for ", describe_use(use, holder), " do not fit, ",
         bytes_text(device.memory_used()), " of ", bytes_text(capacity), " are in use: ", device.ledger().describe(),
         "; free modules or tensors, or raise memory in TCIM_LITE_DEVICES");
  }
  line->fetch_add(bytes, std::memory_order_relaxed);
  device_ = &device;
  bytes_ = bytes;
  line_ = std::move(line);
}

Charge::~Charge() {
  if (device_ == nullptr) return;
  line_->fetch_sub(bytes_, std::memory_order_relaxed);
  device_->give_memory(bytes_);
}

}  // namespace tcim_lite
