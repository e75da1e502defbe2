#include <cstring>
#include <memory>
#include <utility>

#include "backends/backend.h"
#include "backends/cpu/executable.h"
#include "base/aligned_buffer.h"
#include "graph/plan/plan.h"

namespace tcim_lite {
namespace {

class CpuMemory final : public DeviceMemory {
 public:
  explicit CpuMemory(uint64_t bytes) : buffer_(bytes) {
    data_ = buffer_.data();
    bytes_ = bytes;
  }

 private:
  AlignedBuffer buffer_;
};

class CpuBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "cpu"; }

  uint64_t memory_bytes(int) override { return 0; }

  std::shared_ptr<DeviceMemory> allocate(int, uint64_t bytes, Placing) override {
    return std::make_shared<CpuMemory>(bytes);
  }

  std::byte* host_view(std::byte* device) override { return device; }

  std::shared_ptr<DeviceMemory> place_weight(int, WeightBytes, const WeightForm&) override { return nullptr; }

  void copy_to_host(void* host, const std::byte* device, uint64_t bytes) override { std::memcpy(host, device, bytes); }

  void copy_from_host(std::byte* device, const void* host, uint64_t bytes) override {
    std::memcpy(device, host, bytes);
  }

  std::unique_ptr<Executable> compile(std::vector<Part> parts) override {
    return std::make_unique<cpu::CpuExecutable>(std::move(parts), wanted_numerics());
  }
};

}  // namespace

Backend& cpu_backend() {
  static auto* const backend = new CpuBackend;  // destructors of static objects may call the runtime
  return *backend;
}

}  // namespace tcim_lite
