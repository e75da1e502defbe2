// The version of the vendor's runtime that is imitated, and what differs by it: each difference is a function here,
// with the public evidence it rests on. Where nothing is known to differ, every version behaves as 1.4.
#pragma once

#include <string_view>

namespace tcim_lite {

enum class ApiVersion { V1_3, V1_4 };  // in order

// TCIM_LITE_EMULATE, 1.4 when unset. Read on every call; a module keeps the version under which it was loaded. Throws
// Error(Argument) for a version that is not imitated.
ApiVersion emulated_version();

// "v1.4.0", as in the first line of get_version.
std::string_view name_of(ApiVersion version) noexcept;

// Whether set_input binds a device tensor to an input. Of runtime 1.3.0 it is reported that it binds to inputs named in
// set_dummy_tensors only, and that set_dev_input binds to all; programs for 1.4.0 bind both ways.
constexpr bool set_input_binds(ApiVersion version, bool is_dummy) noexcept {
  return is_dummy || version >= ApiVersion::V1_4;
}

}  // namespace tcim_lite
