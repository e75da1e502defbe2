#include "layers/clock/copies.h"

#include <cmath>
#include <string_view>

#include "runtime/chip_profile.h"

namespace tcim_lite::layers {
namespace {

bool on_device(const TensorFacts* facts) { return facts != nullptr && facts->device_id != kHost; }

}  // namespace

// Both ends on devices: no copy over PCIe. A device tensor that is written from no tensor is zeroed there.
std::optional<CopyMade> copy_of(const CallEvent& event) {
  const TensorFacts *from = event.facts(event.reads), *to = event.facts(event.writes);
  const bool from_device = on_device(from), to_device = on_device(to);
  if (from_device == to_device || event.error) return std::nullopt;
  const ChipProfile& profile = chip_profile();
  const TensorFacts& there = from_device ? *from : *to;
  const double rate = (from_device ? profile.to_host_gb : profile.to_device_gb) * 1e9;
  const std::string_view name = event.name;
  if (name == "Tensor.set_zero") return std::nullopt;
  const double host = name == "Module.set_input" ? profile.set_input_us * 1e3 : 0;
  return CopyMade{from_device ? CopyTo::Host : CopyTo::Device, there.span_bytes, there.device_id,
                  uint64_t(std::llround(double(there.span_bytes) / rate * 1e9)), uint64_t(std::llround(host))};
}

}  // namespace tcim_lite::layers
