// The calls that a rule can name, and which of them fail while a device does not answer.
#pragma once

#include <span>
#include <string_view>

namespace tcim_lite::layers {

struct KnownCall {
  std::string_view name;
  // Needs the device: fails while that is lost. Without it: facts that the host has, and clean-up, which always works.
  bool needs_device;
};

// A round of a queued run, on whatever thread the stream runs it. No call of the API.
inline constexpr std::string_view kExecute = "execute";

// Every event of the runtime (runtime/api_call.h), and `execute`. tests/test_layering.py compares the names.
std::span<const KnownCall> known_calls();
// Null for a name there is not.
const KnownCall* find_call(std::string_view name);

}  // namespace tcim_lite::layers
