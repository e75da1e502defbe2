// Who holds the memory of a device.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tcim_lite {

class Device;

enum class MemoryUse { Weights, Tensors, Scratch };

// "512 bytes", "1.5 MiB"
std::string bytes_text(uint64_t bytes);

// Bytes by (holder, use). A holder is a model file or another name to show in an error. Thread-safe. Giving memory back
// takes no lock, so any thread may do it at any time, even while another thread forks.
class Ledger {
 public:
  using Line = std::atomic<uint64_t>;

  std::shared_ptr<Line> line(MemoryUse use, std::string_view holder);
  // Bytes and "weights of a.hmm", largest first.
  std::vector<std::pair<uint64_t, std::string>> held() const;
  // "1.5 MiB weights of a.hmm, 512 bytes tensors of a.hmm and 3 more (96 bytes)", largest first.
  std::string describe() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, MemoryUse>, std::weak_ptr<Line>, std::less<>> lines_;
};

// Memory counted against a device for as long as this object lives.
class Charge {
 public:
  Charge() = default;
  // Throws Error(Device), which lists who holds what, when it does not fit. `holder` empty: the program itself.
  Charge(Device& device, uint64_t bytes, MemoryUse use, std::string_view holder);
  ~Charge();
  Charge(Charge&& other) noexcept { *this = std::move(other); }
  Charge& operator=(Charge&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(bytes_, other.bytes_);
    std::swap(line_, other.line_);
    return *this;
  }

 private:
  Device* device_ = nullptr;
  uint64_t bytes_ = 0;
  std::shared_ptr<Ledger::Line> line_;
};

}  // namespace tcim_lite
