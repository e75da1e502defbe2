// Roles of the inputs that say where tokens are along time, height and width, int32 [T] each.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace tcim_lite {

constexpr std::array<std::string_view, 3> kAxisRoles = {"time_position_ids", "height_position_ids",
                                                        "width_position_ids"};

inline bool is_axis_role(std::string_view role) {
  return std::find(kAxisRoles.begin(), kAxisRoles.end(), role) != kAxisRoles.end();
}

}  // namespace tcim_lite
