#include <cstring>
#include <optional>
#include <string>

#include "backends/backend.h"
#include "backends/cpu/executable.h"
#include "base/aligned_buffer.h"
#include "base/env.h"
#include "base/error.h"

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

bool float_math() {
  const auto profile = env_text("TCIM_LITE_NUMERICS");
  if (!profile) return false;
  if (*profile == "float") return true;
  fail(ErrorCode::Argument, "TCIM_LITE_NUMERICS='", *profile, "': expected 'float' or nothing");
}

class CpuBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "cpu"; }

  std::shared_ptr<DeviceMemory> allocate(uint64_t bytes) override { return std::make_shared<CpuMemory>(bytes); }

  void copy_to_host(void* host, const std::byte* device, uint64_t bytes) override { std::memcpy(host, device, bytes); }

  void copy_from_host(std::byte* device, const void* host, uint64_t bytes) override {
    std::memcpy(device, host, bytes);
  }

  std::unique_ptr<Executable> compile(std::vector<Part> parts) override {
    return std::make_unique<cpu::CpuExecutable>(std::move(parts), float_math());
  }
};

}  // namespace

Backend& cpu_backend() {
  static CpuBackend backend;
  return backend;
}

}  // namespace tcim_lite
